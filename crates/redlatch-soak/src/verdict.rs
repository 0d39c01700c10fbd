//! Whether what was measured is flat.

/// What is measured, and how far it may move between the second tenth of a run and the last.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    /// In percent of what it was.
    share: f64,
    /// And this much more, whatever it was.
    more: f64,
    /// Whether less is what is feared.
    pub(crate) must_not_fall: bool,
}

const fn measure(name: &'static str, share: f64, more: f64) -> Measure {
    let must_not_fall = false;
    Measure {
        name,
        share,
        more,
        must_not_fall,
    }
}

/// In the order of the numbers in a sample.
pub(crate) const MEASURES: [Measure; 12] = [
    Measure {
        must_not_fall: true,
        ..measure("acquisitions a second", 50.0, 0.0)
    },
    // What the allocator keeps moves by this much on its own: over an hour ten bytes an acquisition.
    measure("clients: resident memory, KiB", 10.0, 6144.0),
    measure("clients: tokio tasks", 15.0, 12.0),
    measure("clients: file handles", 15.0, 12.0),
    measure("clients: threads", 15.0, 6.0),
    // More for a moment after connections were killed, which can be most of a tenth of a short run.
    measure("nodes: keys", 30.0, 150.0),
    measure("nodes: keys in the tracking table", 30.0, 60.0),
    measure("nodes: memory without connections, KiB", 10.0, 768.0),
    measure("nodes: channels", 30.0, 12.0),
    measure("nodes: connections", 15.0, 12.0),
    measure("nodes: connections with tracking", 15.0, 12.0),
    measure("nodes: cached scripts", 0.0, 0.0),
];

/// All numbers at one time.
pub(crate) type Sample = [f64; MEASURES.len()];

/// How one measure came out.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The median of the second tenth: the first one is for warming up.
    pub(crate) early: f64,
    /// The median of the last tenth.
    pub(crate) late: f64,
    pub(crate) most: f64,
    pub(crate) flat: bool,
}

/// Compares the last tenth of the samples with the second one.
///
/// # Panics
///
/// With fewer than 20 samples.
pub(crate) fn judge(samples: &[Sample]) -> Vec<Row> {
    assert!(samples.len() >= 20, "a tenth needs at least two samples");
    let tenth = samples.len() / 10;
    let (early, late) = (
        &samples[tenth..2 * tenth],
        &samples[samples.len() - tenth..],
    );
    let rows = MEASURES.iter().enumerate().map(|(at, measure)| {
        let (early, late) = (median(early, at), median(late, at));
        let room = early * measure.share / 100.0 + measure.more;
        let flat = match measure.must_not_fall {
            true => late >= early - room && late > 0.0,
            false => late <= early + room,
        };
        Row {
            name: measure.name,
            early,
            late,
            most: samples.iter().map(|sample| sample[at]).fold(0.0, f64::max),
            flat,
        }
    });
    rows.collect()
}

fn median(samples: &[Sample], at: usize) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(|sample| sample[at]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(change: impl Fn(usize, &mut Sample)) -> Vec<&'static str> {
        let samples: Vec<Sample> = (0..100)
            .map(|at| {
                let mut sample = [100.0; MEASURES.len()];
                change(at, &mut sample);
                sample
            })
            .collect();
        let rows = judge(&samples);
        let grown = rows.iter().filter(|row| !row.flat);
        grown.map(|row| row.name).collect()
    }

    #[test]
    fn what_stays_is_flat() {
        assert!(run(|_, _| {}).is_empty());
    }

    #[test]
    fn what_grows_is_named() {
        for (at, measure) in MEASURES.iter().enumerate().skip(1) {
            let grown = run(|time, sample| sample[at] += (time * 100) as f64);
            assert_eq!(grown, [measure.name]);
        }
    }

    #[test]
    fn warming_up_does_not_count() {
        assert!(run(|time, sample| sample[2] = if time < 10 { 0.0 } else { 100.0 }).is_empty());
    }

    #[test]
    fn a_peak_is_no_growth() {
        assert!(run(|time, sample| sample[2] += if time % 10 == 3 { 1e6 } else { 0.0 }).is_empty());
    }

    #[test]
    fn a_run_that_comes_to_a_stop_is_not_flat() {
        let stopped = run(|time, sample| sample[0] = if time < 50 { 100.0 } else { 0.0 });
        assert_eq!(stopped, [MEASURES[0].name]);
    }
}
