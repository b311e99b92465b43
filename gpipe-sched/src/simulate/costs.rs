//! Costs of a pipeline: the durations that the simulator works with.

use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::schedule::portal::Portal;
use crate::simulate::costs_error::CostsError;

/// Seconds of one stage's actions on a micro-batch of full size.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct StageCosts {
    /// `F`. The last stage's includes the loss.
    pub forward: f64,
    /// `I`; a `B` takes `input_grad + weight_grad`.
    pub input_grad: f64,
    /// `W`.
    pub weight_grad: f64,
    /// `R`; where the schedule has none, it is added to the `B` or `I` of a micro-batch whose
    /// activations were not kept. See [`Costs::with_left`] for an `R` that does only a part of it.
    pub recompute: f64,
}

/// Seconds of a transfer between two neighbouring stages. Transfers overlap with work; those of one
/// link and direction are serial.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct LinkCosts {
    /// Seconds until the first byte arrives; the link is free for its next transfer meanwhile.
    pub latency: f64,
    /// Seconds for which the activations of a micro-batch of full size occupy the link.
    pub forward: f64,
    /// The same for gradients, in the other direction.
    pub backward: f64,
}

/// The transfers of a tensor that passes stages: it goes straight from the stage that gives it to the one
/// that takes it, and its gradient straight back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortalCosts {
    /// The ends.
    pub portal: Portal,
    /// The link from the giver to the taker, apart from those between neighbours.
    pub link: LinkCosts,
}

/// The costs of a pipeline.
///
/// ```
/// use gpipe_sched::{Costs, StageCosts, gpipe, simulate};
///
/// let stage = StageCosts { forward: 1.0, input_grad: 1.0, weight_grad: 1.0, recompute: 1.0 };
/// let kept = Costs::new(vec![stage; 4]);
/// let recomputed = kept.clone().with_recompute(8, |_stage, _micro_batch| true);
/// let schedule = gpipe(4, 8).unwrap();
/// assert_eq!(simulate(&schedule, &kept)?.makespan(), 3.0 * 11.0);
/// assert_eq!(simulate(&schedule, &recomputed)?.makespan(), 4.0 * 11.0);
/// # Ok::<(), gpipe_sched::CostsError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    stages: Vec<StageCosts>,
    links: Vec<LinkCosts>,
    portals: Vec<PortalCosts>,
    sizes: Vec<f64>,
    recompute: Vec<bool>,
    left: Vec<f64>,
    speeds: Vec<f64>,
    updates: Vec<f64>,
    /// Sorted by the action, each with its place in the given list.
    additions: Vec<(Action, usize, f64)>,
    operations: Vec<f64>,
}

impl Costs {
    /// Costs of work only: free links, micro-batches of one size, no recomputation.
    pub fn new(stages: Vec<StageCosts>) -> Self {
        Self {
            stages,
            links: Vec::new(),
            portals: Vec::new(),
            sizes: Vec::new(),
            recompute: Vec::new(),
            left: Vec::new(),
            speeds: Vec::new(),
            updates: Vec::new(),
            additions: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Costs of equal stages, whose backward pass is half input and half weight gradient.
    /// Recomputation costs a forward pass.
    pub fn even(stages: usize, forward: f64, backward: f64) -> Self {
        let half = backward / 2.0;
        let stage = StageCosts {
            forward,
            input_grad: half,
            weight_grad: half,
            recompute: forward,
        };
        Self::new(vec![stage; stages])
    }

    /// Sets the costs of the links: one for each stage but the last, to the next stage.
    #[must_use]
    pub fn with_links(mut self, links: Vec<LinkCosts>) -> Self {
        self.links = links;
        self
    }

    /// Sets the transfers past stages; the links between neighbours are without their bytes.
    #[must_use]
    pub fn with_portals(mut self, portals: Vec<PortalCosts>) -> Self {
        self.portals = portals;
        self
    }

    /// Sets the relative size of each micro-batch; 1 is full size. Work and transfers scale with
    /// it, latency does not.
    #[must_use]
    pub fn with_sizes(mut self, sizes: Vec<f64>) -> Self {
        self.sizes = sizes;
        self
    }

    /// Sets which of `micro_batches` micro-batches each stage recomputes: `recomputes(stage, m)`.
    #[must_use]
    pub fn with_recompute(
        mut self,
        micro_batches: usize,
        recomputes: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let recomputes = &recomputes;
        self.recompute = (0..self.stages.len())
            .flat_map(|stage| (0..micro_batches).map(move |m| recomputes(stage, m)))
            .collect();
        self
    }

    /// Sets the seconds of each stage's recomputation that remain in the backward pass even after
    /// an `R`: a stage that keeps the inputs of several runs of layers recomputes only the last run
    /// ahead.
    #[must_use]
    pub fn with_left(mut self, left: Vec<f64>) -> Self {
        self.left = left;
        self
    }

    /// Sets the relative speed of each device; 1 is the reference device of the costs. Work and
    /// updates are divided by it, transfers are not.
    #[must_use]
    pub fn with_speeds(mut self, speeds: Vec<f64>) -> Self {
        self.speeds = speeds;
        self
    }

    /// Sets the seconds of the optimizer update of each stage, once per step: see
    /// [`step_seconds`](crate::step_seconds).
    #[must_use]
    pub fn with_updates(mut self, updates: Vec<f64>) -> Self {
        self.updates = updates;
        self
    }

    /// Sets seconds that single actions take besides those of their stage, whatever the size of their micro-batch:
    /// work that belongs to several micro-batches and is done with one of them. Several to one action add up; one to an
    /// operation in place of which the schedule has others (`B` for `I` and `W`) counts nothing.
    #[must_use]
    pub fn with_additions(mut self, additions: Vec<(Action, f64)>) -> Self {
        let additions = additions.into_iter().enumerate();
        let placed = additions.map(|(place, (action, seconds))| (action, place, seconds));
        self.additions = placed.collect();
        self.additions
            .sort_unstable_by_key(|&(action, place, _)| (action, place));
        self
    }

    /// Sets the seconds of an operation of each stage on a micro-batch of full size: the actions of the stage are
    /// runs of operations of about this length. Where devices share processors, an operation keeps its own to its
    /// end ([`simulate_shared`](crate::simulate_shared)). 0 for a stage that does not.
    #[must_use]
    pub fn with_operations(mut self, operations: Vec<f64>) -> Self {
        self.operations = operations;
        self
    }

    pub(crate) fn check(&self, schedule: &Schedule) -> Result<(), CostsError> {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let count = |what, found, expected, optional: bool| {
            if found == expected || (optional && found == 0) {
                return Ok(());
            }
            Err(CostsError::Count {
                what,
                found,
                expected,
            })
        };
        count("stages", self.stages.len(), stages, false)?;
        count("links", self.links.len(), stages - 1, true)?;
        count("micro-batches", self.sizes.len(), micro_batches, true)?;
        count(
            "recomputations",
            self.recompute.len(),
            stages * micro_batches,
            true,
        )?;
        count("parts of recomputations", self.left.len(), stages, true)?;
        count("devices", self.speeds.len(), schedule.devices(), true)?;
        count("updates", self.updates.len(), stages, true)?;
        count("operations", self.operations.len(), stages, true)?;
        for (index, &value) in self.speeds.iter().enumerate() {
            // A subnormal speed is refused: a second divided by it is not finite.
            if !(value.is_normal() && value > 0.0) {
                return Err(CostsError::Speed { index, value });
            }
        }
        let number = |what, index, values: &[f64]| match values
            .iter()
            .find(|value| !(value.is_finite() && **value >= 0.0))
        {
            Some(&value) => Err(CostsError::Number { what, index, value }),
            None => Ok(()),
        };
        for (index, cost) in self.stages.iter().enumerate() {
            let StageCosts {
                forward,
                input_grad,
                weight_grad,
                recompute,
            } = *cost;
            number(
                "stage",
                index,
                &[forward, input_grad, weight_grad, recompute],
            )?;
        }
        for (index, link) in self.links.iter().enumerate() {
            number("link", index, &[link.latency, link.forward, link.backward])?;
        }
        for (index, PortalCosts { portal, link }) in self.portals.iter().enumerate() {
            if portal.to >= stages || portal.to < portal.from.saturating_add(2) {
                let portal = *portal;
                return Err(CostsError::Portal { portal, stages });
            }
            number(
                "portal",
                index,
                &[link.latency, link.forward, link.backward],
            )?;
        }
        let is_other =
            |action: Action| action.stage >= stages || action.micro_batch >= micro_batches;
        let mut added = self.additions.iter().map(|&(action, ..)| action);
        if let Some(action) = added.find(|&action| is_other(action)) {
            return Err(CostsError::Addition {
                action,
                stages,
                micro_batches,
            });
        }
        let sizes = self.sizes.iter().enumerate();
        let updates = self.updates.iter().enumerate();
        let left = self.left.iter().enumerate();
        let additions = self.additions.iter();
        let operations = self.operations.iter().enumerate();
        sizes
            .map(|(m, size)| ("micro-batch", m, size))
            .chain(left.map(|(stage, left)| ("part of the recomputation of stage", stage, left)))
            .chain(additions.map(|(_, place, seconds)| ("addition", *place, seconds)))
            .chain(operations.map(|(stage, seconds)| ("operation of stage", stage, seconds)))
            .chain(updates.map(|(stage, update)| ("update", stage, update)))
            .try_for_each(|(what, index, &value)| number(what, index, &[value]))?;
        match self.one_after_the_other(schedule).is_finite() {
            true => Ok(()),
            false => Err(CostsError::Sum),
        }
    }

    /// Seconds of all actions, transfers and updates one after the other, on the slowest device: no
    /// schedule takes longer.
    fn one_after_the_other(&self, schedule: &Schedule) -> f64 {
        let micro_batches = schedule.micro_batches();
        let sizes: f64 = (0..micro_batches).map(|m| self.size(m)).sum();
        let slowest = self.speeds.iter().copied().fold(1.0, f64::min);
        let work = self.stages.iter().map(|stage| {
            stage.forward + stage.input_grad + stage.weight_grad + 2.0 * stage.recompute
        });
        let portals = self.portals.iter().map(|portal| &portal.link);
        let links = self.links.iter().chain(portals).map(|link| {
            2.0 * micro_batches as f64 * link.latency + sizes * (link.forward + link.backward)
        });
        let updates: f64 = self.updates.iter().sum();
        let additions: f64 = self.additions.iter().map(|(.., seconds)| seconds).sum();
        (sizes * work.sum::<f64>() + additions + updates) / slowest + links.sum::<f64>()
    }

    /// The speed of a device relative to the reference device.
    pub(crate) fn speed(&self, device: usize) -> f64 {
        self.speeds.get(device).copied().unwrap_or(1.0)
    }

    /// Seconds of the update on the slowest device.
    pub(crate) fn update(&self, schedule: &Schedule) -> f64 {
        let mut seconds = vec![0.0_f64; schedule.devices()];
        for (&device, update) in schedule.device_of().iter().zip(&self.updates) {
            seconds[device] += update / self.speed(device);
        }
        seconds.into_iter().fold(0.0, f64::max)
    }

    /// Seconds of an action on a device; `has_recompute` says that the schedule has an `R` for it.
    pub(crate) fn seconds(
        &self,
        device: usize,
        action: Action,
        has_recompute: bool,
        micro_batches: usize,
    ) -> f64 {
        let stage = &self.stages[action.stage];
        let recompute = if self.recomputes(action, micro_batches) {
            stage.recompute
        } else {
            0.0
        };
        let left = self.left.get(action.stage).copied().unwrap_or(0.0);
        let left = left.min(recompute);
        let hidden = if has_recompute { left } else { recompute };
        let seconds = match action.op {
            Op::Forward => stage.forward,
            Op::Backward => hidden + stage.input_grad + stage.weight_grad,
            Op::InputGrad => hidden + stage.input_grad,
            Op::WeightGrad => stage.weight_grad,
            Op::Recompute => recompute - left,
        };
        let first = self.additions.partition_point(|(to, ..)| *to < action);
        let additions = self.additions[first..].iter();
        let additions = additions.take_while(|(to, ..)| *to == action);
        let additions: f64 = additions.map(|(.., seconds)| seconds).sum();
        (seconds * self.size(action.micro_batch) + additions) / self.speed(device)
    }

    /// The number of operations of an action, at least 1; `None` for a stage without.
    pub(crate) fn operations(
        &self,
        device: usize,
        action: Action,
        has_recompute: bool,
        micro_batches: usize,
    ) -> Option<f64> {
        let seconds = *self.operations.get(action.stage)?;
        let seconds = seconds * self.size(action.micro_batch) / self.speed(device);
        let all = self.seconds(device, action, has_recompute, micro_batches);
        (seconds > 0.0).then(|| (all / seconds).round().max(1.0))
    }

    /// Whether the stage recomputes the micro-batch.
    pub(crate) fn recomputes(&self, action: Action, micro_batches: usize) -> bool {
        let cell = action.stage * micro_batches + action.micro_batch;
        self.recompute.get(cell).is_some_and(|&again| again)
    }

    /// The link from `stage` to the next.
    pub(crate) fn link(&self, stage: usize) -> LinkCosts {
        self.links.get(stage).copied().unwrap_or_default()
    }

    /// The transfers past stages.
    pub(crate) fn portals(&self) -> &[PortalCosts] {
        &self.portals
    }

    pub(crate) fn size(&self, micro_batch: usize) -> f64 {
        self.sizes.get(micro_batch).copied().unwrap_or(1.0)
    }
}
