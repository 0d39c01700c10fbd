//! Taking turns by the barest commands: what any lock must pay at least that goes
//! from process to process in the order in which they asked.
//!
//! A list with one element is a lock that is free: `BLPOP` takes it, or waits in
//! Redis's own queue, and `RPUSH` puts it back, which wakes the first who waits. No
//! token, no ttl, no script: whoever crashes has it for ever. It is for processes of
//! one task: one who waits keeps the connection blocked.

use std::collections::HashSet;
use std::sync::Mutex;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value, cmd};

use crate::Error;
use crate::job::Job;
use crate::lock::client;

pub(crate) struct Turns {
    connection: MultiplexedConnection,
    /// The names whose element is there, or taken.
    known: Mutex<HashSet<String>>,
}

impl Turns {
    pub(crate) async fn connect(job: &Job) -> Result<Self, Error> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = client(job.nodes.first().ok_or("the job has no nodes")?)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self {
            connection: connection.await?,
            known: Mutex::default(),
        })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<String, Error> {
        let key = format!("redlatch:{name}");
        let is_new = match self.known.lock() {
            Ok(mut known) => known.insert(name.to_owned()),
            Err(_) => return Err("a task has panicked".into()),
        };
        // Whoever asks first of all processes puts it there.
        if is_new {
            let mut made = cmd("SET");
            made.arg(format!("{key}:made")).arg(1).arg("NX");
            if self.connection.clone().send_packed_command(&made).await? == Value::Okay {
                self.release(&key).await?;
            }
        }
        let mut take = cmd("BLPOP");
        take.arg(&key).arg(0);
        self.connection.clone().send_packed_command(&take).await?;
        Ok(key)
    }

    pub(crate) async fn release(&self, key: &str) -> Result<(), Error> {
        let mut give = cmd("RPUSH");
        give.arg(key).arg("1");
        self.connection.clone().send_packed_command(&give).await?;
        Ok(())
    }
}
