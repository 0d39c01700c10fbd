//! The Redis servers of one run: fresh ones each time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use redlatch::Redlatch;
use redlatch_testkit::{Fleet, Proxy};

use crate::plan::Condition;
use crate::usage;

/// How much later the slow node answers.
const DELAY: Duration = Duration::from_millis(20);

/// Independent servers, and what stands between them and the contender.
pub(crate) struct Servers {
    fleet: Fleet,
    /// In front of the last one, where one of them is to be slow or frozen.
    proxy: Option<Proxy>,
    /// How often the servers were asked for their work.
    questions: Cell<u64>,
    /// When they were begun to be started.
    begin: Instant,
}

/// What servers have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Commands carried out by all servers, those inside scripts included.
    pub(crate) commands: u64,
    /// How often they read from a connection.
    pub(crate) reads: u64,
    /// Expiries set: by that a lease is renewed.
    pub(crate) renewals: u64,
    pub(crate) cpu: Duration,
    /// How often they were asked for all this.
    questions: u64,
}

impl Work {
    /// What was done since, our own question left out.
    pub(crate) fn since(self, before: Self) -> Self {
        let asked = self.questions - before.questions;
        let more = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            commands: more(self.commands, before.commands + asked),
            reads: more(self.reads, before.reads + asked),
            renewals: more(self.renewals, before.renewals),
            cpu: self.cpu.saturating_sub(before.cpu),
            questions: asked,
        }
    }
}

impl Servers {
    /// Starts them, ready to grant locks.
    pub(crate) fn start(count: usize, condition: Condition) -> Result<Self, String> {
        let begin = Instant::now();
        let fleet = Fleet::start(count);
        if count > 1 {
            arm(&fleet.urls())?;
        }
        let proxied = matches!(
            condition,
            Condition::Proxied | Condition::Frozen | Condition::Slow
        );
        let proxy = fleet.last().filter(|_| proxied).map(|last| last.proxy());
        Ok(Self {
            fleet,
            proxy,
            questions: Cell::new(0),
            begin,
        })
    }

    /// How long ago they were started, in seconds.
    pub(crate) fn age(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Where contenders find them.
    pub(crate) fn urls(&self) -> Vec<String> {
        let mut urls = self.fleet.urls();
        if let (Some(last), Some(proxy)) = (urls.last_mut(), &self.proxy) {
            *last = proxy.url();
        }
        urls
    }

    pub(crate) fn port(&self) -> u16 {
        self.fleet[0].port()
    }

    /// Lets the last node fail, when contenders are connected to all.
    pub(crate) fn spoil(&self, condition: Condition) {
        match (condition, &self.proxy) {
            (Condition::Slow, Some(proxy)) => proxy.delay_requests(DELAY),
            (Condition::Frozen, _) => self.fleet[self.fleet.len() - 1].freeze(),
            _ => {}
        }
    }

    /// Ends that again: a frozen server can't be asked anything.
    pub(crate) fn mend(&self, condition: Condition) {
        if let Some(proxy) = &self.proxy {
            proxy.heal();
        }
        if condition == Condition::Frozen {
            self.fleet[self.fleet.len() - 1].thaw();
        }
    }

    pub(crate) fn work(&self) -> Work {
        let mut work = Work::default();
        for server in self.fleet.iter() {
            let info = server.command(&["INFO", "everything"]);
            let number = |field: &str| number(info.as_text(), field);
            work.cpu += usage::cpu(server.pid()).unwrap_or_default();
            work.commands += number("total_commands_processed:");
            work.reads += number("total_reads_processed:");
            for command in ["expire", "pexpire", "expireat", "pexpireat"] {
                work.renewals += number(&format!("cmdstat_{command}:calls="));
            }
        }
        work.questions = self.questions.get() + self.fleet.len() as u64;
        self.questions.set(work.questions);
        work
    }

    /// Makes a script known to the first server, and gives the name it has there.
    pub(crate) fn load_script(&self, text: &str) -> String {
        let reply = self.fleet[0].command(&["SCRIPT", "LOAD", text]);
        reply.as_text().to_owned()
    }

    /// What the first server says that it keeps in memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.fleet[0].info("used_memory").parse().unwrap_or(0)
    }

    /// How many keys there are on the first server.
    pub(crate) fn keys(&self) -> usize {
        usize::try_from(self.fleet[0].command(&["DBSIZE"]).as_int()).unwrap_or(0)
    }

    /// How long the lock `name` still lives on the first server.
    pub(crate) fn left(&self, name: &str) -> Option<Duration> {
        let server = &self.fleet[0];
        let keys = server.keys();
        let locks = keys.iter().filter(|key| is_lock(key, name));
        let left = locks.map(|key| server.pttl(key)).max()?;
        u64::try_from(left).ok().map(Duration::from_millis)
    }
}

/// The number after `field`; 0 for what never happened.
fn number(info: &str, field: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(field));
    let digits = line.and_then(|line| line.split(',').next());
    digits
        .and_then(|digits| digits.trim().parse().ok())
        .unwrap_or(0)
}

/// Whether a key is a lock's own, whoever wrote it, and not its queue or the like.
fn is_lock(key: &str, name: &str) -> bool {
    let own = key == name || key.ends_with(&format!(":{name}"));
    own && !key.contains("__queue") && !key.contains("signal")
}

/// Tells the nodes that they have forgotten nothing: else redlatch's restart
/// guard would keep them out for a minute.
fn arm(urls: &[String]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let admin = Redlatch::builder().nodes(urls).admin().await;
        let nodes = admin
            .map_err(|error| error.to_string())?
            .assume_fresh()
            .await;
        match nodes.iter().find(|node| !node.is_armed()) {
            Some(node) => Err(format!("a node could not be armed: {node:?}")),
            None => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_questions_are_not_counted() {
        let servers = Servers::start(2, Condition::Usual).expect("they start");
        let before = servers.work();
        let nothing = servers.work().since(before);
        assert_eq!((nothing.commands, nothing.reads), (0, 0));
        servers.fleet[0].command(&["PING"]);
        servers.fleet[1].command(&["EVAL", "return redis.call('PEXPIRE', 'x', 1)", "0"]);
        let work = servers.work().since(before);
        assert_eq!((work.commands, work.reads, work.renewals), (3, 2, 1));
    }

    #[test]
    fn only_the_lock_itself_is_taken_for_it() {
        let locks = ["hot", "redlatch:hot", "lock:hot", "rueidislock:0:hot"];
        assert!(locks.iter().all(|key| is_lock(key, "hot")));
        let others = [
            "redlatch:__queue:redlatch:hot",
            "lock-signal:hot",
            "redisson_lock_queue:{hot}",
            "redlatch:__fence",
            "shot",
        ];
        assert!(!others.iter().any(|key| is_lock(key, "hot")));
    }
}
