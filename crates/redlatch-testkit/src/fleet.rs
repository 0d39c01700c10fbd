//! Several servers that know nothing of each other.

use std::ops::Deref;
use std::thread;

use crate::{Builder, Proxy, RedisServer};

/// Independent servers, the nodes of one deployment. It is a slice of them: `fleet[0]`,
/// `fleet.iter()`, `fleet.len()`.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<RedisServer>,
}

impl Fleet {
    /// Starts `n` fresh servers at the same time.
    #[track_caller]
    pub fn start(n: usize) -> Fleet {
        Fleet::start_with(n, &RedisServer::builder())
    }

    /// Starts `n` servers with the same settings.
    #[track_caller]
    pub fn start_with(n: usize, builder: &Builder) -> Fleet {
        let servers = thread::scope(|scope| {
            let starting: Vec<_> = (0..n)
                .map(|_| scope.spawn(|| builder.clone().start()))
                .collect();
            starting
                .into_iter()
                .map(|start| start.join().expect("every server of the fleet starts"))
                .collect()
        });
        Fleet { servers }
    }

    /// The servers' URLs, in order.
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::url).collect()
    }

    /// A fault proxy in front of each server, in order.
    pub fn proxies(&self) -> Vec<Proxy> {
        self.iter().map(RedisServer::proxy).collect()
    }
}

impl Deref for Fleet {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.servers
    }
}
