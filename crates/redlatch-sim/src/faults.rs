//! What goes wrong, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::plan::{Faults, Workload};
use crate::random::Random;
use crate::server::{Break, Comeback, Refusal, Server};
use crate::workload::Stage;
use crate::world::{Gate, Path, Ticker, rest};

/// All that faults can be made in.
pub(crate) struct Site {
    pub(crate) stage: Arc<Stage>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) clocks: Vec<Arc<Ticker>>,
    pub(crate) gates: Vec<Arc<Gate>>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    SlowNode,
    SlowPath,
    FrozenNode,
    CutRequests,
    CutReplies,
    Broken(Break),
    Crash(Comeback),
    Pause,
    ClientJump,
    ClientDayBack,
    ScriptFlush,
    Refuses(Refusal),
    NodeClock,
    LostKey,
}

impl Site {
    /// Makes faults until `end`, in milliseconds; all have ended soon after.
    pub(crate) async fn trouble(self: Arc<Self>, mut random: Random, end: u64) {
        let mut under_way = Vec::new();
        loop {
            rest(random.between(20, 900)).await;
            let now = self.stage.world.micros() / 1000;
            if now >= end {
                break;
            }
            let longest = if random.percent(20) { 4000 } else { 600 };
            let length = random.between(5, longest).min(end - now);
            let fault = self.pick(&mut random);
            let (client, node) = (
                random.below(self.gates.len()),
                random.below(self.servers.len()),
            );
            let amount = random.between(1, 3000);
            let word = format!("{fault:?}");
            self.stage
                .world
                .note(|| format!("fault {word}: client {client} node {node}, {length} ms"));
            self.stage.count(fault.name());
            let site = self.clone();
            under_way.push(tokio::spawn(async move {
                site.make(fault, client, node, length, amount).await;
            }));
        }
        for fault in under_way {
            let _ = fault.await;
        }
        self.stage.world.note(|| "calm".into());
        self.stage.calm.store(true, Ordering::Relaxed);
    }

    /// Takes nodes away until `end`, in milliseconds, one after the other: as
    /// many as locks must go on without.
    pub(crate) async fn minority(self: Arc<Self>, mut random: Random, end: u64) {
        let first = random.below(self.servers.len());
        let mut under_way = Vec::new();
        for more in 0..(self.servers.len() - 1) / 2 {
            rest(random.between(1_000, 3_000)).await;
            let node = (first + more) % self.servers.len();
            let fault = random.pick(&[
                Fault::FrozenNode,
                Fault::FrozenNode,
                Fault::Crash(Comeback::Kept),
            ]);
            let length = end - self.stage.world.micros() / 1000;
            self.stage
                .world
                .note(|| format!("fault {fault:?}: node {node}, {length} ms"));
            self.stage.count(fault.name());
            let site = self.clone();
            under_way.push(tokio::spawn(async move {
                site.make(fault, 0, node, length, 0).await;
            }));
        }
        for fault in under_way {
            let _ = fault.await;
        }
        self.stage.world.note(|| "calm".into());
    }

    /// Stops one client after the other until `end`, in milliseconds.
    pub(crate) async fn stopped(self: Arc<Self>, mut random: Random, end: u64) {
        loop {
            rest(random.between(200, 800)).await;
            let left = end.saturating_sub(self.stage.world.micros() / 1000);
            if left == 0 {
                break;
            }
            let client = random.below(self.gates.len());
            let length = random.between(3_000, 5_000).min(left);
            let world = &self.stage.world;
            world.note(|| format!("client {client} is stopped for {length} ms"));
            self.stage.count(Fault::Pause.name());
            self.make(Fault::Pause, client, 0, length, 0).await;
        }
        self.stage.world.note(|| "calm".into());
    }

    fn pick(&self, random: &mut Random) -> Fault {
        let plan = &self.stage.plan;
        let common = [
            Fault::FrozenNode,
            Fault::CutRequests,
            Fault::CutReplies,
            Fault::Broken(Break::Mute),
            Fault::Broken(Break::Both),
            Fault::Crash(Comeback::Kept),
            Fault::Pause,
            Fault::ClientJump,
            Fault::ClientDayBack,
            Fault::ScriptFlush,
        ];
        let overtaking = [
            Fault::SlowNode,
            Fault::SlowPath,
            Fault::Broken(Break::Stall),
            Fault::Broken(Break::Replies),
        ];
        // What a node that forgot has granted is covered by the restart guard.
        let forgetful = [
            Fault::Crash(Comeback::RolledBack),
            Fault::Crash(Comeback::Emptied),
        ];
        let refusing = [
            Fault::Refuses(Refusal::Writes),
            Fault::Refuses(Refusal::Growth),
        ];
        let beyond = [Fault::NodeClock, Fault::LostKey];
        match plan.faults {
            // A node that forgets and whose clock is stepped back is beyond all promises.
            Faults::Beyond if random.percent(30) => random.pick(&beyond),
            Faults::Promised if plan.forgets && random.percent(20) => random.pick(&forgetful),
            _ if plan.workload >= Workload::Third && random.percent(15) => random.pick(&refusing),
            _ if plan.overtakes && random.percent(40) => random.pick(&overtaking),
            _ => random.pick(&common),
        }
    }

    async fn make(&self, fault: Fault, client: usize, node: usize, length: u64, amount: u64) {
        let server = &self.servers[node];
        let world = &self.stage.world;
        let clients = || 0..self.gates.len();
        let with_all_clients = |change: fn(&mut Path, i64, u64), sign: i64| {
            clients()
                .for_each(|client| world.change(client, node, |path| change(path, sign, amount)));
        };
        let with_all_nodes = |change: fn(&mut Path, i64, u64), sign: i64| {
            (0..self.servers.len())
                .for_each(|node| world.change(client, node, |path| change(path, sign, amount)));
        };
        let with_path = |change: fn(&mut Path, i64, u64), sign: i64| {
            world.change(client, node, |path| change(path, sign, amount));
        };
        let slow: fn(&mut Path, i64, u64) = |path, sign, amount| match sign {
            1 if amount.is_multiple_of(2) => path.slow = amount % 50,
            1 => path.slow = amount % 150,
            _ => path.slow = 0,
        };
        let to: fn(&mut Path, i64, u64) =
            |path, sign, _| path.to = path.to.wrapping_add_signed(sign as i32);
        let from: fn(&mut Path, i64, u64) =
            |path, sign, _| path.from = path.from.wrapping_add_signed(sign as i32);
        match fault {
            Fault::SlowNode => {
                with_all_clients(slow, 1);
                rest(length).await;
                with_all_clients(slow, -1);
            }
            Fault::SlowPath => {
                with_path(slow, 1);
                rest(length).await;
                with_path(slow, -1);
            }
            Fault::FrozenNode => {
                with_all_clients(to, 1);
                with_all_clients(from, 1);
                rest(length).await;
                with_all_clients(to, -1);
                with_all_clients(from, -1);
            }
            Fault::CutRequests => {
                with_path(to, 1);
                rest(length).await;
                with_path(to, -1);
            }
            Fault::CutReplies => {
                with_path(from, 1);
                rest(length).await;
                with_path(from, -1);
            }
            Fault::Broken(how) => server.break_one(
                amount as usize,
                how,
                if amount.is_multiple_of(2) {
                    length
                } else {
                    amount / 5
                },
            ),
            Fault::Crash(comeback) => {
                server.crash();
                rest(length).await;
                server.restart(comeback);
            }
            Fault::Pause => {
                self.gates[client].close();
                with_all_nodes(to, 1);
                with_all_nodes(from, 1);
                rest(length).await;
                with_all_nodes(to, -1);
                with_all_nodes(from, -1);
                self.gates[client].open();
            }
            Fault::ClientJump => self.clocks[client].step(amount as i64, amount as i64),
            Fault::ClientDayBack => self.clocks[client].step(0, -(amount as i64)),
            Fault::ScriptFlush => server.forget_scripts(),
            Fault::Refuses(what) => {
                server.refuse(Some(what));
                rest(length).await;
                server.refuse(None);
            }
            Fault::NodeClock => {
                let by = amount as i64 / 2;
                let sign = if length.is_multiple_of(2) { 1 } else { -1 };
                server.clock.step(0, sign * by);
                rest(length).await;
                server.clock.step(0, -sign * by);
            }
            Fault::LostKey => {
                let lock = self
                    .stage
                    .plan
                    .lock(amount as usize % self.stage.plan.locks);
                server.lose(&format!("redlatch:{lock}"));
            }
        }
    }
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::SlowNode => "slow node",
            Self::SlowPath => "slow path",
            Self::FrozenNode => "node cut off",
            Self::CutRequests => "requests cut off",
            Self::CutReplies => "replies cut off",
            Self::Broken(Break::Mute) => "connection half open",
            Self::Broken(Break::Stall) => "connection stalled",
            Self::Broken(Break::Replies) => "connection reset, replies lost",
            Self::Broken(Break::Both) => "connection reset, all lost",
            Self::Crash(Comeback::Kept) => "crash, memory kept",
            Self::Crash(Comeback::RolledBack) => "crash, memory rolled back",
            Self::Crash(Comeback::Emptied) => "crash, memory lost",
            Self::Pause => "client paused",
            Self::ClientJump => "client clock jumped",
            Self::ClientDayBack => "client time of day set back",
            Self::ScriptFlush => "scripts flushed",
            Self::Refuses(Refusal::Writes) => "writes refused",
            Self::Refuses(Refusal::Growth) => "writes refused for want of memory",
            Self::NodeClock => "node clock stepped and back",
            Self::LostKey => "key lost on a node",
        }
    }
}
