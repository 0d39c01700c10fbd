//! Which settings suit what was measured, and what looks wrong.

use std::time::Duration;

use redlatch::Verdict;

use super::report::short;
use super::workload::{LockFigures, NodeFigures};
use crate::duration;
use crate::settings::Settings;

/// What is said of one setting.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) setting: &'static str,
    pub(super) verdict: Verdict,
    pub(super) now: Duration,
    /// The shortest that suits, rounded up to what people write.
    pub(super) at_least: Duration,
    pub(super) reason: String,
}

/// Less is not worth the risk, however fast the nodes are: these are the defaults.
const SHORTEST_NODE_TIMEOUT: Duration = Duration::from_millis(50);
const SHORTEST_FILE_TIMEOUT: Duration = Duration::from_millis(500);
const SHORTEST_TTL: Duration = Duration::from_secs(10);

/// How many node timeouts a ttl should have room for.
const TRIES: u32 = 30;

/// How many pauses of this machine.
const PAUSES: u32 = 10;

/// How the node timeout suits the slowest node that answers.
pub(super) fn node_timeout(settings: &Settings, nodes: &[NodeFigures]) -> Option<Advice> {
    let tail = |node: &&NodeFigures| (node.answers.percentile(99), node.answers.most());
    let answered = nodes.iter().filter(|node| node.answers.count() > 0);
    let slowest = answered.max_by_key(tail)?;
    let answers = &slowest.answers;
    let floor = match settings.is_in_files() {
        true => SHORTEST_FILE_TIMEOUT,
        false => SHORTEST_NODE_TIMEOUT,
    };
    let needed = (answers.median() * 10)
        .max(answers.percentile(99) * 4)
        .max(answers.most() * 2)
        .max(floor);
    let lengths = [answers.median(), answers.percentile(99), answers.most()];
    let [median, tail, most] = lengths.map(short);
    let (node, count) = (&slowest.node, answers.count());
    Some(Advice {
        setting: "node_timeout",
        reason: format!(
            "{node} is the slowest: p50 {median}, p99 {tail}, the longest of {count} answers \
             {most}; there should be room for 10, 4 and 2 times as long, and no less than {}",
            duration::format(floor)
        ),
        ..Advice::new(settings.node_timeout.value, needed, answers.percentile(99))
    })
}

/// How the ttl suits a node timeout, and the pauses of this machine.
pub(super) fn ttl(settings: &Settings, node_timeout: Duration, pause: Duration) -> Advice {
    let needed = (node_timeout * TRIES).max(pause * PAUSES).max(SHORTEST_TTL);
    let too_short = (node_timeout * 3).max(pause * 2);
    let advice = Advice::new(settings.ttl.value, needed, too_short);
    let mut reason = format!(
        "it is renewed at a third, and what is left must outlast nodes that are away: there should \
         be room for {TRIES} node timeouts of {}, for {PAUSES} times the longest pause of this \
         machine, {}, and no less than {}",
        duration::format(node_timeout),
        short(pause),
        duration::format(SHORTEST_TTL),
    );
    let most = settings.max_ttl.value;
    if settings.is_guarded() && advice.at_least > most {
        let most = duration::format(most);
        reason.push_str(&format!(
            "; max_ttl is {most}: raise that first, on the whole deployment"
        ));
    }
    Advice {
        setting: "ttl",
        reason,
        ..advice
    }
}

impl Advice {
    fn new(now: Duration, needed: Duration, too_short: Duration) -> Self {
        let verdict = match () {
            () if now <= too_short => Verdict::Bad,
            () if now < needed => Verdict::Warning,
            () => Verdict::Good,
        };
        // What is enough is not said to be too little because of the rounding.
        let at_least = match now >= needed {
            true => round(needed).min(now),
            false => round(needed),
        };
        Self {
            setting: "",
            verdict,
            now,
            at_least,
            reason: String::new(),
        }
    }
}

/// What looks wrong, whatever the settings are.
pub(super) fn warnings(nodes: &[NodeFigures], locks: &[LockFigures]) -> Vec<String> {
    let mut warnings = Vec::new();
    for node in nodes {
        if let Some(error) = &node.error {
            let asked = node.answers.count() + node.failures;
            warnings.push(match node.answers.count() {
                0 => format!("{} did not answer once: {error}", node.node),
                _ => format!(
                    "{} gave no answer {} times of {asked}: {error}",
                    node.node, node.failures
                ),
            });
        }
        warnings.extend(slower(node, nodes));
        if let Some(ahead) = node.clock_ahead.filter(|ahead| ahead.abs() >= 1000) {
            warnings.push(format!(
                "the clock of {} is {} s {} this machine's: let NTP set both, see `redlatch doctor`",
                node.node,
                ahead.abs() / 1000,
                if ahead > 0 { "ahead of" } else { "behind" },
            ));
        }
    }
    for figures in locks.iter().filter(|figures| figures.failures > 0) {
        let tried = figures.cycles.count() + figures.failures;
        let why = figures.error.as_ref().map(ToString::to_string);
        warnings.push(format!(
            "{} of {tried} locks failed ({}): {}",
            figures.failures,
            figures.workload.name(),
            why.unwrap_or("what an earlier one left behind was not gone yet".into()),
        ));
    }
    warnings
}

/// Whether a node is much slower than the others.
fn slower(node: &NodeFigures, nodes: &[NodeFigures]) -> Option<String> {
    let others = nodes.iter().filter(|other| other.node != node.node);
    let mut others: Vec<Duration> = others
        .filter(|other| other.answers.count() > 0)
        .map(|other| other.answers.median())
        .collect();
    others.sort();
    let usual = *others.get(others.len() / 2)?;
    let own = node.answers.median();
    (own > usual * 5 && own - usual > Duration::from_millis(1)).then(|| {
        let [own, usual] = [own, usual].map(short);
        format!(
            "{} takes {own} for an answer, the others {usual}: locks don't wait for it while the \
             others are well, and are as slow as it is when one of them is not",
            node.node
        )
    })
}

/// The next length that people write: 1, 1.5, 2, 3 or 5 times a power of ten.
fn round(length: Duration) -> Duration {
    let millis = u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    let mut steps =
        powers.flat_map(|power| [10, 15, 20, 30, 50].map(|step| power.saturating_mul(step)));
    // From a minute on, in minutes.
    let rounded = match millis {
        0..=50_000 => steps.find(|step| *step >= millis).unwrap_or(millis),
        _ => millis.div_ceil(60_000).saturating_mul(60_000),
    };
    Duration::from_millis(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::GlobalArgs;

    fn settings() -> Settings {
        let args = GlobalArgs {
            nodes: vec!["redis://a".into(), "redis://b".into()],
            ..GlobalArgs::default()
        };
        let mut settings = Settings::resolve(&args).unwrap();
        // Whatever is set on this machine.
        settings.node_timeout.value = Duration::from_millis(50);
        settings.ttl.value = Duration::from_secs(30);
        settings.max_ttl.value = Duration::from_secs(60);
        settings.restart_guard.value = None;
        settings
    }

    /// A node that answers so fast: a hundred times, and one time more.
    fn node(name: &str, usual: u64, longest: u64) -> NodeFigures {
        let mut figures = NodeFigures::new(name);
        for _ in 0..99 {
            figures.answers.add(Duration::from_micros(usual));
        }
        figures.answers.add(Duration::from_micros(longest));
        figures
    }

    #[test]
    fn the_slowest_node_decides_on_the_node_timeout() {
        for (usual, longest, verdict, millis) in [
            (200, 900, Verdict::Good, 50),
            (200, 24_000, Verdict::Good, 50),
            (200, 26_000, Verdict::Warning, 100),
            (10_000, 10_000, Verdict::Warning, 100),
            (50_001, 50_001, Verdict::Bad, 1000),
        ] {
            let nodes = [node("a", 100, 100), node("b", usual, longest)];
            let advice = node_timeout(&settings(), &nodes).unwrap();
            assert_eq!(advice.verdict, verdict, "{advice:?}");
            assert_eq!(advice.at_least, Duration::from_millis(millis), "{advice:?}");
            assert!(advice.reason.starts_with("b is the slowest"), "{advice:?}");
        }
        let silent = [NodeFigures::new("a")];
        assert!(node_timeout(&settings(), &silent).is_none());
    }

    #[test]
    fn the_ttl_has_room_for_tries_and_for_pauses() {
        for (node_timeout, pause, verdict, seconds) in [
            (50, 1, Verdict::Good, 10),
            (500, 1, Verdict::Good, 15),
            (1000, 1, Verdict::Good, 30),
            (1500, 1, Verdict::Warning, 50),
            (50, 4000, Verdict::Warning, 50),
            (50, 16_000, Verdict::Bad, 180),
            (10_000, 1, Verdict::Bad, 300),
        ] {
            let [node_timeout, pause] = [node_timeout, pause].map(Duration::from_millis);
            let advice = ttl(&settings(), node_timeout, pause);
            assert_eq!(advice.verdict, verdict, "{advice:?}");
            assert_eq!(advice.at_least, Duration::from_secs(seconds), "{advice:?}");
            let is_beyond = advice.reason.contains("raise that first");
            assert_eq!(is_beyond, seconds > 60, "{advice:?}");
        }
    }

    #[test]
    fn a_slow_node_and_a_wrong_clock_are_told() {
        let well = [
            node("a", 200, 300),
            node("b", 300, 900),
            node("c", 250, 9000),
        ];
        assert!(warnings(&well, &[]).is_empty());
        let mut odd = [
            node("a", 200, 300),
            node("b", 300, 900),
            node("c", 9000, 9000),
        ];
        odd[1].clock_ahead = Some(-61_000);
        let warnings = warnings(&odd, &[]);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("the clock of b is 61 s behind"));
        assert!(warnings[1].starts_with("c takes 9.0"), "{warnings:?}");
        // A few microseconds are nothing.
        let near = [node("a", 20, 20), node("b", 200, 200)];
        assert!(super::warnings(&near, &[]).is_empty());
    }

    #[test]
    fn lengths_are_rounded_up_to_what_people_write() {
        for (millis, rounded) in [(1, 10), (50, 50), (51, 100), (160, 200), (50_000, 50_000)] {
            let rounded = Duration::from_millis(rounded);
            assert_eq!(round(Duration::from_millis(millis)), rounded);
        }
        assert_eq!(round(Duration::from_secs(61)), Duration::from_secs(120));
    }
}
