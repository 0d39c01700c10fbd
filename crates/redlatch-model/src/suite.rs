//! What is checked: the sizes at which the protocol holds, and the smallest at
//! which each way to get it wrong shows.

use crate::config::{Clock, Config};
use crate::force::ForceRule;
use crate::properties::{EXCLUSION, FENCES, FORCED, STRAYS, SUPERSEDED, WIPED};
use crate::variant::Variant;

/// One run that must hold.
#[derive(Clone, Debug)]
pub struct Sound {
    /// What it shows.
    pub name: &'static str,
    /// Its size.
    pub config: Config,
}

/// One run that must not hold. With [`Variant::None`] the same run does.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its size, and what is wrong in it.
    pub config: Config,
    /// The promises of which it breaks one.
    pub breaks: &'static [&'static str],
}

const RIGHT: [Clock; 2] = [Clock::Right, Clock::Right];

/// The runs of `cargo test`.
pub fn sound() -> Vec<Sound> {
    let three = || Config::new(3);
    let run = |name, config| Sound { name, config };
    vec![
        run(
            "two crashes of any kind",
            Config {
                ticks: 4,
                crashes: 2,
                ..three()
            },
        ),
        run(
            "one crash, clocks that are wrong, proposals made again",
            Config {
                ticks: 3,
                crashes: 1,
                proposals: 1,
                clocks: vec![
                    [Clock::Behind, Clock::Ahead],
                    [Clock::Right, Clock::Behind],
                    [Clock::Wild, Clock::Right],
                ],
                ..three()
            },
        ),
        run(
            "one crash of a lease that is extended",
            Config {
                ticks: 4,
                crashes: 1,
                extends: 1,
                ..three()
            },
        ),
        run(
            "three attempts, clocks that are wrong, no crash",
            Config {
                attempts: [2, 1],
                proposals: 2,
                clocks: vec![
                    [Clock::Behind, Clock::Right],
                    [Clock::Right, Clock::Behind],
                    [Clock::Ahead, Clock::Behind],
                    [Clock::Wild, Clock::Ahead],
                ],
                ..three()
            },
        ),
        run(
            "ACQUIRE sent twice, holders that release",
            Config {
                resends: 1,
                releases: true,
                extends: 1,
                ..three()
            },
        ),
        run(
            "REJOIN beside another client",
            Config {
                ticks: 3,
                extends: 2,
                rejoins: 1,
                releases: true,
                ..three()
            },
        ),
        run("FORCE by ballot", forced(Clock::Right)),
        run(
            "FORCE by ballot, the administrator's clock behind",
            forced(Clock::Behind),
        ),
        run(
            "fences in order after FORCE",
            Config {
                ticks: 1,
                forces: 1,
                clocks: vec![[Clock::Right, Clock::Behind], [Clock::Right, Clock::Ahead]],
                ..three()
            },
        ),
        run(
            "fences in order after deletions by strangers",
            Config {
                ticks: 1,
                deletes: 2,
                attempts: [2, 1],
                proposals: 1,
                clocks: vec![[Clock::Behind, Clock::Right]],
                ..three()
            },
        ),
        run("a lease deleted everywhere is lost", wiped()),
        run(
            "what was released stays released",
            Config {
                strays: true,
                releases: true,
                extends: 1,
                rejoins: 1,
                attempts: [1, 0],
                ..three()
            },
        ),
        run(
            "five nodes, proposals made again",
            Config {
                proposals: 1,
                clocks: vec![[Clock::Behind, Clock::Right]],
                ..Config::new(5)
            },
        ),
        run(
            "five nodes, one crash",
            Config {
                ticks: 3,
                crashes: 1,
                ..Config::new(5)
            },
        ),
    ]
}

/// What takes minutes to hours more.
pub fn large() -> Vec<Sound> {
    let three = || Config::new(3);
    let run = |name, config| Sound { name, config };
    let restarts = Config {
        ticks: 4,
        crashes: 1,
        extends: 2,
        rejoins: 1,
        ..three()
    };
    let clocks = vec![
        RIGHT,
        [Clock::Behind, Clock::Ahead],
        [Clock::Ahead, Clock::Behind],
    ];
    vec![
        run("REJOIN after a crash, beside another client", restarts),
        run(
            "FORCE by ballot with a crash",
            Config {
                crashes: 1,
                ..forced(Clock::Right)
            },
        ),
        run(
            "two crashes, leases that are extended",
            Config {
                ticks: 4,
                crashes: 2,
                extends: 1,
                ..three()
            },
        ),
        run(
            "two crashes, clocks that are wrong, proposals made again",
            Config {
                ticks: 4,
                crashes: 2,
                proposals: 1,
                clocks,
                ..three()
            },
        ),
        run(
            "five nodes, two crashes",
            Config {
                ticks: 3,
                crashes: 2,
                ..Config::new(5)
            },
        ),
    ]
}

/// Every way to get it wrong, at a size that shows it.
pub fn broken() -> Vec<Broken> {
    let run = |variant, breaks, config| Broken {
        config: Config { variant, ..config },
        breaks,
    };
    let three = || Config::new(3);
    let either: &[_] = &[EXCLUSION, FENCES];
    let late = vec![[Clock::Right, Clock::Behind]];
    let crash = |ticks| Config {
        ticks,
        crashes: 1,
        ..three()
    };
    vec![
        run(
            Variant::NoCounterCheck,
            &[FENCES],
            Config {
                clocks: late.clone(),
                ..three()
            },
        ),
        run(
            Variant::ProposalLeavesSlot,
            &[FENCES],
            Config {
                attempts: [2, 1],
                proposals: 1,
                clocks: vec![[Clock::Behind, Clock::Right]],
                ..three()
            },
        ),
        run(Variant::NoGuard, either, crash(1)),
        run(Variant::GuardIsMarker, either, crash(1)),
        run(Variant::ShortQuarantine, &[EXCLUSION], crash(1)),
        run(
            Variant::NoFloor,
            &[FENCES],
            Config {
                clocks: late,
                ..crash(3)
            },
        ),
        run(
            Variant::NoBound,
            &[FENCES],
            Config {
                clocks: vec![[Clock::Wild, Clock::Right]],
                ..crash(3)
            },
        ),
        run(
            Variant::ExtendCreatesInQuarantine,
            &[FORCED],
            Config {
                ticks: 0,
                attempts: [1, 0],
                extends: 1,
                forces: 1,
                crashes: 1,
                ..three()
            },
        ),
        run(
            Variant::ExtendCreatesAfterOthers,
            &[WIPED, SUPERSEDED],
            Config {
                ticks: 0,
                extends: 1,
                wipes: 1,
                releases: true,
                superseded: true,
                clocks: vec![[Clock::Right, Clock::Ahead]],
                ..three()
            },
        ),
        run(
            Variant::ExtendCreatesAfterRelease,
            &[STRAYS],
            Config {
                ticks: 0,
                attempts: [1, 0],
                extends: 1,
                releases: true,
                strays: true,
                ..three()
            },
        ),
        run(
            Variant::ValidityFromResend,
            &[EXCLUSION],
            Config {
                resends: 1,
                ..three()
            },
        ),
        run(
            Variant::QuorumOfAnswers,
            either,
            Config {
                ticks: 0,
                ..three()
            },
        ),
        run(Variant::RejoinIgnoresForce, &[FORCED], forced(Clock::Right)),
        run(Variant::RejoinWithoutQuorum, &[WIPED], wiped()),
        run(Variant::RejoinCounts, &[WIPED], wiped()),
        run(
            Variant::ReleaseLeavesSlot,
            &[STRAYS],
            Config {
                ticks: 0,
                attempts: [1, 0],
                releases: true,
                strays: true,
                ..three()
            },
        ),
    ]
}

/// A holder that an administrator takes the lock away from.
pub fn forced(administrator: Clock) -> Config {
    Config {
        ticks: 1,
        attempts: [1, 0],
        extends: 2,
        rejoins: 1,
        forces: 1,
        force: ForceRule::ByBallot,
        administrator,
        clocks: vec![RIGHT, [Clock::Ahead, Clock::Right]],
        ..Config::new(3)
    }
}

/// A holder whose key a stranger deletes everywhere.
fn wiped() -> Config {
    Config {
        ticks: 1,
        attempts: [1, 0],
        extends: 2,
        rejoins: 1,
        wipes: 1,
        ..Config::new(3)
    }
}
