//! What was found, as it is kept and written.

use std::path::Path;

use serde_json::{Value, json};

use crate::measure::{Figures, figure};
use crate::stats::Summary;

/// All that a run found out.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Where and with what it was measured: names and values.
    pub(crate) setting: Vec<(String, String)>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) failures: Vec<Failure>,
    /// Contenders that could not be prepared, and why.
    pub(crate) left_out: Vec<(String, String)>,
}

/// One contender, one case, one round.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) case: String,
    pub(crate) contender: String,
    pub(crate) figures: Figures,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) case: String,
    pub(crate) contender: String,
    pub(crate) message: String,
}

impl Results {
    /// The rounds of one contender in one case, summed up.
    pub(crate) fn summary(&self, case: &str, contender: &str, figure: &str) -> Option<Summary> {
        let ours = |sample: &&Sample| sample.case == case && sample.contender == contender;
        let samples = self.samples.iter().filter(ours);
        let values: Vec<f64> = samples
            .filter_map(|sample| sample.figures.get(figure).copied())
            .collect();
        Summary::of(&values)
    }

    pub(crate) fn median(&self, case: &str, contender: &str, figure: &str) -> Option<f64> {
        let summary = self.summary(case, contender, figure)?;
        Some(summary.median)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::write(path, format!("{:#}\n", self.json())).map_err(failed)
    }

    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let json = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
        Self::parse(&json).ok_or_else(|| named("it was not written by --json".to_owned()))
    }

    fn json(&self) -> Value {
        let pairs = |pairs: &[(String, String)]| -> Value {
            let pair = |(name, text): &(String, String)| json!([name, text]);
            pairs.iter().map(pair).collect()
        };
        let sample = |sample: &Sample| {
            let Sample {
                case,
                contender,
                figures,
            } = sample;
            json!({ "case": case, "contender": contender, "figures": figures })
        };
        let failure = |failure: &Failure| {
            let Failure {
                case,
                contender,
                message,
            } = failure;
            json!({ "case": case, "contender": contender, "message": message })
        };
        json!({
            "setting": pairs(&self.setting),
            "samples": self.samples.iter().map(sample).collect::<Value>(),
            "failures": self.failures.iter().map(failure).collect::<Value>(),
            "left_out": pairs(&self.left_out),
        })
    }

    fn parse(json: &Value) -> Option<Self> {
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let pairs = |name: &str| -> Option<Vec<(String, String)>> {
            let pair = |pair: &Value| Some((text(&pair[0])?, text(&pair[1])?));
            json[name].as_array()?.iter().map(pair).collect()
        };
        let sample = |sample: &Value| {
            let figure = |name: &&'static str| Some((*name, sample["figures"][*name].as_f64()?));
            Some(Sample {
                case: text(&sample["case"])?,
                contender: text(&sample["contender"])?,
                figures: figure::ALL.iter().filter_map(figure).collect(),
            })
        };
        let failure = |failure: &Value| {
            Some(Failure {
                case: text(&failure["case"])?,
                contender: text(&failure["contender"])?,
                message: text(&failure["message"])?,
            })
        };
        Some(Self {
            setting: pairs("setting")?,
            samples: json["samples"]
                .as_array()?
                .iter()
                .map(sample)
                .collect::<Option<_>>()?,
            failures: json["failures"]
                .as_array()?
                .iter()
                .map(failure)
                .collect::<Option<_>>()?,
            left_out: pairs("left_out")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let sample = |contender: &str, rate: f64| Sample {
            case: "1/as-is".to_owned(),
            contender: contender.to_owned(),
            figures: Figures::from([(figure::RATE, rate)]),
        };
        Results {
            setting: vec![("Kernel".into(), "6".into())],
            samples: vec![sample("raw", 3.0), sample("raw", 1.0), sample("other", 9.0)],
            failures: vec![Failure {
                case: "3/64".into(),
                contender: "other".into(),
                message: "one node only".into(),
            }],
            left_out: vec![("php-loop".into(), "php is missing".into())],
        }
    }

    #[test]
    fn summaries_are_of_one_contender_in_one_case() {
        let results = results();
        assert_eq!(results.median("1/as-is", "raw", figure::RATE), Some(2.0));
        assert_eq!(results.median("1/awake", "raw", figure::RATE), None);
        assert_eq!(results.median("1/as-is", "raw", figure::HELD), None);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let written = results();
        let read = Results::parse(&written.json()).expect("it was just written");
        assert_eq!(format!("{written:?}"), format!("{read:?}"));
        assert!(Results::parse(&serde_json::json!({})).is_none());
    }

    #[test]
    fn every_figure_has_a_name_of_its_own() {
        let mut names = figure::ALL.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), figure::ALL.len());
    }
}
