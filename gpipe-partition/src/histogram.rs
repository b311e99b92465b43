//! The rule of Lingvo's `PartitionSequentialLayers`, float for float.
//!
//! Each layer goes where its end falls on the axis of accumulated cost:
//!
//! ```text
//! costs    10   40   30  10  20   50    10
//! end      10   50   80  90  110  160  170      of a total of 170
//! end·3/170  0.2  0.9  1.4 1.6 1.9  2.8  3.0
//! stage    0    0    1   1   1    2     2       the last one capped
//! ```
//!
//! A layer that crosses a boundary belongs to the later stage, so the first stage tends to get too
//! little and the last too much: `n` equal layers over `k` stages give `n/k − 1` and `n/k + 1`.

use crate::error::check_counts;
use crate::{Error, Partition, Result};

/// Cuts by Lingvo's rule, in its arithmetic: running sums, a division by the total and a
/// multiplication by the number of stages, all in `f64`. Exact fractions would cut some uniform
/// models elsewhere (22 equal layers over 22 stages, for one).
///
/// Lingvo adds up integers without bound; sums beyond 2⁵³ are rounded here.
///
/// # Errors
/// If a cost is negative or not finite, if the total is 0 or not finite, or if a stage is left
/// without a layer (where Lingvo builds an empty stage).
pub fn histogram(costs: &[f64], parts: usize) -> Result<Partition> {
    let assignment = histogram_assignment(costs, parts)?;
    let mut ends = vec![0; parts];
    for (layer, &part) in assignment.iter().enumerate() {
        ends[part] = layer + 1;
    }
    match ends.iter().position(|&end| end == 0) {
        Some(part) => Err(Error::EmptyPart { part, parts }),
        None => Ok(Partition::from_ends(ends)),
    }
}

/// The stage that Lingvo's rule gives each layer. Stages may be left out.
///
/// # Errors
/// As [`histogram`], but for stages without a layer.
pub fn histogram_assignment(costs: &[f64], parts: usize) -> Result<Vec<usize>> {
    check_counts(costs.len(), parts)?;
    let shares = accumulated_shares(costs)?;
    // `as` truncates as Python's `int` does; shares lie between 0 and 1.
    let stage = |share: f64| ((share * parts as f64) as usize).min(parts - 1);
    Ok(shares.into_iter().map(stage).collect())
}

/// The shares of the total cost that Lingvo writes to its log for each stage.
///
/// They are wrong where a stage is empty, because a boundary is noted only when the first layer of
/// the stage after it arrives; and with an empty first stage Lingvo looks up the layer before the
/// first and finds the last. Kept as it is, for comparison with its logs.
///
/// # Errors
/// As [`histogram_assignment`].
pub fn lingvo_logged_costs(costs: &[f64], parts: usize) -> Result<Vec<f64>> {
    let assignment = histogram_assignment(costs, parts)?;
    let shares = accumulated_shares(costs)?;
    let mut logged = vec![0.0; parts];
    let mut mark = 0.0;
    let mut current = 0;
    for (layer, &part) in assignment.iter().enumerate() {
        if part > current {
            // Python's index −1 is the last element.
            let before = shares[layer.checked_sub(1).unwrap_or(shares.len() - 1)];
            logged[part - 1] = before - mark;
            mark = before;
            current = part;
        }
    }
    logged[parts - 1] = 1.0 - mark;
    Ok(logged)
}

/// The cost of the layers up to and with each one, as shares of the total.
fn accumulated_shares(costs: &[f64]) -> Result<Vec<f64>> {
    let mut total = 0.0;
    let mut ends = Vec::with_capacity(costs.len());
    for (layer, &cost) in costs.iter().enumerate() {
        if !cost.is_finite() || cost < 0.0 {
            return Err(Error::BadCost { layer, cost });
        }
        total += cost;
        if total == f64::INFINITY {
            return Err(Error::Overflow {
                layer,
                limit: f64::MAX,
            });
        }
        ends.push(total);
    }
    if total == 0.0 {
        return Err(Error::ZeroTotal);
    }
    Ok(ends.into_iter().map(|end| end / total).collect())
}
