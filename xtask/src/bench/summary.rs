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

/// By how much large numbers are scaled down, so that no digit is lost, and its logarithm to the base 2.
const SCALE: f64 = (1u128 << SCALE_HALVINGS) as f64;
const SCALE_HALVINGS: usize = 100;

/// The median, and the narrowest interval between order statistics that covers it with 90 % of
/// certainty whatever the distribution (the sign test's); least and most of fewer than five.
pub fn median_interval(numbers: &[f64]) -> Option<[f64; 3]> {
    let median = Summary::of(numbers)?.median;
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // How likely exactly and at most `left_out` of `count` numbers lie below the median, times 2^`halvings`: in itself
    // it is too small for a float at first.
    let (mut left_out, mut halvings) = (0, count);
    let (mut chance, mut below) = (1.0, 1.0);
    loop {
        chance *= (count - left_out) as f64 / (left_out + 1) as f64;
        below += chance;
        if below > 0.05 * 2f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX)) {
            break;
        }
        left_out += 1;
        if below > SCALE {
            chance /= SCALE;
            below /= SCALE;
            halvings -= SCALE_HALVINGS;
        }
    }
    Some([median, sorted[left_out], sorted[count - 1 - left_out]])
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

    #[test]
    fn the_interval_leaves_out_what_90_percent_allow() {
        let interval = |count: u32| {
            let numbers = Vec::from_iter((1..=count).rev().map(f64::from));
            median_interval(&numbers).unwrap()
        };
        assert_eq!(interval(1), [1.0, 1.0, 1.0]);
        assert_eq!(interval(3), [2.0, 1.0, 3.0]);
        // Tables of the sign test at 90 %: one of 8, two of 11, five of 20.
        assert_eq!(interval(7), [4.0, 1.0, 7.0]);
        assert_eq!(interval(8), [4.5, 2.0, 7.0]);
        assert_eq!(interval(11), [6.0, 3.0, 9.0]);
        assert_eq!(interval(20), [10.5, 6.0, 15.0]);
        assert_eq!(median_interval(&[]), None);
    }

    /// 2^-1,075 is no float. The numbers that are left out are those of exact fractions.
    #[test]
    fn the_interval_of_many_numbers_is_as_narrow_as_that_of_few() {
        for (count, left_out) in [
            (1000, 473),
            (1074, 509),
            (1075, 510),
            (1076, 510),
            (1500, 717),
            (2000, 962),
            (10_000, 4917),
        ] {
            let numbers = Vec::from_iter((1..=count).map(f64::from));
            let [_, least, most] = median_interval(&numbers).unwrap();
            let wanted = [left_out + 1, count - left_out].map(f64::from);
            assert_eq!([least, most], wanted, "of {count}");
        }
    }
}
