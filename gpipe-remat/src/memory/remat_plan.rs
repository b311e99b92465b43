//! Rematerialization plan: the tensors that each stage keeps of each micro-batch.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use gpipe_sched::{Action, Groups, Op, Schedule};

use super::budget;
use crate::{Error, ModelCosts, ParameterBytes, Policy, Portals, Result, Retained};

/// The tensors that each stage keeps of each micro-batch, decided by a policy and a schedule, and the groups
/// of micro-batches whose gradients it sums. The stages, the memory prediction and the simulator read
/// the same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RematPlan {
    micro_batches: usize,
    /// Samples of the batch that the plan was made for, if it was made from costs.
    samples: Option<usize>,
    cells: Vec<Retained>,
    groups: Groups,
    before: usize,
    /// Whether replicas divide the optimizer states among them.
    shards_optimizer: bool,
    portals: Arc<Portals>,
    /// Of each stage; none where every stage but the first sends gradients back.
    gradients_end: Vec<Option<usize>>,
}

impl RematPlan {
    /// The plan of `policy` for a model with these parameter bytes and costs under this cut.
    ///
    /// Where a stage's forward pass is directly followed by the backward pass of the same micro-batch
    /// (1F1B's last stage), recomputation would save nothing: everything is kept. Under a budget, the
    /// choice is made per stage, from the bytes.
    ///
    /// # Errors
    /// [`Error::Assembly`] if the parts do not fit each other: weights and costs of other numbers of layers, a cut that is
    /// none of these layers, or a schedule of other numbers of stages and micro-batches. [`Error::Budget`] if a stage does
    /// not fit the budget whatever it keeps.
    pub fn new(
        policy: Policy,
        weights: &ParameterBytes,
        costs: &ModelCosts,
        cut: &[Range<usize>],
        schedule: &Schedule,
    ) -> Result<Self> {
        budget::check_parts(weights, costs, cut, schedule)?;
        let portals = Portals::new(costs, cut);
        if let Policy::Budget(limit) = policy {
            if costs.before() > 0 {
                return Err(Error::Assembly(
                    "a budget does not count layers before the pipeline: use another policy, such as `stage`".into(),
                ));
            }
            let stages = budget::stages(weights, costs, cut, schedule, limit)?;
            let plan = Self::of_stages(stages, schedule.micro_batches());
            let plan = plan.with_samples(costs).with_frozen(costs, cut);
            let plan = plan.with_shards(weights);
            return Ok(plan.with_groups(costs.groups()).with_portals(portals));
        }
        let plan = Self::of_rule(policy, schedule).with_groups(costs.groups());
        let plan = plan.with_before(costs.before()).with_samples(costs);
        let plan = plan.with_shards(weights);
        Ok(plan.with_frozen(costs, cut).with_portals(portals))
    }

    fn with_samples(self, costs: &ModelCosts) -> Self {
        let samples = Some(costs.batch());
        Self { samples, ..self }
    }

    /// The samples of the batch that the plan was made for, of all replicas together; `None` of a plan that was not made
    /// from costs.
    pub fn samples(&self) -> Option<usize> {
        self.samples
    }

    fn with_shards(self, weights: &ParameterBytes) -> Self {
        Self {
            shards_optimizer: weights.is_sharded(),
            ..self
        }
    }

    /// Whether replicas divide the optimizer states among them ([`ParameterBytes::sharded`]).
    pub fn shards_optimizer(&self) -> bool {
        self.shards_optimizer
    }

    /// The same plan without backward passes of the layers that have none by `costs`
    /// ([`ModelCosts::with_frozen`]); those of the model, and the cut, for a prediction to hold. [`new`](Self::new)
    /// does it.
    #[must_use]
    pub fn with_frozen(self, costs: &ModelCosts, cut: &[Range<usize>]) -> Self {
        let first = costs.first_trained();
        let end = |part: &Range<usize>| first.checked_sub(part.start);
        Self {
            gradients_end: cut.iter().map(end).collect(),
            ..self
        }
    }

    /// Costs with the backward passes that the stages of this plan run.
    pub(crate) fn applied_to<'a>(&self, costs: &'a ModelCosts) -> Cow<'a, ModelCosts> {
        // The first stage begins with the model's first layer.
        costs.trained_from(self.gradients_end(0).unwrap_or(0))
    }

    /// The layer at which the backward pass of a stage ends, counted from the stage's first: gradients of its inputs
    /// are not computed, and the stage sends none back. At least the stage's number of layers if it has no backward
    /// pass at all; `None` where the inputs of the stage are owed gradients.
    pub fn gradients_end(&self, stage: usize) -> Option<usize> {
        match self.gradients_end.get(stage) {
            Some(&end) => end,
            None => (stage == 0).then_some(0),
        }
    }

    /// The same plan with this number of layers before the pipeline; that of [`ModelCosts::before`] for a prediction
    /// to hold.
    #[must_use]
    pub fn with_before(self, before: usize) -> Self {
        Self { before, ..self }
    }

    /// Number of layers before the pipeline, the first of the first stage.
    pub fn before(&self) -> usize {
        self.before
    }

    /// Each stage keeps the same of every micro-batch; an assembly refuses other numbers than its schedule's.
    pub fn of_stages(stages: Vec<Retained>, micro_batches: usize) -> Self {
        let cells = stages
            .into_iter()
            .flat_map(|kept| std::iter::repeat_n(kept, micro_batches))
            .collect();
        Self {
            micro_batches,
            samples: None,
            cells,
            groups: Groups::one(micro_batches),
            before: 0,
            shards_optimizer: false,
            portals: Arc::default(),
            gradients_end: Vec::new(),
        }
    }

    /// The same plan with gradients that are summed by these groups; those of [`ModelCosts::groups`] for
    /// a prediction to hold.
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// The same plan with tensors that go through these portals; those of the model and the cut for a prediction to
    /// hold. [`new`](Self::new) does it.
    #[must_use]
    pub fn with_portals(self, portals: Portals) -> Self {
        let portals = Arc::new(portals);
        Self { portals, ..self }
    }

    /// The portals through which tensors pass stages.
    pub fn portals(&self) -> &Arc<Portals> {
        &self.portals
    }

    /// The groups of micro-batches whose gradients are summed.
    pub fn groups(&self) -> Groups {
        self.groups
    }

    /// A plan from the choice for each micro-batch of each stage; all stages have the same number.
    pub(crate) fn of_cells(stages: Vec<Vec<Retained>>) -> Self {
        Self {
            micro_batches: stages.first().map_or(0, Vec::len),
            samples: None,
            groups: Groups::one(stages.first().map_or(0, Vec::len)),
            before: 0,
            shards_optimizer: false,
            cells: stages.into_iter().flatten().collect(),
            portals: Arc::default(),
            gradients_end: Vec::new(),
        }
    }

    /// The plan of a policy that does not depend on bytes; a budget counts as unlimited.
    pub(crate) fn of_rule(policy: Policy, schedule: &Schedule) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let rule = |m: usize| match policy {
            Policy::Keep | Policy::Budget(_) => Retained::Everything,
            Policy::ExceptLast if m + 1 == micro_batches => Retained::Everything,
            Policy::Stage | Policy::ExceptLast => Retained::Inputs { run: usize::MAX },
            Policy::Every(run) => Retained::Inputs { run },
        };
        let mut cells: Vec<Retained> = (0..stages)
            .flat_map(|_| (0..micro_batches).map(&rule))
            .collect();
        let mut previous: Vec<Option<Action>> = vec![None; stages];
        let actions = schedule.lanes().iter().flatten();
        // Recomputing another micro-batch in between does not matter.
        for &action in actions.filter(|action| action.op != Op::Recompute) {
            let backward_follows = matches!(action.op, Op::Backward | Op::InputGrad)
                && previous[action.stage].is_some_and(|before| {
                    before.op == Op::Forward && before.micro_batch == action.micro_batch
                });
            if backward_follows {
                cells[action.stage * micro_batches + action.micro_batch] = Retained::Everything;
            }
            previous[action.stage] = Some(action);
        }
        Self {
            micro_batches,
            samples: None,
            cells,
            groups: Groups::one(micro_batches),
            before: 0,
            shards_optimizer: false,
            portals: Arc::default(),
            gradients_end: Vec::new(),
        }
    }

    pub(crate) fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// Number of stages.
    pub(crate) fn stages(&self) -> usize {
        self.cells
            .len()
            .checked_div(self.micro_batches)
            .unwrap_or(0)
    }

    /// The tensors that `stage` keeps of micro-batch `m`. Not called for micro-batches that the schedule
    /// does not have (evaluation), which are not kept.
    ///
    /// # Panics
    /// For a stage or a micro-batch that the plan does not have.
    pub fn kept(&self, stage: usize, m: usize) -> &Retained {
        &self.cells[stage * self.micro_batches + m]
    }

    /// The tensors that `stage` keeps of each micro-batch.
    pub(crate) fn of_stage(&self, stage: usize) -> &[Retained] {
        &self.cells[stage * self.micro_batches..][..self.micro_batches]
    }
}

#[cfg(test)]
mod tests {
    use gpipe_sched::{gpipe, one_f_one_b, zb_h1};

    use super::*;

    /// Nothing is recomputed right after it was computed, however the backward pass is split.
    #[test]
    fn a_stage_keeps_all_of_a_micro_batch_whose_backward_pass_follows() {
        let kept = |schedule: &Schedule, stage: usize| {
            let plan = RematPlan::of_rule(Policy::Stage, schedule);
            let kept = (0..4).map(|m| *plan.kept(stage, m) == Retained::Everything);
            kept.collect::<Vec<bool>>()
        };
        for schedule in [one_f_one_b(2, 4).unwrap(), zb_h1(2, 4).unwrap()] {
            assert_eq!(kept(&schedule, 1), [true; 4]);
            assert_eq!(kept(&schedule, 0), [false; 4]);
        }
        // The first backward pass is not of the micro-batch that went forward last.
        assert_eq!(kept(&gpipe(2, 4).unwrap(), 1), [false; 4]);
    }
}
