//! What one seed stands for, and which mistakes can be planted.

use std::time::Duration;

use redlatch::sim::Bug;

use crate::random::Random;

/// What the simulated servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The shipped Lua scripts.
    Scripts,
    /// `redlatch_core::rules`.
    Rules,
}

/// What to simulate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Decides everything that the rest leaves open.
    pub seed: u64,
    /// What it is about.
    pub scene: Scene,
    /// Which workload: seeds that were kept belong to the one that they were
    /// found with. Default: the newest.
    pub workload: Workload,
    /// A mistake that is made on purpose.
    pub planted: Option<Planted>,
    /// Whether all that happens is kept, and not just its hash.
    pub keep_trace: bool,
}

impl Setup {
    /// The simulation of a seed.
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

/// What tasks do, as it grew. A seed means another simulation with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Fenced locks: waited for, tried, cancelled, handed on, adopted.
    First,
    /// Also a plain lock, owners, `run`, and locks that are taken away by force.
    Second,
    /// The same, with servers that refuse to write for a while.
    Third,
    /// The same, and now and then a task wants several locks at once: what it asks for
    /// at the same moment goes out as one command.
    #[default]
    Fourth,
}

/// What a simulation is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scene {
    /// Whatever can go wrong does, and then it is calm.
    #[default]
    Trouble,
    /// As many nodes as promise 3 allows go away, one after the other, and
    /// nothing else happens: locks go on.
    Minority,
    /// One client after the other is stopped for some seconds, also while it is
    /// the first who waits: the others go on.
    Stopped,
}

/// What can go wrong in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// All that exclusion is promised for.
    Promised,
    /// Node clocks that are stepped and keys that vanish as well: only fences
    /// are promised then.
    Beyond,
}

/// A mistake that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Planted {
    SkipValidity,
    QuorumOfAnswers,
    ReleaseOvertakes,
    NoRestartGuard,
    ExtendCreates,
    NoCancelRelease,
    HandOverLost,
    WakeUpLost,
}

impl Planted {
    /// All of them, with the names that they have on the command line.
    pub const ALL: [(&'static str, Self); 8] = [
        ("skip-validity", Self::SkipValidity),
        ("quorum-of-answers", Self::QuorumOfAnswers),
        ("release-overtakes", Self::ReleaseOvertakes),
        ("no-restart-guard", Self::NoRestartGuard),
        ("extend-creates", Self::ExtendCreates),
        ("no-cancel-release", Self::NoCancelRelease),
        ("hand-over-lost", Self::HandOverLost),
        ("wake-up-lost", Self::WakeUpLost),
    ];

    /// The mistake in the library, if it is made there.
    pub(crate) fn bug(self) -> Option<Bug> {
        Some(match self {
            Self::SkipValidity => Bug::SkipValidity,
            Self::QuorumOfAnswers => Bug::QuorumOfAnswers,
            Self::ReleaseOvertakes => Bug::ReleaseOvertakes,
            Self::NoCancelRelease => Bug::NoCancelRelease,
            Self::HandOverLost => Bug::HandOverLost,
            Self::WakeUpLost => Bug::WakeUpLost,
            Self::NoRestartGuard | Self::ExtendCreates => return None,
        })
    }

    /// The script as servers run it.
    pub(crate) fn script(self, script: &str) -> String {
        if self != Self::ExtendCreates || !script.contains("-- EXTEND: ") {
            // bundle.lua has no such mistake: what it does not find it leaves to this one.
            return script.to_owned();
        }
        let missing = "    return 'MISSING'";
        assert!(script.contains(missing), "extend.lua has changed");
        let creates =
            "    redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])\n    return 'EXTENDED'";
        script.replace(missing, creates)
    }
}

/// When faults end, when progress is counted from, and when all is over; in
/// milliseconds. Between the first two every quarantine and lease has ended.
pub(crate) const CALM: u64 = 14_000;
pub(crate) const SETTLED: u64 = 20_500;
pub(crate) const OVER: u64 = 28_000;

/// What is chosen for a simulation, all of it by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) faults: Faults,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Tasks in each client.
    pub(crate) tasks: usize,
    pub(crate) locks: usize,
    pub(crate) ttl: Duration,
    pub(crate) node_timeout: Duration,
    /// Whether leases are so long that nothing can hide behind their end: what
    /// is left behind on a node is still there when it is looked for.
    pub(crate) patient: bool,
    pub(crate) guarded: bool,
    /// Whether what was sent over one connection may be overtaken by what is
    /// sent over the next. A place in a queue that is asked for so late may be
    /// left behind until the queue runs out; a lock never is.
    pub(crate) overtakes: bool,
    /// Whether nodes forget: covered by the restart guard, and by nothing else.
    pub(crate) forgets: bool,
    pub(crate) handovers: (u32, Duration),
    pub(crate) workload: Workload,
}

impl Plan {
    /// The longest ttl of the deployment: short, so that quarantines end.
    pub(crate) fn max_ttl(&self) -> Duration {
        Duration::from_secs(if self.patient { 20 } else { 2 })
    }

    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { seed, planted, .. } = setup;
        let mut random = Random::new(seed, 2);
        let nodes = random.pick(&[1, 3, 3, 5]);
        let patient = random.percent(30);
        let ttl = match (patient, random.percent(60)) {
            (true, _) => random.between(8_000, 20_000),
            (false, true) => random.between(150, 400),
            (false, false) => random.between(400, 1_500),
        };
        let plan = Self {
            // Half of them each; a mistake in a script is in the scripts only.
            kind: match random.percent(50) && planted != Some(Planted::ExtendCreates) {
                true => Kind::Rules,
                false => Kind::Scripts,
            },
            faults: match random.percent(25) && planted.is_none() {
                true => Faults::Beyond,
                false => Faults::Promised,
            },
            nodes,
            clients: random.between(2, 4) as usize,
            tasks: random.between(1, 3) as usize,
            locks: random.between(1, 3) as usize,
            ttl: Duration::from_millis(ttl),
            patient,
            node_timeout: Duration::from_millis(random.pick(&[50, 50, 140])),
            guarded: nodes > 1 || random.percent(50),
            // What was given back comes back when a node is rolled back.
            forgets: false,
            overtakes: random.percent(60),
            handovers: random.pick(&[
                (0, Duration::ZERO),
                (32, Duration::from_millis(50)),
                (1000, Duration::from_secs(10)),
            ]),
            workload: setup.workload,
        };
        let plan = Self {
            forgets: plan.guarded && !plan.patient,
            guarded: plan.guarded && planted != Some(Planted::NoRestartGuard),
            ..plan
        };
        let is_wide = setup.workload >= Workload::Fourth && Random::new(seed, 7).percent(60);
        let plan = Self {
            locks: if is_wide { 8 } else { plan.locks },
            ..plan
        };
        match setup.scene {
            Scene::Trouble => plan.shaped(planted, &mut random),
            Scene::Minority => plan.for_minority(&mut random),
            Scene::Stopped => Self {
                clients: 4,
                // One lock, so that there is always somebody who can have it.
                workload: Workload::First,
                ..plan.for_minority(&mut random)
            },
        }
    }

    /// Contention, and nothing but it: leases that nobody loses.
    fn for_minority(self, random: &mut Random) -> Self {
        Self {
            faults: Faults::Promised,
            nodes: random.pick(&[3, 5, 5]),
            tasks: random.between(1, 3) as usize,
            locks: 1,
            ttl: Duration::from_millis(random.between(1_000, 2_000)),
            patient: false,
            guarded: true,
            // What a node was sent before it went away reaches it when it is back.
            overtakes: true,
            forgets: false,
            ..self
        }
    }

    /// A mistake that needs rare circumstances is looked for where they are common.
    fn shaped(self, planted: Option<Planted>, random: &mut Random) -> Self {
        match planted {
            Some(Planted::SkipValidity) => Self {
                ttl: Duration::from_millis(random.between(420, 600)),
                node_timeout: Duration::from_millis(140),
                patient: false,
                overtakes: true,
                ..self
            },
            // Where nobody else raises the ballot before the late request comes.
            Some(Planted::ReleaseOvertakes | Planted::ExtendCreates) => Self {
                ttl: Duration::from_millis(random.between(8_000, 20_000)),
                patient: true,
                overtakes: true,
                forgets: false,
                tasks: 1,
                locks: 3,
                ..self
            },
            _ => self,
        }
    }

    /// When it is over, in milliseconds.
    pub(crate) fn end(&self) -> u64 {
        if self.patient { CALM + 1_000 } else { OVER }
    }

    pub(crate) fn lock(&self, number: usize) -> String {
        format!("lock{number}")
    }

    /// How many names there are: the last one is that of the plain lock.
    pub(crate) fn names(&self) -> usize {
        self.locks + usize::from(self.workload >= Workload::Second)
    }

    pub(crate) fn is_plain(&self, number: usize) -> bool {
        number >= self.locks
    }
}
