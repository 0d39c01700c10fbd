//! Runs simulations: some seeds, one seed with its trace, or for hours.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use redlatch_sim::{Outcome, Planted, Scene, Setup, Workload, simulate};

const USAGE: &str = "\
redlatch-sim [--first SEED] [--seeds COUNT | --minutes M | --hours H] [--planted NAME]
redlatch-sim --seed SEED [--trace] [--planted NAME]
redlatch-sim --planted all [--seeds COUNT]
redlatch-sim --minority | --stopped ...
redlatch-sim --kept

  --seeds COUNT    simulate so many seeds (default 300; 1000 to look for a mistake)
  --minutes, --hours    go on for so long
  --seed SEED      replay one seed; with --trace print all that happens in it
  --minority       no other fault than that a minority of the nodes goes away
  --stopped        no other fault than that one client after the other is stopped
  --workload N     1: fenced locks only; 2: plain locks, owners, `run` and force too; 3: with
                   servers that refuse to write, too; 4: with tasks that want several locks
                   at once, too (default 4; 1 where a mistake is planted)
  --kept           replay the seeds that once failed (seeds.txt)
  --planted NAME   plant a known mistake, and look for the first seed that finds it
names: skip-validity quorum-of-answers release-overtakes no-restart-guard
       extend-creates no-cancel-release hand-over-lost wake-up-lost all";

/// When a minority of the nodes is away and a lock is free, somebody has it within
/// so many node timeouts, but for one seed in eight. Contenders that wait out the
/// silent nodes with what they have of the others are slow for one in four.
const SLOW: u32 = 6;

#[derive(Default)]
struct Options {
    first: u64,
    seeds: Option<u64>,
    time: Option<Duration>,
    seed: Option<u64>,
    trace: bool,
    scene: Scene,
    workload: Option<Workload>,
    kept: bool,
    planted: Vec<(&'static str, Planted)>,
}

impl Options {
    /// Mistakes are looked for where there is nothing but what they are about.
    fn workload(&self) -> Workload {
        let usual = match self.planted.is_empty() {
            true => Workload::Fourth,
            false => Workload::First,
        };
        self.workload.unwrap_or(usual)
    }
}

fn main() -> ExitCode {
    let options = match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    let good = match (options.seed, options.planted.is_empty()) {
        _ if options.kept => replay_kept(),
        (Some(seed), _) => replay(seed, &options),
        (None, true) => run(&options),
        (None, false) => {
            options
                .planted
                .iter()
                .filter(|(name, planted)| !find(name, *planted, &options))
                .count()
                == 0
        }
    };
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().unwrap_or_default();
            value
                .parse::<u64>()
                .map_err(|_| format!("{word} needs a number, not {value:?}"))
        };
        match word.as_str() {
            "--first" => options.first = number()?,
            "--seeds" => options.seeds = Some(number()?),
            "--minutes" => options.time = Some(Duration::from_secs(60 * number()?)),
            "--hours" => options.time = Some(Duration::from_secs(3600 * number()?)),
            "--seed" => options.seed = Some(number()?),
            "--trace" => options.trace = true,
            "--minority" => options.scene = Scene::Minority,
            "--stopped" => options.scene = Scene::Stopped,
            "--workload" => {
                options.workload = Some(match number()? {
                    1 => Workload::First,
                    2 => Workload::Second,
                    3 => Workload::Third,
                    4 => Workload::Fourth,
                    other => return Err(format!("there is no workload {other}")),
                });
            }
            "--kept" => options.kept = true,
            "--planted" => {
                let name = words.next().unwrap_or_default();
                let found = Planted::ALL
                    .into_iter()
                    .filter(|(known, _)| name == *known || name == "all");
                options.planted = found.collect();
                if options.planted.is_empty() {
                    return Err(format!("no such mistake: {name:?}"));
                }
            }
            other => return Err(format!("what is {other}?")),
        }
    }
    Ok(options)
}

/// Seeds until the number or the time is over. Stops at the first that fails.
fn run(options: &Options) -> bool {
    let begin = Instant::now();
    let (mut seeds, mut acquisitions, mut virtual_time) = (0, 0, Duration::ZERO);
    let (mut longest_idle, mut slow) = (Duration::ZERO, 0);
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let goes_on = |seeds| match options.time {
        Some(time) => begin.elapsed() < time,
        None => seeds < options.seeds.unwrap_or(300),
    };
    let mut good = true;
    while good && goes_on(seeds) {
        let seed = options.first + seeds;
        let outcome = simulate(Setup {
            scene: options.scene,
            workload: options.workload(),
            ..Setup::of(seed)
        });
        seeds += 1;
        acquisitions += outcome.acquisitions;
        virtual_time += outcome.time;
        longest_idle = longest_idle.max(outcome.longest_idle);
        slow += u64::from(outcome.longest_idle > SLOW * outcome.node_timeout);
        for (what, count) in &outcome.counts {
            *counts.entry(what).or_default() += count;
        }
        good = outcome.violations.is_empty();
        if !good {
            complain(seed, options, &outcome);
        }
    }
    let hours = virtual_time.as_secs_f64() / 3600.0;
    println!("{seeds} seeds, {hours:.2} virtual hours, {acquisitions} acquisitions");
    if options.scene != Scene::Trouble {
        println!("longest wait for a free lock {longest_idle:?}, slow for {slow} seeds");
        if slow > seeds / 8 && options.scene == Scene::Minority {
            println!("FAILED: locks must go on without a minority of the nodes");
            good = false;
        }
    }
    for (what, count) in counts {
        println!("{count:>9} {what}");
    }
    good
}

fn complain(seed: u64, options: &Options, outcome: &Outcome) {
    println!("seed {seed} FAILED: {}", outcome.plan);
    for violation in outcome.violations.iter().take(10) {
        println!("  {violation}");
    }
    let scene = match options.scene {
        Scene::Trouble => "",
        Scene::Minority => " --minority",
        Scene::Stopped => " --stopped",
    };
    let workload = match options.workload() {
        Workload::First => " --workload 1",
        Workload::Second => " --workload 2",
        Workload::Third => " --workload 3",
        Workload::Fourth => "",
    };
    println!(
        "replay: cargo run -q --release -p redlatch-sim -- --seed {seed}{scene}{workload} --trace"
    );
}

/// The seeds that once failed.
fn replay_kept() -> bool {
    let lines = include_str!("../seeds.txt").lines();
    let lines = lines.filter_map(|line| line.split('#').next());
    let mut good = true;
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let options = read(line.split_whitespace().map(str::to_owned));
        let options = options.unwrap_or_else(|problem| panic!("seeds.txt: {line}: {problem}"));
        let seed = options.seed;
        let seed = seed.unwrap_or_else(|| panic!("seeds.txt: {line}: no seed"));
        good &= replay(seed, &options);
    }
    good
}

fn replay(seed: u64, options: &Options) -> bool {
    let planted = options.planted.first().map(|(_, planted)| *planted);
    let outcome = simulate(Setup {
        planted,
        keep_trace: options.trace,
        scene: options.scene,
        workload: options.workload(),
        ..Setup::of(seed)
    });
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("seed {seed}: {}", outcome.plan);
    println!(
        "{} acquisitions, trace {:016x}",
        outcome.acquisitions, outcome.hash
    );
    for violation in &outcome.violations {
        println!("  {violation}");
    }
    outcome.violations.is_empty()
}

/// The first seed that finds a planted mistake.
fn find(name: &str, planted: Planted, options: &Options) -> bool {
    for count in 1..=options.seeds.unwrap_or(1000) {
        let seed = options.first + count - 1;
        let outcome = simulate(Setup {
            planted: Some(planted),
            workload: options.workload(),
            ..Setup::of(seed)
        });
        if let Some(violation) = outcome.violations.first() {
            println!("{name}: found by seed {seed}, after {count} of them: {violation}");
            return true;
        }
    }
    println!("{name}: NOT found");
    false
}
