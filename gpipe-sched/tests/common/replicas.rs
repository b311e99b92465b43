//! Replicas of toy pipelines over ranks that are threads: each sums the gradients of its own groups of micro-batches
//! and sends them while its backward passes run; each sums some elements over all, and sends those sums back.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
#[cfg(not(shuttle))]
use std::thread;

use gpipe_sched::{
    GroupSums, Groups, InMemory, Label, MicroBatch, Parcel, Part, Pipeline, PipelineError, Place,
    Reader, Schedule, Stage, Transport, World, Writer, one_f_one_b,
};
#[cfg(shuttle)]
use shuttle::thread;

use super::ranks::Numbers;
use super::{Difference, Failure, Plan, Toy, Trouble, batch_of, places, sequential_of};

const STAGES: usize = 2;

/// Elements of a gradient; those of the remainder r by the number of replicas are summed by replica r.
const ELEMENTS: usize = 3;

/// Messages of a step between two replicas of a stage.
const PARTS: usize = 0;
const SUMS: usize = 1;

/// The sum of two sums, of earlier and later groups: sensitive to their order and to the shape of the tree.
fn combine(earlier: i64, later: i64) -> i64 {
    earlier.wrapping_mul(1_000_003).wrapping_add(later)
}

/// An element of the gradient whose first element is this one; [`combine`] keeps the relation.
fn element(first: i64, element: usize) -> i64 {
    first.wrapping_mul(2 * element as i64 + 1)
}

/// How the sums over the replicas are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adds {
    /// By the tree of the groups.
    Tree,
    /// A planted fault: this replica's own first, then those of the others.
    OwnFirst,
    /// A planted fault: without those of the last replica.
    AllButOne,
}

/// A toy stage among its replicas.
pub struct Replica {
    toy: Toy,
    index: usize,
    plan: Plan,
    adds: Adds,
    world: Arc<World>,
    groups: Groups,
    /// The rank of the stage in each replica.
    ranks: Vec<usize>,
    sums: GroupSums<i64>,
    call: u64,
    /// Over all replicas, after [`sum`](Self::sum).
    pub gradient: Vec<i64>,
}

pub type ReplicaPipeline = Pipeline<Replica, Difference>;

/// The number of pipelines, the micro-batches and groups of all of them, and how the groups are added.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub replicas: usize,
    pub micro_batches: usize,
    pub groups: usize,
    pub adds: Adds,
}

/// Two replicas, whose groups have one and two micro-batches.
pub const WAY: Way = Way {
    replicas: 2,
    micro_batches: 3,
    groups: 2,
    adds: Adds::Tree,
};

/// Four groups, so that each replica ends with one sum of two.
pub const MORE: Way = Way {
    micro_batches: 5,
    groups: 4,
    ..WAY
};

/// Three groups a replica: it ends with two sums.
pub const UNEVEN: Way = Way {
    micro_batches: 6,
    groups: 6,
    ..WAY
};

impl Way {
    fn groups_of(&self, replica: usize) -> Groups {
        let groups = Groups::new(self.micro_batches, self.groups).expect("few enough groups");
        let own = groups.on_replica(replica, self.replicas);
        own.expect("as many groups for each")
    }

    fn schedule(&self, replica: usize) -> Schedule {
        let own = self.groups_of(replica).own_micro_batches();
        one_f_one_b(STAGES, own.len()).expect("a valid size")
    }

    /// This rank's part, of devices that are dealt out to the ranks of the replica in turn.
    pub fn join(self, plan: &Plan, world: &Arc<World>) -> Result<ReplicaPipeline, PipelineError> {
        let each = world.ranks() / self.replicas;
        let replica = world.rank() / each;
        let (groups, schedule) = (self.groups_of(replica), self.schedule(replica));
        let device_of = schedule.device_of().to_vec();
        let rank_of = (0..schedule.devices())
            .map(|device| device % each)
            .collect();
        let (of_stages, of_loss, of_world) = (plan.clone(), plan.clone(), world.clone());
        Pipeline::join(
            schedule,
            world,
            self.replicas,
            rank_of,
            Arc::new(Numbers),
            move |index| {
                let ranks = 0..self.replicas;
                let ranks = ranks.map(|replica| replica * each + device_of[index] % each);
                Ok::<_, Failure>(Replica {
                    toy: Toy::new(index, of_stages.clone()),
                    index,
                    plan: of_stages.clone(),
                    adds: self.adds,
                    world: of_world.clone(),
                    groups,
                    ranks: ranks.collect(),
                    sums: GroupSums::new(groups),
                    call: 0,
                    gradient: Vec::new(),
                })
            },
            move || Ok::<_, Failure>(Difference::new(of_loss)),
        )
    }

    /// One step with its sums, whose results are those of a loop on every rank.
    pub fn step(self, pipeline: &mut ReplicaPipeline, step: u64) -> Result<(), PipelineError> {
        let groups = self.groups_of(pipeline.replica());
        let outcome = pipeline.step(batch_of(step, groups.own_micro_batches(), true))?;
        pipeline
            .during("the sum")
            .each(|_, replica| replica.sum())?;
        let gradients = pipeline
            .gather(|stage, replica| Ok::<_, Failure>((stage, replica.gradient.clone())))?;
        let stages = pipeline.schedule().stages();
        let (losses, _) = sequential_of(step, stages, 0..self.micro_batches);
        assert_eq!(outcome.losses, losses);
        for (stage, gradient) in gradients {
            assert_eq!(
                gradient,
                self.gradient(step, stages, stage),
                "stage {stage}"
            );
        }
        Ok(())
    }

    /// The sum over all groups, defined by the tree.
    fn gradient(&self, step: u64, stages: usize, stage: usize) -> Vec<i64> {
        let groups = Groups::new(self.micro_batches, self.groups).expect("few enough groups");
        let mut of = |node: &Range<usize>| {
            let is_leaf = node.len() == 1;
            let own = is_leaf.then(|| groups.micro_batches(node.start))?;
            Some(sequential_of(step, stages, own).1[stage])
        };
        let first = groups.sum_parts(&mut of, &mut combine).expect("all groups");
        (0..ELEMENTS).map(|place| element(first, place)).collect()
    }
}

impl Replica {
    /// The replicas but this one.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.groups.replica();
        (0..self.ranks.len()).filter(move |&replica| replica != own)
    }

    /// The elements that a replica sums.
    fn share(&self, replica: usize) -> impl Iterator<Item = usize> + use<> {
        (0..ELEMENTS).skip(replica).step_by(self.ranks.len())
    }

    fn label(&self, part: usize) -> Label {
        Label {
            call: self.call,
            place: self.index,
            part,
        }
    }

    fn send_parts(&self) {
        let own = self.sums.current().map(|node| (node, &self.toy.gradient));
        let parts: Vec<(Range<usize>, &i64)> = own.into_iter().chain(self.sums.held()).collect();
        for replica in self.others() {
            let mut out = Writer::default();
            out.number(parts.len());
            for (node, first) in &parts {
                out.number(node.start);
                out.number(node.end);
                out.body(bytes(
                    self.share(replica).map(|place| element(**first, place)),
                ));
            }
            let label = self.label(PARTS);
            let posted = self.world.post(self.ranks[replica], label, out.finish());
            posted.expect("another rank");
        }
    }

    /// Sums this replica's share over all, and takes those of the others.
    pub fn sum(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.plan.pass(Place::Visit(Part::Stage(self.index)))?;
        let own: Vec<usize> = self.share(self.groups.replica()).collect();
        let mut parts: HashMap<Range<usize>, Vec<i64>> = HashMap::new();
        let current = self.sums.current().map(|node| (node, &self.toy.gradient));
        for (node, &first) in current.into_iter().chain(self.sums.held()) {
            parts.insert(
                node,
                own.iter().map(|&place| element(first, place)).collect(),
            );
        }
        let mut in_order: Vec<Vec<i64>> = parts.values().cloned().collect();
        for replica in self.others() {
            let parcel = self
                .world
                .take_posted(self.ranks[replica], self.label(PARTS))?;
            let mut parcel = Reader::new(parcel);
            for _ in 0..parcel.number()? {
                let node = parcel.number()?..parcel.number()?;
                let values = numbers(&parcel.body()?);
                in_order.push(values.clone());
                parts.insert(node, values);
            }
        }
        // Between what the others need of this replica and what it needs of them.
        self.plan.pass(Place::Visit(Part::LossStage))?;
        let mut add = |left: Vec<i64>, right: Vec<i64>| -> Vec<i64> {
            let both = left.into_iter().zip(right);
            both.map(|(left, right)| combine(left, right)).collect()
        };
        let sum = match self.adds {
            Adds::Tree => self
                .groups
                .sum_parts(&mut |node| parts.remove(node), &mut add),
            Adds::OwnFirst => in_order.into_iter().reduce(add),
            Adds::AllButOne => {
                in_order.pop();
                in_order.into_iter().reduce(add)
            }
        };
        let sum = sum.ok_or("groups are missing")?;
        for replica in self.others() {
            let parcel = Parcel {
                head: Vec::new(),
                bodies: vec![bytes(sum.iter().copied())],
            };
            self.world
                .post(self.ranks[replica], self.label(SUMS), parcel)?;
        }
        self.gradient = vec![0; ELEMENTS];
        for (replica, &rank) in self.ranks.iter().enumerate() {
            let sums = match replica == self.groups.replica() {
                true => sum.clone(),
                false => {
                    let parcel = self.world.take_posted(rank, self.label(SUMS))?;
                    numbers(parcel.bodies.first().ok_or("a sum without elements")?)
                }
            };
            for (place, value) in self.share(replica).zip(sums) {
                self.gradient[place] = value;
            }
        }
        Ok(())
    }
}

fn bytes(values: impl Iterator<Item = i64>) -> Vec<u8> {
    values.flat_map(i64::to_le_bytes).collect()
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let numbers = bytes.as_chunks::<8>().0.iter();
    numbers.map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

impl Stage for Replica {
    type Flow = i64;
    type Error = Failure;

    fn begin(&mut self, step: u64) -> Result<(), Failure> {
        self.call = self.world.call();
        self.sums = GroupSums::new(self.groups);
        self.toy.begin(step)
    }

    fn forward(&mut self, m: &MicroBatch, x: i64) -> Result<i64, Failure> {
        self.toy.forward(m, x)
    }

    fn backward(&mut self, m: &MicroBatch, dy: i64) -> Result<Option<i64>, Failure> {
        let current = &mut self.toy.gradient;
        let swap = |begun: Option<i64>| Ok::<_, Failure>(mem::replace(current, begun.unwrap_or(0)));
        self.sums.enter(m.index, swap)?;
        let dx = self.toy.backward(m, dy)?;
        let current = &mut self.toy.gradient;
        self.sums.leave(m.index, |other, is_later| {
            *current = match is_later {
                true => combine(*current, other),
                false => combine(other, *current),
            };
            Ok::<_, Failure>(())
        })?;
        if self.sums.is_complete() {
            self.send_parts();
        }
        Ok(dx)
    }

    fn input_grad(&mut self, m: &MicroBatch, dy: i64) -> Result<Option<i64>, Failure> {
        self.toy.input_grad(m, dy)
    }

    fn weight_grad(&mut self, m: &MicroBatch) -> Result<(), Failure> {
        self.toy.weight_grad(m)
    }

    fn recompute(&mut self, m: &MicroBatch) -> Result<(), Failure> {
        self.toy.recompute(m)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.toy.finish()
    }
}

/// Runs the same on every rank, a thread each.
pub fn on_ranks<T: Transport>(
    ends: impl IntoIterator<Item = T>,
    run: impl Fn(Arc<World>) + Send + Sync + 'static,
) {
    let run = Arc::new(run);
    let ranks = ends.into_iter().map(|end| {
        let run = run.clone();
        thread::spawn(move || run(World::new(end)))
    });
    for rank in ranks.collect::<Vec<_>>() {
        rank.join().unwrap();
    }
}

/// Every place of a replica's step and of the sums after it.
pub fn all_places(way: Way, replica: usize) -> Vec<Place> {
    let mut all = places(&way.schedule(replica));
    all.extend((0..STAGES).map(|stage| Place::Visit(Part::Stage(stage))));
    // Between what a stage takes and what it gives.
    all.push(Place::Visit(Part::LossStage));
    all
}

/// A step, one with failures of some replicas, and another step: the bits of a loop, an error on all ranks, and the
/// bits of a loop. A place that comes back is one of those that failed.
pub fn fails(way: Way, ranks: usize, troubles: Vec<(usize, Place, Trouble)>) {
    on_ranks(InMemory::new(ranks), move |world| {
        let plan = Plan::default();
        let mut pipeline = way.join(&plan, &world).unwrap();
        way.step(&mut pipeline, 0).unwrap();
        let replica = pipeline.replica();
        let own = troubles.iter().filter(|(of, ..)| *of == replica);
        plan.set(own.map(|&(_, place, trouble)| (place, trouble)));
        let error = way.step(&mut pipeline, 1).unwrap_err();
        if let Some(place) = error.place() {
            // The place between taking and giving is one of a stage's visit.
            let is_it = |planned: Place| match planned {
                Place::Visit(Part::LossStage) => matches!(place, Place::Visit(Part::Stage(_))),
                planned => planned == place,
            };
            assert!(
                troubles.iter().any(|(_, planned, _)| is_it(*planned)),
                "{error}"
            );
        } else {
            assert!(matches!(error, PipelineError::Remote { .. }), "{error}");
            assert!(!error.to_string().contains("ended before"), "{error}");
        }
        plan.set(None);
        way.step(&mut pipeline, 2).unwrap();
    });
}
