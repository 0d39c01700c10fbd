//! The faults, and how they are brought about on real servers.

use std::time::{Duration, Instant};

use redlatch_testkit::{Proxy, RedisServer, Worker};

use redlatch_testkit::Dice;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Calm,
    RestartEmpty,
    RestartKept,
    RestartTruncated,
    FrozenNode,
    FrozenClient,
    Mute,
    Cut,
    RequestsLost,
    RepliesLost,
    Held,
    Delay,
    FlushAll,
    ScriptFlush,
    ClientKill,
    Eviction,
    ClockStep,
}

/// Faults of nodes that promise 1 covers.
pub(crate) const OF_NODES: [Kind; 13] = [
    Kind::RestartEmpty,
    Kind::RestartKept,
    Kind::RestartTruncated,
    Kind::FrozenNode,
    Kind::Mute,
    Kind::Cut,
    Kind::RequestsLost,
    Kind::RepliesLost,
    Kind::Held,
    Kind::Delay,
    Kind::FlushAll,
    Kind::ScriptFlush,
    Kind::ClientKill,
];

/// How far a fault goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Fewer nodes than a quorum: locks must go on.
    Few,
    /// More: locks may be unavailable, and must be exclusive.
    Many,
    /// Outside promise 1: fences must be in order.
    Outside,
}

impl Reach {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reach::Few => "fewer nodes than a quorum",
            Reach::Many => "a quorum or more",
            Reach::Outside => "outside promise 1",
        }
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Calm => "(no fault)",
            Kind::RestartEmpty => "kill -9, restart empty",
            Kind::RestartKept => "kill -9, restart with its AOF",
            Kind::RestartTruncated => "kill -9, restart with a truncated AOF",
            Kind::FrozenNode => "node stopped (SIGSTOP)",
            Kind::FrozenClient => "client stopped (SIGSTOP)",
            Kind::Mute => "partition, both ways, silent",
            Kind::Cut => "partition, connections reset",
            Kind::RequestsLost => "partition, requests lost",
            Kind::RepliesLost => "partition, replies lost",
            Kind::Held => "all held back, delivered late",
            Kind::Delay => "delay of 10 to 150 ms each way",
            Kind::FlushAll => "FLUSHALL",
            Kind::ScriptFlush => "SCRIPT FLUSH",
            Kind::ClientKill => "CLIENT KILL",
            Kind::Eviction => "maxmemory, locks evicted",
            Kind::ClockStep => "clock of a node stepped",
        }
    }

    /// Whether a node that was hit stays away until its quarantine is over.
    pub(crate) fn is_forgetful(self) -> bool {
        use Kind::{FlushAll, RestartEmpty, RestartKept, RestartTruncated};
        matches!(
            self,
            RestartEmpty | RestartKept | RestartTruncated | FlushAll
        )
    }
}

/// One node: a server, and the network in front of it.
pub(crate) struct Site {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
}

/// Hits these nodes with a fault, for so long, and sets everything right again.
pub(crate) fn strike_nodes(sites: &[&Site], kind: Kind, length: Duration, dice: &mut Dice) {
    let end = Instant::now() + length;
    match kind {
        Kind::Eviction => return evict(sites, end, dice),
        Kind::ClockStep => return step_clocks(sites, end, dice),
        _ => {}
    }
    for site in sites {
        begin(site, kind, dice);
    }
    wait_until(end);
    for site in sites {
        finish(site, kind, dice);
    }
}

/// Stops these workers, for so long.
pub(crate) fn freeze_workers(workers: &[&Worker], length: Duration) {
    for worker in workers {
        worker.freeze();
    }
    wait_until(Instant::now() + length);
    for worker in workers {
        worker.thaw();
    }
}

fn begin(Site { server, proxy }: &Site, kind: Kind, dice: &mut Dice) {
    match kind {
        Kind::RestartEmpty | Kind::RestartKept | Kind::RestartTruncated => server.kill(),
        Kind::FrozenNode => server.freeze(),
        Kind::Mute => proxy.mute(),
        Kind::Cut => proxy.cut(),
        Kind::RequestsLost => proxy.drop_requests(),
        Kind::RepliesLost => proxy.drop_replies(),
        Kind::Held => proxy.hold(),
        Kind::Delay => proxy.delay(dice.millis(10, 150)),
        Kind::FlushAll => ask(server, &["FLUSHALL"]),
        Kind::ScriptFlush => ask(server, &["SCRIPT", "FLUSH"]),
        Kind::ClientKill => ask(
            server,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        ),
        Kind::Calm | Kind::FrozenClient | Kind::Eviction | Kind::ClockStep => {}
    }
}

fn finish(Site { server, proxy }: &Site, kind: Kind, dice: &mut Dice) {
    match kind {
        Kind::RestartEmpty => server.restart_empty(),
        Kind::RestartKept => server.restart(),
        Kind::RestartTruncated => server.restart_truncated(1 + dice.below(4000)),
        Kind::FrozenNode => server.thaw(),
        _ => proxy.heal(),
    }
}

/// Drops every key with a ttl, again and again. With `volatile-*` the ballots stay.
fn evict(sites: &[&Site], end: Instant, dice: &mut Dice) {
    while Instant::now() < end {
        for Site { server, .. } in sites {
            ask(
                server,
                &[
                    "CONFIG",
                    "SET",
                    "maxmemory-policy",
                    "volatile-random",
                    "maxmemory",
                    "1",
                ],
            );
            // The next command finds too much memory in use.
            ask(server, &["PING"]);
        }
        std::thread::sleep(dice.millis(5, 40));
        for Site { server, .. } in sites {
            ask(
                server,
                &[
                    "CONFIG",
                    "SET",
                    "maxmemory",
                    "0",
                    "maxmemory-policy",
                    "noeviction",
                ],
            );
        }
        wait_until((Instant::now() + dice.millis(50, 400)).min(end));
    }
}

/// Forward and back, by up to eight seconds, and to the right time at last.
fn step_clocks(sites: &[&Site], end: Instant, dice: &mut Dice) {
    while Instant::now() < end {
        for site in sites {
            site.server.shift_clock(dice.below(16_000) as i64 - 8_000);
        }
        wait_until((Instant::now() + dice.millis(200, 1500)).min(end));
    }
    for site in sites {
        site.server.shift_clock(0);
    }
}

/// A fault that does not happen must not be counted as one.
fn ask(server: &RedisServer, command: &[&str]) {
    let reply = server.command(command);
    let refused = matches!(reply, redlatch_testkit::Reply::Error(_));
    assert!(!refused, "{command:?} to {server:?}: {reply}");
}

fn wait_until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}
