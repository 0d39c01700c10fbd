//! The arithmetic: medians, percentiles, shares.

/// What came of the rounds: their median, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    /// `None` where there is nothing to sum up.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Self { median, low, high })
    }
}

/// The least of the values that `percent` of them do not exceed; `sorted` is.
pub(crate) fn percentile(sorted: &[u64], percent: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}

/// The smallest and the largest share, where 1 is what would be fair.
pub(crate) fn shares(counts: &[u64]) -> Option<(f64, f64)> {
    let fair = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    (fair > 0.0).then(|| (least as f64 / fair, most as f64 / fair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        let summary = |values| Summary::of(values).map(|sum| (sum.low, sum.median, sum.high));
        assert_eq!(summary(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(summary(&[4.0, 1.0, 2.0, 3.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(summary(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50.0), Some(50));
        assert_eq!(percentile(&hundred, 99.0), Some(99));
        assert_eq!(percentile(&hundred, 100.0), Some(100));
        assert_eq!(percentile(&hundred, 0.0), Some(1));
        assert_eq!(percentile(&[5, 9], 99.0), Some(9));
        assert_eq!(percentile(&[5], 1.0), Some(5));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn shares_are_of_what_would_be_fair() {
        assert_eq!(shares(&[10, 10, 10, 10]), Some((1.0, 1.0)));
        assert_eq!(shares(&[5, 15]), Some((0.5, 1.5)));
        assert_eq!(shares(&[0, 30]), Some((0.0, 2.0)));
        assert_eq!(shares(&[0, 0]), None);
        assert_eq!(shares(&[]), None);
    }
}
