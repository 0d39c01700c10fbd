//! What was found, as it is kept and written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::{Figures, figure};
use crate::settings::Scope;
use crate::stats::Summary;

/// All that a run found out.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// What was asked for; files from before it was kept do not say.
    pub(crate) scope: Option<Scope>,
    /// Whether all of that was measured.
    pub(crate) complete: bool,
    /// Where and with what it was measured: names and values.
    pub(crate) setting: Vec<(String, String)>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) failures: Vec<Failure>,
    /// Contenders that could not be prepared, and why.
    pub(crate) left_out: Vec<(String, String)>,
}

/// One contender, one case, one round.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) case: String,
    pub(crate) contender: String,
    /// From 1; 0 where it was not kept.
    pub(crate) round: usize,
    /// How long it took, in seconds, with all that is started for it.
    pub(crate) took: f64,
    pub(crate) figures: Figures,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) case: String,
    pub(crate) contender: String,
    pub(crate) took: f64,
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

    /// In how many rounds a case was measured.
    pub(crate) fn rounds(&self, case: &str) -> usize {
        let samples = self.samples.iter().filter(|sample| sample.case == case);
        samples.map(|sample| sample.round).max().unwrap_or(0)
    }

    /// Whether there is a figure of this contender, case and round.
    pub(crate) fn has(&self, case: &str, contender: &str, round: usize) -> bool {
        self.samples.iter().any(|sample| {
            sample.case == case && sample.contender == contender && sample.round == round
        })
    }

    /// How long all of it took.
    pub(crate) fn took(&self) -> Duration {
        let samples = self.samples.iter().map(|sample| sample.took);
        let failures = self.failures.iter().map(|failure| failure.took);
        Duration::from_secs_f64(samples.chain(failures).sum())
    }

    /// Writes all of it in one step: whoever is killed meanwhile leaves the file
    /// as it was before.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        fs::write(&new, format!("{:#}\n", self.json())).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    }

    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let json = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
        Self::parse(&json).ok_or_else(|| named("these are not the figures of a run".to_owned()))
    }

    fn json(&self) -> Value {
        let pairs = |pairs: &[(String, String)]| -> Value {
            let pair = |(name, text): &(String, String)| json!([name, text]);
            pairs.iter().map(pair).collect()
        };
        let sample = |sample: &Sample| {
            json!({
                "case": sample.case,
                "contender": sample.contender,
                "round": sample.round,
                "took_s": sample.took,
                "figures": sample.figures,
            })
        };
        let failure = |failure: &Failure| {
            json!({
                "case": failure.case,
                "contender": failure.contender,
                "took_s": failure.took,
                "message": failure.message,
            })
        };
        json!({
            "scope": self.scope.as_ref().map(Scope::json),
            "complete": self.complete,
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
                round: sample["round"].as_u64().unwrap_or(0) as usize,
                took: sample["took_s"].as_f64().unwrap_or(0.0),
                figures: figure::ALL.iter().filter_map(figure).collect(),
            })
        };
        let failure = |failure: &Value| {
            Some(Failure {
                case: text(&failure["case"])?,
                contender: text(&failure["contender"])?,
                took: failure["took_s"].as_f64().unwrap_or(0.0),
                message: text(&failure["message"])?,
            })
        };
        Some(Self {
            scope: Scope::read(&json["scope"]),
            complete: json["complete"].as_bool().unwrap_or(true),
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
        let sample = |contender: &str, round: usize, rate: f64| Sample {
            case: "1/as-is".to_owned(),
            contender: contender.to_owned(),
            round,
            took: 1.5,
            figures: Figures::from([(figure::RATE, rate)]),
        };
        Results {
            scope: Some(Scope {
                quick: false,
                only: Some(vec![1, 3]),
                contenders: None,
                rounds: 2,
                seconds: 0.5,
            }),
            complete: true,
            setting: vec![("Kernel".into(), "6".into())],
            samples: vec![
                sample("raw", 1, 3.0),
                sample("raw", 2, 1.0),
                sample("other", 1, 9.0),
            ],
            failures: vec![Failure {
                case: "3/64".into(),
                contender: "other".into(),
                took: 0.5,
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
        assert_eq!(
            (results.rounds("1/as-is"), results.rounds("1/awake")),
            (2, 0)
        );
    }

    #[test]
    fn what_is_written_can_be_read() {
        let written = results();
        let read = Results::parse(&written.json()).expect("it was just written");
        assert_eq!(format!("{written:?}"), format!("{read:?}"));
        assert!(Results::parse(&serde_json::json!({})).is_none());
        assert!(read.has("1/as-is", "raw", 2) && !read.has("1/as-is", "other", 2));
        assert_eq!(read.took(), Duration::from_secs(5));
    }

    #[test]
    fn a_file_is_replaced_in_one_step() {
        let directory = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("figures.json");
        results().write(&path).expect("it is written");
        // Somebody who reads meanwhile has the old ones: they are not touched.
        let old = fs::File::open(&path).expect("it is there");
        let mut results = results();
        results.samples.clear();
        results.write(&path).expect("it is written again");
        let old = std::io::read_to_string(old).expect("it can be read");
        let old = serde_json::from_str(&old).expect("it is whole");
        assert_eq!(Results::parse(&old).map(|old| old.samples.len()), Some(3));
        let new = Results::read(&path).expect("it is whole");
        assert!(new.samples.is_empty());
        let left = fs::read_dir(&directory).expect("a directory").count();
        assert_eq!(left, 1, "nothing is left beside it");
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn every_figure_has_a_name_of_its_own() {
        let mut names = figure::ALL.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), figure::ALL.len());
    }
}
