//! From FLOPs to seconds: what the simulator reads.

use std::ops::Range;

use gpipe_layers::Cost;
use gpipe_sched::{Costs, Schedule, StageCosts};

use crate::{Kept, ModelCosts, Table};

/// The simulator's costs of a model under a cut and a table, on devices that compute
/// `flops_per_second` each. Transfers are taken to be free.
pub fn simulator_costs(
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    table: &Table,
    flops_per_second: f64,
) -> Costs {
    // Micro-batches differ by one sample at most; times are those of the first, the largest.
    let seconds = |part: &Range<usize>, flops: fn(&Cost) -> u64| {
        let total: f64 = costs.of(0)[part.clone()]
            .iter()
            .map(|cost| flops(cost) as f64)
            .sum();
        total / flops_per_second
    };
    let stages = cut.iter().enumerate().map(|(stage, part)| {
        let forward = seconds(part, |cost| cost.forward);
        // Nobody wants the gradient of the model's input.
        let wanted = part.start.max(1)..part.end.max(1);
        StageCosts {
            forward,
            input_grad: seconds(&wanted, |cost| cost.input_grad),
            weight_grad: seconds(part, |cost| cost.weight_grad),
            recompute: again(table, stage, part)
                .map(|layer| costs.of(0)[layer].forward as f64)
                .sum::<f64>()
                / flops_per_second,
        }
    });
    let largest = costs.samples(0) as f64;
    let micro_batches = schedule.micro_batches();
    let sizes = (0..micro_batches).map(|m| costs.samples(m) as f64 / largest);
    Costs::new(stages.collect())
        .with_sizes(sizes.collect())
        .with_recompute(micro_batches, |stage, m| {
            *table.kept(stage, m) != Kept::Everything
        })
}

/// The layers of a stage that are computed again, where anything is: the same for every
/// micro-batch of which not all is kept.
fn again<'a>(
    table: &'a Table,
    stage: usize,
    part: &Range<usize>,
) -> impl Iterator<Item = usize> + use<'a> {
    let start = part.start;
    let cells = table.of_stage(stage).iter();
    let forgetting = cells.filter(|kept| **kept != Kept::Everything);
    let runs = forgetting.take(1).flat_map({
        let layers = part.len();
        move |kept| kept.runs(layers)
    });
    runs.filter(|run| !run.kept)
        .flat_map(move |run| start + run.layers.start..start + run.layers.end)
}
