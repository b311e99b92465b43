//! What a cut costs, beside the best cut.

use std::fmt;
use std::ops::Range;

use crate::oracle::{Prefix, ROUNDS, bottleneck};
use crate::search::least_bottleneck;
use crate::{Error, Partition, Result};

/// The cost of each stage of a [`Partition`], and how far the worst is from the optimum.
///
/// Displayed as a table with one line a stage and a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    loads: Vec<u64>,
    ranges: Vec<Range<usize>>,
    optimum: u64,
}

impl Partition {
    /// What each stage costs, given what each layer costs, and what the best cut would cost.
    ///
    /// # Errors
    /// If there is not one cost for each layer, or if they add up to more than a `u64` holds.
    pub fn loads(&self, costs: &[u64]) -> Result<Loads> {
        Loads::new(self, costs)
    }

    /// [`loads`](Self::loads) where the cost of a run of layers depends on the stage, as in
    /// [`balance_parts`](crate::balance_parts).
    #[must_use]
    pub fn loads_by(&self, cost: impl Fn(usize, Range<usize>) -> u64) -> Loads {
        let ranges = self.ranges().enumerate();
        let loads: Vec<u64> = ranges.map(|(part, range)| cost(part, range)).collect();
        let of = |part: usize, range| Some(cost(part, range));
        let best = least_bottleneck(0..self.layers(), self.parts(), 0, ROUNDS, of);
        let here = loads.iter().copied().max().unwrap_or(0);
        Loads {
            ranges: self.ranges().collect(),
            optimum: best.map_or(here, |(_, best)| best),
            loads,
        }
    }
}

impl Loads {
    fn new(partition: &Partition, costs: &[u64]) -> Result<Self> {
        if costs.len() != partition.layers() {
            return Err(Error::CostCount {
                costs: costs.len(),
                layers: partition.layers(),
                partition: partition.to_string(),
            });
        }
        let prefix = Prefix::new(costs)?;
        Ok(Self {
            loads: partition.ranges().map(|range| prefix.cost(range)).collect(),
            ranges: partition.ranges().collect(),
            optimum: bottleneck(costs.len(), partition.parts(), |range| {
                Some(prefix.cost(range))
            })?,
        })
    }

    /// The cost of each stage.
    #[must_use]
    pub fn loads(&self) -> &[u64] {
        &self.loads
    }

    /// The cost of the most expensive stage: the time between two micro-batches when the pipeline is full.
    #[must_use]
    pub fn bottleneck(&self) -> u64 {
        self.loads.iter().copied().max().unwrap_or(0)
    }

    /// The least bottleneck of any cut into as many contiguous stages.
    #[must_use]
    pub fn optimum(&self) -> u64 {
        self.optimum
    }

    /// Bottleneck over mean load: 1 where all stages cost the same (or nothing).
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let total: u128 = self.loads.iter().map(|&load| u128::from(load)).sum();
        ratio(self.bottleneck(), total as f64 / self.loads.len() as f64)
    }

    /// Bottleneck over [`optimum`](Self::optimum): 1 where no contiguous cut is better.
    #[must_use]
    pub fn over_optimum(&self) -> f64 {
        ratio(self.bottleneck(), self.optimum as f64)
    }
}

/// A quotient of loads; two loads of nothing are equal.
fn ratio(load: u64, reference: f64) -> f64 {
    if load == 0 {
        1.0
    } else {
        load as f64 / reference
    }
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bottleneck = self.bottleneck();
        let width = bottleneck.to_string().len().max("load".len());
        writeln!(f, "{:>5}  {:>13}  {:>width$}", "stage", "layers", "load")?;
        for (stage, (range, load)) in self.ranges.iter().zip(&self.loads).enumerate() {
            let layers = format!("{}..{}", range.start, range.end);
            let mark = if *load == bottleneck { "  <" } else { "" };
            writeln!(f, "{stage:>5}  {layers:>13}  {load:>width$}{mark}")?;
        }
        write!(
            f,
            "bottleneck {bottleneck}: {:.4} times the mean, {:.4} times the optimum of {}",
            self.imbalance(),
            self.over_optimum(),
            self.optimum
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::explicit;

    #[test]
    fn loads_are_compared_with_mean_and_optimum() {
        let costs = [10, 40, 30, 10, 20, 50, 10];
        let loads = explicit(&[3, 2, 2], 7).unwrap().loads(&costs).unwrap();
        assert_eq!(loads.loads(), [80, 30, 60]);
        assert_eq!((loads.bottleneck(), loads.optimum()), (80, 60));
        assert_eq!(loads.imbalance(), 80.0 / (170.0 / 3.0));
        assert_eq!(loads.over_optimum(), 80.0 / 60.0);
        assert_eq!(
            loads.to_string(),
            "stage         layers  load\n\
             \u{20}   0           0..3    80  <\n\
             \u{20}   1           3..5    30\n\
             \u{20}   2           5..7    60\n\
             bottleneck 80: 1.4118 times the mean, 1.3333 times the optimum of 60"
        );
    }

    #[test]
    fn free_layers_are_balanced() {
        let loads = explicit(&[1, 3], 4).unwrap().loads(&[0; 4]).unwrap();
        assert_eq!((loads.imbalance(), loads.over_optimum()), (1.0, 1.0));
    }

    #[test]
    fn the_number_of_costs_must_fit() {
        let error = explicit(&[1, 3], 4).unwrap().loads(&[1; 5]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "5 costs for the 4 layers of 1,3: give one a layer"
        );
    }
}
