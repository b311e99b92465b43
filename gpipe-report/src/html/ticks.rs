//! Ticks of an axis at round numbers, and labels that tell neighbours apart.

/// Where the ticks of an axis are, and how far apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticks {
    /// Ascending, each a multiple of the spacing.
    pub(crate) at: Vec<f64>,
    spacing: f64,
}

/// The most digits behind the point before labels are written as powers of ten.
const MOST_DECIMALS: i32 = 6;

impl Ticks {
    /// About `count` ticks from `low` to `high`, 1, 2 or 5 times a power of ten apart and at least `least`.
    pub(crate) fn new((low, high): (f64, f64), count: u32, least: f64) -> Self {
        let rough = ((high - low) / f64::from(count.max(1))).max(least);
        if !(rough > 0.0 && rough.is_finite()) {
            return Self {
                at: vec![low],
                spacing: low.abs().max(1.0),
            };
        }
        let power = 10_f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let spacing = round.into_iter().find(|&step| step >= rough * (1.0 - 1e-9));
        let spacing = spacing.unwrap_or(10.0 * power);
        let (first, last) = ((low / spacing).ceil(), (high / spacing).floor());
        let count = (last - first).clamp(0.0, 100.0) as u32;
        Self {
            at: (0..=count)
                .map(|i| (first + f64::from(i)) * spacing)
                .collect(),
            spacing,
        }
    }

    /// Ticks of a logarithmic axis between two powers of ten: at 1, 2 and 5 times a power or, over three decades
    /// and more, at powers alone.
    pub(crate) fn logarithmic((low, high): (f64, f64)) -> Vec<f64> {
        if high - low >= 3.0 {
            return Self::new((low, high), 5, 1.0).at;
        }
        let decades = low.floor() as i32..=high.ceil() as i32;
        decades
            .flat_map(|decade| [1.0_f64, 2.0, 5.0].map(|n| f64::from(decade) + n.log10()))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    }

    /// The label of a tick: with the letter of thousands, millions and so on that suits the largest, and as many
    /// digits as the spacing needs.
    pub(crate) fn label(&self, value: f64) -> String {
        let largest = self
            .at
            .iter()
            .fold(0.0_f64, |most, tick| most.max(tick.abs()));
        let (mut scale, mut letter) = (1.0, "");
        for next in ["k", "M", "G", "T", "P", "E"] {
            if largest / scale < 1000.0 {
                break;
            }
            (scale, letter) = (scale * 1000.0, next);
        }
        let decimals = (-(self.spacing / scale).log10() - 1e-9).ceil().max(0.0) as i32;
        // 0 times a spacing may be −0.
        let scaled = value / scale + 0.0;
        if decimals <= MOST_DECIMALS && largest / scale < 1000.0 {
            return format!("{scaled:.*}{letter}", decimals as usize);
        }
        let power = |value: f64| (value.log10() + 1e-9).floor();
        let digits = power(largest) - power(self.spacing);
        format!("{value:.*e}", digits.clamp(0.0, 15.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(bounds: (f64, f64), least: f64) -> Vec<String> {
        let ticks = Ticks::new(bounds, 5, least);
        ticks.at.iter().map(|&tick| ticks.label(tick)).collect()
    }

    #[test]
    fn neighbours_differ_and_are_round() {
        assert_eq!(labels((5.5833, 5.5861), 0.0), ["5.584", "5.585", "5.586"]);
        assert_eq!(
            labels((0.0, 100.0), 0.0),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(labels((-0.3, 0.3), 0.0), ["-0.2", "0.0", "0.2"]);
        assert_eq!(
            labels((12_345.0, 12_352.0), 1.0),
            ["12.346k", "12.348k", "12.350k", "12.352k"]
        );
        assert_eq!(labels((1.0, 3.0), 1.0), ["1", "2", "3"]);
        assert_eq!(labels((7.0, 7.0), 1.0), ["7"]);
        assert_eq!(labels((0.0, 3.2e-9), 0.0)[1], "1e-9");
    }

    #[test]
    fn any_bounds_have_few_ticks_with_labels_of_their_own() {
        let mut value = 1e-12;
        while value < 1e28 {
            for share in [1e-3, 0.01, 0.3, 1.0, 2.0] {
                let bounds = (value * (1.0 - share), value);
                let ticks = Ticks::new(bounds, 5, 0.0);
                let mut labels: Vec<String> = ticks.at.iter().map(|&t| ticks.label(t)).collect();
                assert!((2..=8).contains(&labels.len()), "{bounds:?}: {labels:?}");
                labels.dedup();
                assert_eq!(labels.len(), ticks.at.len(), "{bounds:?}: {labels:?}");
                assert!(
                    ticks
                        .at
                        .iter()
                        .all(|t| *t >= bounds.0 - 1e-9 * value && *t <= bounds.1 * (1.0 + 1e-9))
                );
            }
            value *= 3.7;
        }
    }

    #[test]
    fn logarithmic_ticks_lie_at_round_numbers() {
        let values = |bounds| -> Vec<f64> {
            let ticks = Ticks::logarithmic(bounds).into_iter();
            ticks.map(|tick| 10_f64.powf(tick).round()).collect()
        };
        assert_eq!(values((0.2, 1.8)), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(values((0.0, 4.0)), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
    }
}
