//! What is said of a list of times.

/// Seconds of one step, over several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The middle one (the mean of the two middle ones).
    pub median: f64,
    /// The fastest.
    pub min: f64,
    /// How far the middle half reaches, as a share of the median.
    pub spread: f64,
    /// How many there are.
    pub count: usize,
}

impl Summary {
    /// `None` of nothing, or where a time is no number.
    pub fn of(seconds: &[f64]) -> Option<Self> {
        if seconds.is_empty() || seconds.iter().any(|time| time.is_nan()) {
            return None;
        }
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5);
        Some(Self {
            median,
            min: sorted[0],
            spread: (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / median,
            count: sorted.len(),
        })
    }
}

/// Between the two nearest ranks, linearly.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() - 1) as f64;
    let (below, above) = (rank.floor() as usize, rank.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_minimum_and_spread() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.count), (3.0, 1.0, 5));
        assert_eq!(summary.spread, (4.0 - 2.0) / 3.0);
        assert_eq!(Summary::of(&[1.0, 4.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[7.0]).unwrap().spread, 0.0);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }
}
