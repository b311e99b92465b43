//! Sums of a stage's gradients over the replicas of a pipeline: who sums and updates what, and the messages between them.
//!
//! Every replica sums those of its own groups of micro-batches ([`GroupSums`](gpipe_sched::GroupSums)). Between them
//! each sums a share of the elements of every parameter: it is sent that of all others while the backward pass still
//! runs, layer by layer as they become complete, adds by the tree of the groups, and sends the sum back. So the bits
//! are those of one process, whatever the number of replicas.
//!
//! Statistics are few: every replica sends its own to all, and each merges all of them.
//!
//! Where the replicas divide the optimizer states, a parameter with state is summed by one of them as a whole, which
//! alone updates it, and sends its value back instead.

mod gradients;
mod statistics;
mod values;

use std::ops::Range;
use std::sync::Arc;

use gpipe_layers::Kind::Statistic;
use gpipe_layers::{Layer, Param, try_params};
use gpipe_sched::{Groups, Label, Parcel, World};
use gpipe_tensor::{Device, Tensor};

use crate::words::elements;
use crate::{Error, Result};

/// How the gradients of a layer's parameters are summed; of each, `owners` are the replica that alone has its optimizer
/// state.
pub(crate) fn shares_of(layer: &mut dyn Layer, owners: Vec<Option<usize>>) -> Vec<Share> {
    let (mut merges, mut owners) = (false, owners.into_iter());
    layer.merged_rows(&mut |_| merges = true);
    let mut shares = Vec::new();
    layer.params(&mut |param| {
        if param.grad.is_some() {
            shares.push(match owners.next().flatten() {
                Some(owner) => Share::Owner(owner),
                None if merges && param.kind == Statistic => Share::Merged,
                None => Share::Elements,
            });
        }
    });
    shares
}

/// A stage's place among its replicas.
pub(crate) struct ReplicaSums {
    world: Arc<World>,
    groups: Groups,
    /// The rank of the stage in each replica.
    ranks: Vec<usize>,
    stage: usize,
    /// The call of the step.
    call: u64,
    /// By layer: whether its gradients were sent.
    sent: Vec<bool>,
    /// By layer, for each parameter with a gradient.
    shares: Vec<Vec<Share>>,
}

/// What a message between replicas is of a layer.
#[derive(Clone, Copy)]
enum Kind {
    /// Gradients of a replica's groups.
    Parts,
    /// Gradients of all groups.
    Sums,
    Values,
    /// Statistics of a replica's groups, and their rows.
    Statistics,
}

/// How a parameter's gradient is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// By all replicas, some elements each.
    Elements,
    /// By this replica, which alone has the optimizer state.
    Owner(usize),
    /// Not: it is a statistic of a layer that merges them.
    Merged,
}

impl ReplicaSums {
    /// Of a stage on these ranks; `shares` are those of the parameters with a gradient, by layer.
    pub fn new(
        world: Arc<World>,
        groups: Groups,
        ranks: Vec<usize>,
        stage: usize,
        shares: Vec<Vec<Share>>,
    ) -> Self {
        Self {
            world,
            groups,
            ranks,
            stage,
            call: 0,
            sent: vec![false; shares.len()],
            shares,
        }
    }

    /// The replica that alone updates a parameter, of those with a gradient in a layer; `None` where all do.
    pub fn owner(&self, layer: usize, parameter: usize) -> Option<usize> {
        match self.shared(layer, parameter) {
            Share::Owner(owner) => Some(owner),
            _ => None,
        }
    }

    fn shared(&self, layer: usize, parameter: usize) -> Share {
        let of_layer = self.shares.get(layer);
        let share = of_layer.and_then(|of_layer| of_layer.get(parameter));
        share.copied().unwrap_or(Share::Elements)
    }

    /// Whether this replica updates it.
    pub fn is_own(&self, owner: Option<usize>) -> bool {
        owner.is_none_or(|owner| owner == self.groups.replica())
    }

    /// At the beginning of a step.
    pub fn begin(&mut self) {
        self.call = self.world.call();
        self.sent.fill(false);
    }

    fn post_all(&self, layer: usize, kind: Kind, body: &[u8]) -> Result<()> {
        for replica in self.others() {
            let parcel = Parcel {
                head: Vec::new(),
                bodies: vec![body.to_vec()],
            };
            self.world
                .post(self.ranks[replica], self.label(layer, kind), parcel)?;
        }
        Ok(())
    }

    fn take(&self, rank: usize, layer: usize, kind: Kind) -> Result<Vec<f32>> {
        let parcel = self.world.take_posted(rank, self.label(layer, kind))?;
        values_of(&parcel.bodies.into_iter().next().unwrap_or_default())
    }

    /// Visits the parameters of a layer that have a gradient, each with how it is summed; the first error ends it.
    fn each(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        mut visit: impl FnMut(&mut Param, Share) -> Result<()>,
    ) -> Result<()> {
        let mut parameter = 0;
        try_params(layer, |param| {
            if param.grad.is_none() {
                return Ok(());
            }
            let shared = self.shared(place, parameter);
            parameter += 1;
            visit(param, shared)
        })
    }

    /// The elements of a parameter that a replica sums.
    fn share(&self, shared: Share, elements: usize, replica: usize) -> Range<usize> {
        match shared {
            Share::Owner(owner) if owner == replica => return 0..elements,
            Share::Owner(_) | Share::Merged => return 0..0,
            Share::Elements => {}
        }
        let replicas = self.ranks.len();
        // In two parts, as the product may be too large.
        let (each, more) = (elements / replicas, elements % replicas);
        let start = |replica: usize| replica * each + replica * more / replicas;
        start(replica)..start(replica + 1)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.groups.replica();
        (0..self.ranks.len()).filter(move |&replica| replica != own)
    }

    fn label(&self, layer: usize, kind: Kind) -> Label {
        Label {
            call: self.call,
            place: self.stage,
            part: 4 * layer + kind as usize,
        }
    }
}

fn short(layer: usize) -> Error {
    Error::Assembly(format!(
        "the gradients of layer {layer} of the stage are others on another replica: start all alike"
    ))
}

fn append_numbers(head: &mut Vec<u8>, numbers: impl IntoIterator<Item = usize>) {
    let numbers = numbers.into_iter();
    head.extend(numbers.flat_map(|number| (number as u64).to_le_bytes()));
}

fn numbers_of(head: &[u8]) -> Vec<usize> {
    let (numbers, _) = head.as_chunks::<8>();
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes) as usize;
    numbers.iter().map(number).collect()
}

/// Sets the elements of a tensor on any device.
fn set(tensor: &mut Tensor, values: Vec<f32>, near: &Device) -> Result<()> {
    match tensor.f32s_mut() {
        Ok(own) => own.copy_from_slice(&values),
        Err(_) => tensor.copy_from(&Tensor::from_f32(near, tensor.shape().clone(), values)?)?,
    }
    Ok(())
}

/// Calls `read` with the elements of a tensor.
fn with_values<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
    Ok(match tensor.f32s() {
        Ok(values) => read(values),
        Err(_) => read(&tensor.to_f32s()?),
    })
}

fn values_of(body: &[u8]) -> Result<Vec<f32>> {
    let values = elements(body).map_err(Error::Assembly)?;
    Ok(values.into_owned())
}
