//! Which fault hits whom, and for how long: decided by the seed alone.

use std::time::Duration;

use crate::fault::{Kind, OF_NODES, Reach};
use crate::{QUARANTINE, WORKERS};
use redlatch_testkit::Dice;

/// One fault, and the rest after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) reach: Reach,
    /// Nodes, or workers where they are hit.
    pub(crate) victims: Vec<usize>,
    pub(crate) length: Duration,
    pub(crate) rest: Duration,
}

/// Until clients have found their way back to a node: a connection that was being made when it fell
/// silent is given up after two seconds.
const RECOVERY: Duration = Duration::from_millis(2500);

/// All phases take turns; a round of them is about so long.
const ROUND: Duration = Duration::from_secs(120);

/// The schedule of a run; `clock` says whether the last node's clock can be moved.
pub(crate) fn plan(seed: u64, nodes: usize, length: Duration, clock: bool) -> Vec<Step> {
    let mut planner = Planner::new(seed, nodes);
    let rounds = (length.as_secs() / ROUND.as_secs()).max(1);
    let round = length / rounds as u32;
    for _ in 0..rounds {
        let begin = planner.now;
        let share = |percent: u32| begin + round * percent / 100;
        planner.calm(round / 20);
        // Of one node only clients can be hit without a quorum.
        planner.few(share(if planner.spare() > 0 { 45 } else { 15 }));
        planner.many(share(70));
        planner.outside(share(92), clock);
        planner.calm(crate::GRACE);
    }
    planner.steps
}

/// A schedule of nothing but what the restart guard is there for: quorums that forget.
pub(crate) fn plan_amnesia(seed: u64, nodes: usize, length: Duration) -> Vec<Step> {
    let mut planner = Planner::new(seed, nodes);
    while planner.now < length {
        let mut deck = planner.deck();
        deck.retain(|kind| kind.is_forgetful());
        for kind in deck {
            let victims = planner.choose(nodes, nodes);
            let length = planner.dice.millis(20, 200);
            let rest = planner.dice.millis(800, 1500);
            planner.push(kind, Reach::Many, victims, length, rest);
        }
    }
    planner.steps
}

struct Planner {
    dice: Dice,
    steps: Vec<Step>,
    now: Duration,
    /// Until when each node may not count.
    away: Vec<Duration>,
}

impl Planner {
    fn new(seed: u64, nodes: usize) -> Self {
        Self {
            dice: Dice::new(seed),
            steps: Vec::new(),
            now: Duration::ZERO,
            away: vec![Duration::ZERO; nodes],
        }
    }

    fn calm(&mut self, length: Duration) {
        self.push(Kind::Calm, Reach::Few, Vec::new(), length, Duration::ZERO);
    }

    /// All kinds in turn, so that no more nodes are away at any time than a quorum can spare.
    fn few(&mut self, until: Duration) {
        while self.now < until {
            for kind in self.deck() {
                if self.now >= until {
                    break;
                }
                if kind != Kind::FrozenClient && self.spare() == 0 {
                    continue;
                }
                let length = self.length(kind);
                let rest = self.dice.millis(100, 800);
                let victims = match kind {
                    Kind::FrozenClient => self.workers(),
                    _ => self.few_away(),
                };
                self.push(kind, Reach::Few, victims, length, rest);
            }
        }
        self.calm(QUARANTINE + RECOVERY);
    }

    fn many(&mut self, until: Duration) {
        while self.now < until {
            for kind in self.alternating_deck() {
                if self.now >= until {
                    break;
                }
                let (nodes, spare) = (self.away.len(), self.spare());
                let count = nodes - spare + self.dice.below(spare as u64 + 1) as usize;
                let victims = self.choose(nodes, count);
                let length = self.length(kind);
                // Mostly until all is well again, and sometimes into the quarantine.
                let rest = match self.dice.below(4) {
                    0 => self.dice.millis(100, 800),
                    _ if kind.is_forgetful() => QUARANTINE + RECOVERY,
                    _ => RECOVERY,
                };
                self.push(kind, Reach::Many, victims, length, rest);
            }
        }
        self.calm(QUARANTINE + RECOVERY);
    }

    fn outside(&mut self, until: Duration, clock: bool) {
        let mut turn = 0;
        while self.now < until {
            let length = self.dice.millis(1500, 4000);
            let rest = self.dice.millis(100, 800);
            turn += 1;
            if turn % 2 == 0 && clock {
                let last = vec![self.away.len() - 1];
                self.push(Kind::ClockStep, Reach::Outside, last, length, rest);
            } else {
                let nodes = self.away.len();
                let count = 1 + self.dice.below(nodes as u64) as usize;
                let victims = self.choose(nodes, count);
                self.push(Kind::Eviction, Reach::Outside, victims, length, rest);
            }
        }
    }

    fn push(
        &mut self,
        kind: Kind,
        reach: Reach,
        victims: Vec<usize>,
        length: Duration,
        rest: Duration,
    ) {
        self.now += length;
        if kind != Kind::FrozenClient {
            let quarantine = if kind.is_forgetful() {
                QUARANTINE
            } else {
                Duration::ZERO
            };
            for &node in &victims {
                self.away[node] = self.now + quarantine + RECOVERY;
            }
        }
        self.now += rest;
        self.steps.push(Step {
            kind,
            reach,
            victims,
            length,
            rest,
        });
    }

    fn deck(&mut self) -> Vec<Kind> {
        let mut deck = OF_NODES.to_vec();
        deck.push(Kind::FrozenClient);
        self.dice.shuffle(&mut deck);
        deck
    }

    /// Every other one makes nodes forget, which is what exclusion has to fear most.
    fn alternating_deck(&mut self) -> Vec<Kind> {
        let deck = self.deck().into_iter();
        let deck = deck.filter(|&kind| kind != Kind::FrozenClient);
        let (forgetful, others): (Vec<_>, Vec<_>) = deck.partition(|kind| kind.is_forgetful());
        let forgetful = forgetful.into_iter().cycle();
        let pairs = forgetful.zip(others);
        pairs.flat_map(|(one, other)| [one, other]).collect()
    }

    /// What is stopped is stopped for longer than any lease.
    fn length(&mut self, kind: Kind) -> Duration {
        match kind {
            Kind::FrozenNode | Kind::FrozenClient => self.dice.millis(2200, 3500),
            Kind::RestartEmpty | Kind::RestartKept | Kind::RestartTruncated => {
                self.dice.millis(20, 1500)
            }
            Kind::FlushAll | Kind::ScriptFlush | Kind::ClientKill => self.dice.millis(50, 500),
            _ => self.dice.millis(400, 2500),
        }
    }

    fn workers(&mut self) -> Vec<usize> {
        let count = 1 + self.dice.below(WORKERS as u64 - 1) as usize;
        self.choose(WORKERS, count)
    }

    /// How many nodes a quorum can spare.
    fn spare(&self) -> usize {
        (self.away.len() - 1) / 2
    }

    fn few_away(&mut self) -> Vec<usize> {
        let spare = self.spare();
        let count = 1 + self.dice.below(spare.max(1) as u64) as usize;
        let is_away: Vec<bool> = self.away.iter().map(|&until| until > self.now).collect();
        let mut room = spare.saturating_sub(is_away.iter().filter(|&&away| away).count());
        let mut victims = self.choose(is_away.len(), is_away.len());
        victims.retain(|&node| {
            let fits = is_away[node] || room > 0;
            room -= usize::from(fits && !is_away[node]);
            fits
        });
        victims.truncate(count);
        victims
    }

    fn choose(&mut self, of: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..of).collect();
        self.dice.shuffle(&mut all);
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_seed_decides_the_schedule() {
        for nodes in [1, 5] {
            let of = |seed| plan(seed, nodes, MINUTE, true);
            assert_eq!(of(1), of(1));
            assert_ne!(of(1), of(2));
        }
    }

    #[test]
    fn a_minute_has_almost_every_kind_of_fault() {
        let steps = plan(1, 5, MINUTE, true);
        let mut kinds: Vec<Kind> = steps.iter().map(|step| step.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert!(kinds.len() >= 15, "{kinds:?}");
    }

    #[test]
    fn faults_of_few_nodes_leave_a_quorum() {
        for (seed, nodes, spare) in (0..100).flat_map(|seed| [(seed, 1, 0), (seed, 5, 2)]) {
            let mut now = Duration::ZERO;
            let mut away = vec![Duration::ZERO; nodes];
            for step in plan(seed, nodes, MINUTE * 4, true) {
                let end = now + step.length;
                if step.kind != Kind::FrozenClient {
                    let forgotten = step.kind.is_forgetful();
                    let quarantine = if forgotten {
                        QUARANTINE
                    } else {
                        Duration::ZERO
                    };
                    for &node in &step.victims {
                        away[node] = end + quarantine;
                    }
                }
                if step.reach == Reach::Few && step.kind != Kind::Calm {
                    let count = away.iter().filter(|&&until| until > now).count();
                    assert!(count <= spare, "seed {seed}, {nodes} nodes: {step:?}");
                }
                now = end + step.rest;
            }
        }
    }
}
