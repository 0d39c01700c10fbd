//! What clients and servers use at this moment.

use std::fs;

use redlatch_testkit::RedisServer;

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) resident_kib: u64,
    pub(crate) handles: u64,
    pub(crate) threads: u64,
}

impl Process {
    /// Nothing when there is no such process any more.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            resident_kib: field("VmRSS:")?,
            threads: field("Threads:")?,
            handles: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        })
    }
}

/// What a server says of itself, or several together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    pub(crate) keys: u64,
    pub(crate) tracked: u64,
    /// Without the buffers of connections.
    pub(crate) memory_kib: u64,
    pub(crate) channels: u64,
    pub(crate) connections: u64,
    pub(crate) trackers: u64,
    pub(crate) scripts: u64,
}

impl Server {
    pub(crate) fn of(server: &RedisServer) -> Self {
        let info = server.command(&["INFO", "everything"]);
        let field = |name: &str| -> u64 {
            let text = info.as_text();
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_else(|| panic!("INFO has no field {name}"));
            value
                .parse()
                .unwrap_or_else(|_| panic!("{name} is {value}"))
        };
        let memory = field("used_memory").saturating_sub(field("mem_clients_normal"));
        Self {
            keys: server.command(&["DBSIZE"]).as_int() as u64,
            tracked: field("tracking_total_keys"),
            memory_kib: memory / 1024,
            channels: field("pubsub_channels"),
            // All but the one that asks.
            connections: field("connected_clients") - 1,
            trackers: field("tracking_clients"),
            scripts: field("number_of_cached_scripts"),
        }
    }

    pub(crate) fn all(servers: &[RedisServer]) -> Self {
        servers
            .iter()
            .map(Self::of)
            .fold(Self::default(), Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            tracked: self.tracked + other.tracked,
            memory_kib: self.memory_kib + other.memory_kib,
            channels: self.channels + other.channels,
            connections: self.connections + other.connections,
            trackers: self.trackers + other.trackers,
            scripts: self.scripts + other.scripts,
        }
    }
}
