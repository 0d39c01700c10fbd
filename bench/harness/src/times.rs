//! Where the time of a run went.

use std::collections::BTreeMap;

use crate::measure::figure;
use crate::results::Results;

/// What cases and contenders took, and how much of it until all was ready.
pub(crate) fn table(results: &Results) -> String {
    let mut text = String::from("\nseconds, and of them until all was started and ready:\n");
    for (name, [took, starting]) in by(results, |case, _| case.to_owned()) {
        text += &format!("  {name:<22}{took:>7.1}{starting:>7.1}\n");
    }
    text.push('\n');
    for (name, [took, starting]) in by(results, |_, contender| contender.to_owned()) {
        text += &format!("  {name:<22}{took:>7.1}{starting:>7.1}\n");
    }
    text
}

/// Summed up by name, the longest first.
fn by(results: &Results, name: impl Fn(&str, &str) -> String) -> Vec<(String, [f64; 2])> {
    let mut sums: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for sample in &results.samples {
        let sum = sums
            .entry(name(&sample.case, &sample.contender))
            .or_default();
        sum[0] += sample.took;
        sum[1] += sample.figures.get(figure::STARTING).unwrap_or(&0.0);
    }
    for failure in &results.failures {
        let sum = sums
            .entry(name(&failure.case, &failure.contender))
            .or_default();
        sum[0] += failure.took;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|one, other| other.1[0].total_cmp(&one.1[0]));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figures;
    use crate::results::{Failure, Sample};

    #[test]
    fn the_longest_come_first_and_failures_count() {
        let sample = |case: &str, took, starting| Sample {
            case: case.into(),
            contender: "raw".into(),
            round: 1,
            took,
            figures: Figures::from([(figure::STARTING, starting)]),
        };
        let results = Results {
            samples: vec![
                sample("1/awake", 2.0, 0.5),
                sample("1/awake", 1.0, 0.25),
                sample("4/1x16-hold0", 3.5, 1.0),
            ],
            failures: vec![Failure {
                case: "1/awake".into(),
                contender: "raw".into(),
                took: 30.0,
                message: String::new(),
            }],
            ..Results::default()
        };
        let sums = by(&results, |case, _| case.to_owned());
        let expected = [("1/awake", [33.0, 0.75]), ("4/1x16-hold0", [3.5, 1.0])];
        assert_eq!(sums, expected.map(|(case, sum)| (case.to_owned(), sum)));
        assert!(table(&results).contains("1/awake"));
    }
}
