//! A candidate: a schedule kind, workers and a number of micro-batches, with the cut still open.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use gpipe_sched::{
    Costs, LinkCosts, PortalCosts, Schedule, StageCosts, Timeline, simulate, simulate_shared,
};

use super::bound::Bounds;
use super::plan::{Plan, StepParts};
use super::request::{Costed, NamedOrder, PlanRequest};
use super::stage_choice::{Chooser, StagePlan, forgets};

use super::simulator_costs::splits;
use crate::{Portals, RematPlan, Work, simulator_costs};

/// Number of simulations that take about as long as making a cost-driven schedule.
const FOLLOWING: u64 = 16;

/// A schedule without a cut.
pub(super) struct Candidate<'a> {
    pub request: &'a PlanRequest<'a>,
    pub order: &'a NamedOrder,
    pub schedule: Rc<Schedule>,
    pub costed: Rc<Costed>,
    pub bounds: Bounds<'a>,
    pub chooser: Chooser<'a>,
    chosen: RefCell<HashMap<StageKey, Option<Rc<StagePlan>>>>,
    /// The effort of choices that no evaluation has counted yet, in simulated actions.
    uncounted: Cell<u64>,
}

/// A stage, its layers from and to, and the memory of its worker.
type StageKey = (usize, usize, usize, Option<u64>);

/// A cut, the tensors that its stages keep, and the time of a step.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub seconds: f64,
    pub cut: Vec<Range<usize>>,
    pub schedule: Rc<Schedule>,
    /// The worker of each device.
    pub workers: Vec<usize>,
    pub stages: Vec<Rc<StagePlan>>,
    pub bubble: f64,
    pub parts: StepParts,
    /// The stage with the most work.
    pub bottleneck: usize,
    /// Whether this is the best of all cuts and orders of workers.
    pub exact: bool,
}

impl<'a> Candidate<'a> {
    pub fn new(
        request: &'a PlanRequest<'a>,
        order: &'a NamedOrder,
        schedule: Rc<Schedule>,
        costed: Rc<Costed>,
    ) -> Self {
        Self {
            request,
            order,
            bounds: Bounds::new(request, &costed),
            chooser: Chooser::new(request, costed.clone(), schedule.clone()),
            chosen: RefCell::default(),
            uncounted: Cell::default(),
            schedule,
            costed,
        }
    }

    pub fn stages(&self) -> usize {
        self.schedule.stages()
    }

    pub fn layers(&self) -> usize {
        self.costed.times.work.len()
    }

    /// Stages per worker.
    pub fn chunks(&self) -> usize {
        self.order.chunks
    }

    /// Whether the schedule is cost-driven, so that it differs between cuts.
    pub fn follows(&self) -> bool {
        self.order.follow.is_some()
    }

    /// The most micro-batches that a stage holds, for a cost-driven schedule.
    pub fn held(&self) -> Option<usize> {
        self.order.held.as_ref().map(|held| held(self.stages()))
    }

    /// The size of each micro-batch relative to the largest.
    pub fn sizes(&self) -> Vec<f64> {
        let costs = &self.costed.costs;
        let size = |m| costs.samples(m) as f64 / costs.samples(0) as f64;
        (0..costs.micro_batches()).map(size).collect()
    }

    /// The effort of evaluating a cut, in simulated actions.
    pub fn actions(&self) -> u64 {
        let actions: u64 = self.schedule.lanes().iter().map(|l| l.len() as u64).sum();
        match self.order.follow {
            None => actions,
            Some(_) => actions.saturating_mul(FOLLOWING),
        }
    }

    pub fn bound(&self) -> f64 {
        self.bounds.of(self.schedule.devices(), self.order.chunks)
    }

    /// The memory of a stage of a worker: an equal share.
    fn limit(&self, worker: usize) -> Option<u64> {
        let memory = self.request.workers[worker].memory?;
        Some(memory / self.order.chunks as u64)
    }

    /// The choice for a stage of these layers, if it fits.
    pub fn stage(&self, stage: usize, part: &Range<usize>, worker: usize) -> Option<Rc<StagePlan>> {
        let limit = self.limit(worker);
        let key = (stage, part.start, part.end, limit);
        if let Some(known) = self.chosen.borrow().get(&key) {
            return known.clone();
        }
        let effort = self.chooser.effort(part.len());
        self.uncounted
            .set(self.uncounted.get().saturating_add(effort));
        let chosen = self.chooser.choose(stage, part, limit).map(Rc::new);
        self.chosen.borrow_mut().insert(key, chosen.clone());
        chosen
    }

    /// The time of a cut on these workers, one per device; `None` if a stage does not fit.
    pub fn evaluate(
        &self,
        cut: &[Range<usize>],
        workers: &[usize],
        left: &mut u64,
    ) -> Option<Found> {
        *left = left.saturating_sub(self.actions());
        let device_of = self.schedule.device_of();
        let worker = |stage: usize| workers[device_of[stage]];
        let places = || cut.iter().enumerate();
        let stages = places().map(|(stage, part)| self.stage(stage, part, worker(stage)));
        let stages = stages.collect::<Option<Vec<_>>>();
        *left = left.saturating_sub(self.uncounted.take());
        let stages = stages?;
        let Some(follow) = &self.order.follow else {
            return self.timed(self.schedule.clone(), cut, workers, stages);
        };
        let costs = match &self.costed.scheduling_times {
            Some(scheduling_times) => {
                let kept = stages.iter().map(|stage| stage.kept.clone()).collect();
                let costs = &self.costed.costs;
                let remat_plan = RematPlan::of_cells(kept).with_frozen(costs, cut);
                simulator_costs(costs, scheduling_times, cut, &self.schedule, &remat_plan)
                    .swap_remove(0)
            }
            None => self.costs(1, &self.schedule, cut, workers, &stages),
        };
        let followed = follow(&self.schedule, &costs)?;
        let shape = |schedule: &Schedule| (schedule.device_of().to_vec(), schedule.micro_batches());
        if shape(&followed) != shape(&self.schedule) {
            return None;
        }
        let schedule = Rc::new(followed);
        let chooser = Chooser::new(self.request, self.costed.clone(), schedule.clone());
        let chosen = places().map(|(stage, part)| {
            *left = left.saturating_sub(chooser.effort(part.len()));
            let limit = self.limit(worker(stage));
            chooser.choose(stage, part, limit).map(Rc::new)
        });
        let stages = chosen.collect::<Option<Vec<_>>>()?;
        self.timed(schedule, cut, workers, stages)
    }

    fn timed(
        &self,
        schedule: Rc<Schedule>,
        cut: &[Range<usize>],
        workers: &[usize],
        stages: Vec<Rc<StagePlan>>,
    ) -> Option<Found> {
        let costs = |cores| self.costs(cores, &schedule, cut, workers, &stages);
        let timeline = match self.request.cores {
            None => simulate(&schedule, &costs(1)),
            Some(cores) => {
                let most = cores.min(self.costed.times.cores());
                let by_share: Vec<Costs> = (1..=most).map(costs).collect();
                simulate_shared(&schedule, &by_share, cores)
            }
        };
        let timeline = timeline.ok()?;
        let speed = |device: usize| self.request.workers[workers[device]].speed;
        let times = &self.costed.times;
        let device_of = schedule.device_of();
        let update = times.update(cut, device_of, speed, self.request.cores);
        let makespan = timeline.makespan();
        let [end, back] = self.sums(&timeline, cut, device_of, workers);
        let sums = (end - makespan).max(0.0) + back;
        let busy = (0..timeline.devices()).map(|device| timeline.busy(device));
        let compute = busy.fold(0.0, f64::max);
        Some(Found {
            seconds: makespan + sums + update,
            parts: StepParts {
                compute,
                waiting: makespan - compute,
                transfers: 0.0,
                sums,
                update,
            },
            cut: cut.to_vec(),
            workers: workers.to_vec(),
            bubble: timeline.bubble(),
            bottleneck: busiest(&timeline, cut.len()),
            stages,
            schedule,
            exact: false,
        })
    }

    pub fn costs(
        &self,
        cores: usize,
        schedule: &Schedule,
        cut: &[Range<usize>],
        workers: &[usize],
        stages: &[Rc<StagePlan>],
    ) -> Costs {
        let device_of = schedule.device_of();
        let Costed { costs, times, .. } = &*self.costed;
        let of_stage = |stage: usize| {
            let speed = self.request.workers[workers[device_of[stage]]].speed;
            let alone = {
                let splits = splits(schedule, stage);
                times.of_stage(cores, &cut[stage], splits, costs.first_trained())
            };
            StageCosts {
                forward: alone.forward / speed,
                input_grad: alone.input_grad / speed,
                weight_grad: alone.weight_grad / speed,
                recompute: stages[stage].again[cores - 1] / speed,
            }
        };
        let stage_costs = (0..cut.len()).map(of_stage).collect();
        let operation = |stage: usize| {
            let speed = self.request.workers[workers[device_of[stage]]].speed;
            times.operation(cores, &cut[stage]) / speed
        };
        let operations = (0..cut.len()).map(operation).collect();
        let layout = self.layout(workers);
        let between = |from: usize, to: usize, [forward, backward]: [u64; 2]| {
            if device_of[from] == device_of[to] {
                return LinkCosts::default();
            }
            let link = layout.between(workers[device_of[from]], workers[device_of[to]]);
            LinkCosts {
                latency: link.latency,
                forward: forward as f64 / link.bytes_per_second,
                backward: backward as f64 / link.bytes_per_second,
            }
        };
        let portals = Portals::new(costs, cut);
        let links = (1..cut.len()).map(|stage| {
            let bytes = portals.flow_bytes(costs, stage, cut[stage].start);
            between(stage - 1, stage, bytes)
        });
        let through = portals.ends().into_iter().map(|portal| PortalCosts {
            portal,
            link: between(portal.from, portal.to, portals.bytes(costs, 0, portal)),
        });
        let micro_batches = schedule.micro_batches();
        let largest = costs.samples(0) as f64;
        let sizes = (0..micro_batches).map(|m| costs.samples(m) as f64 / largest);
        Costs::new(stage_costs)
            .with_links(links.collect())
            .with_portals(through.collect())
            .with_sizes(sizes.collect())
            .with_operations(operations)
            .with_recompute(micro_batches, |stage, m| forgets(&stages[stage].kept[m]))
    }

    /// The plan of a found cut.
    pub fn plan(&self, found: &Found) -> Plan {
        let work = &self.costed.times.work;
        let part = found.cut[found.bottleneck].clone();
        let seconds = |layer: &usize| {
            let Work {
                forward,
                input_grad,
                weight_grad,
                ..
            } = work[*layer];
            forward + input_grad + weight_grad
        };
        let most_expensive = part
            .clone()
            .max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        let (request, schedule) = (self.request, found.schedule.clone());
        let chooser = Chooser::new(request, self.costed.clone(), schedule);
        let kept = found
            .stages
            .iter()
            .map(|stage| stage.kept.clone())
            .collect();
        Plan {
            order: self.order.name.clone(),
            workers: found.workers.clone(),
            micro_batches: self.schedule.micro_batches(),
            cut: found.cut.clone(),
            schedule: (*found.schedule).clone(),
            remat_plan: RematPlan::of_cells(kept)
                .with_frozen(&self.costed.costs, &found.cut)
                .with_portals(Portals::new(&self.costed.costs, &found.cut)),
            seconds: found.seconds,
            bubble: found.bubble,
            parts: self.parts(found),
            peaks: (0..found.cut.len())
                .map(|stage| {
                    let kept = &found.stages[stage].kept;
                    chooser.peak(stage, &found.cut[stage], kept)
                })
                .collect(),
            sharded_peaks: (0..found.cut.len())
                .map(|stage| {
                    let part = &found.cut[stage];
                    chooser.sharded_peak(stage, part, &found.stages[stage].kept)
                })
                .collect(),
            replication: request.replication,
            bottleneck: found.bottleneck,
            most_expensive: most_expensive.unwrap_or(part.start),
        }
    }
}

/// The stage with the most work.
fn busiest(timeline: &Timeline, stages: usize) -> usize {
    let mut seconds = vec![0.0; stages];
    for span in timeline.spans() {
        seconds[span.action.stage] += span.end - span.start;
    }
    let stages = (0..stages).max_by(|&a, &b| seconds[a].total_cmp(&seconds[b]));
    stages.unwrap_or(0)
}
