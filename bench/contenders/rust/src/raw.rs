//! The Redis commands of a lock alone: what every library has to send at least.
//!
//! `SET key token NX PX ttl` and the script that deletes a key with this token,
//! by the `redis` crate over one multiplexed connection to each node. Several
//! nodes are asked at once, and a majority of them is waited for. Keys and tokens
//! are as long as redlatch's.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Script, Value, cmd};
use tokio::time::Instant;

use crate::Error;
use crate::job::Job;
use crate::lock::client;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// How long to wait before another try: what the runtime's timer can do.
const RETRY: Duration = Duration::from_millis(1);

/// How many renewals go in one pipeline: as many as in redlatch's.
const BATCH: usize = 256;

pub(crate) struct Raw {
    nodes: Vec<MultiplexedConnection>,
    ttl: Duration,
    release: Script,
    renew: Script,
    tokens: AtomicU64,
    /// What is held and renewed, the next one first.
    kept: Mutex<VecDeque<(Instant, Lease)>>,
}

#[derive(Clone)]
pub(crate) struct Lease {
    key: Box<str>,
    token: Box<str>,
}

impl Raw {
    pub(crate) async fn connect(job: &Job) -> Result<Self, Error> {
        let (release, renew) = (Script::new(RELEASE), Script::new(RENEW));
        let mut nodes = Vec::new();
        for url in &job.nodes {
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_pipeline_buffer_size(1024);
            let client = client(url)?;
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connection.await?;
            release.prepare_invoke().load_async(&mut connection).await?;
            renew.prepare_invoke().load_async(&mut connection).await?;
            nodes.push(connection);
        }
        Ok(Self {
            nodes,
            ttl: job.ttl,
            release,
            renew,
            tokens: AtomicU64::new(0),
            kept: Mutex::default(),
        })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Lease {
        let key = format!("redlatch:{name}").into_boxed_str();
        loop {
            let number = self.tokens.fetch_add(1, Ordering::Relaxed);
            let pid = std::process::id();
            let token = format!(r#"{pid:010}-{number:016} {{"host":"machine","pid":{pid}}}"#);
            let mut set = cmd("SET");
            set.arg(&*key).arg(&*token).arg("NX").arg("PX");
            set.arg(self.ttl.as_millis() as u64);
            if self.ask(set, |set| *set == Value::Okay).await {
                let token = token.into_boxed_str();
                return Lease { key, token };
            }
            if self.nodes.len() > 1 {
                self.ask(self.delete(&key, &token), |_| true).await;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    pub(crate) async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let delete = self.delete(&lease.key, &lease.token);
        if !self.ask(delete, |deleted| *deleted == Value::Int(1)).await {
            return Err(format!("{} was not held any more", lease.key).into());
        }
        Ok(())
    }

    fn delete(&self, key: &str, token: &str) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(self.release.get_hash()).arg(1).arg(key).arg(token);
        call
    }

    /// Sends a command to all nodes at once, and waits until a majority agrees
    /// or no more can. What is left goes on, so that all nodes are told.
    async fn ask(&self, command: Cmd, agrees: fn(&Value) -> bool) -> bool {
        if let [node] = &self.nodes[..] {
            let answer = node.clone().send_packed_command(&command).await;
            return answer.is_ok_and(|answer| agrees(&answer));
        }
        let command = Arc::new(command);
        let one = |node: &MultiplexedConnection| {
            let (mut node, command) = (node.clone(), command.clone());
            async move { node.send_packed_command(&command).await }
        };
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(one).collect();
        let quorum = self.nodes.len() / 2 + 1;
        let (mut yes, mut no) = (0, 0);
        while let Some(answer) = answers.next().await {
            let agreed = answer.is_ok_and(|answer| agrees(&answer));
            *if agreed { &mut yes } else { &mut no } += 1;
            if yes == quorum || no > self.nodes.len() - quorum {
                break;
            }
        }
        if !answers.is_empty() {
            tokio::spawn(async move { while answers.next().await.is_some() {} });
        }
        yes == quorum
    }

    /// Has a lease renewed from now on, by [`keep`](Self::keep).
    pub(crate) fn watch(&self, lease: &Lease) {
        let due = Instant::now() + self.ttl / 3;
        let mut kept = self.kept.lock().expect("nobody panics");
        kept.push_back((due, lease.clone()));
    }

    /// Renews what is watched whenever a third of the ttl has passed: the first
    /// node's leases only, since it is for one node that this is measured.
    pub(crate) async fn keep(&self) -> Result<(), Error> {
        let mut node = self.nodes[0].clone();
        loop {
            let batch: Vec<Lease> = {
                let mut kept = self.kept.lock().expect("nobody panics");
                let now = Instant::now();
                let due = kept.iter().take(BATCH).take_while(|(due, _)| *due <= now);
                let count = due.count();
                kept.drain(..count).map(|(_, lease)| lease).collect()
            };
            if batch.is_empty() {
                let next = self
                    .kept
                    .lock()
                    .expect("nobody panics")
                    .front()
                    .map(|(due, _)| *due);
                // Before there is anything to do, there is nothing to be late for.
                tokio::time::sleep_until(next.unwrap_or(Instant::now() + self.ttl / 12)).await;
                continue;
            }
            let mut pipeline = redis::pipe();
            for lease in &batch {
                let call = pipeline.cmd("EVALSHA").arg(self.renew.get_hash()).arg(1);
                call.arg(&*lease.key).arg(&*lease.token);
                call.arg(self.ttl.as_millis() as u64);
            }
            let renewed: Vec<u64> = pipeline.query_async(&mut node).await?;
            if renewed.contains(&0) {
                return Err("a lease was lost".into());
            }
            batch.iter().for_each(|lease| self.watch(lease));
        }
    }
}
