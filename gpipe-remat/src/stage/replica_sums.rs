//! Sums of a stage's gradients over the replicas of a pipeline.
//!
//! Every replica sums those of its own groups of micro-batches ([`GroupSums`](gpipe_sched::GroupSums)). Between them
//! each sums a share of the elements of every parameter: it is sent that of all others while the backward pass still
//! runs, layer by layer as they become complete, adds by the tree of the groups, and sends the sum back. So the bits
//! are those of one process, whatever the number of replicas.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gpipe_layers::{Layer, Param};
use gpipe_sched::{Groups, Label, Parcel, World};
use gpipe_tensor::{Device, Tensor};

use super::group_gradients::GroupGradients;
use crate::{Error, Result};

/// The elements of a parameter in one sum, and the groups that it is of.
type Part = (Range<usize>, Vec<f32>);

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
}

impl ReplicaSums {
    /// Of a stage of `layers` layers, on these ranks.
    pub fn new(
        world: Arc<World>,
        groups: Groups,
        ranks: Vec<usize>,
        stage: usize,
        layers: usize,
    ) -> Self {
        Self {
            world,
            groups,
            ranks,
            stage,
            call: 0,
            sent: vec![false; layers],
        }
    }

    /// At the beginning of a step.
    pub fn begin(&mut self) {
        self.call = self.world.call();
        self.sent.fill(false);
    }

    /// Sends the gradients of a layer, if the current sum is all that this replica will have of it: after its backward
    /// pass of the replica's last micro-batch.
    pub fn send_early(&mut self, place: usize, layer: &mut dyn Layer) -> Result<()> {
        let own = self.groups.own();
        match own.len() == 1 && self.sent.get(place) == Some(&false) {
            true => self.send(place, layer, &[(own, None)]),
            false => Ok(()),
        }
    }

    /// Sends what was not sent yet, after the replica's last micro-batch.
    pub fn send_rest(
        &mut self,
        layers: &mut [Box<dyn Layer>],
        gradients: &GroupGradients,
    ) -> Result<()> {
        let mut sums = gradients.parts();
        for (place, layer) in layers.iter_mut().enumerate() {
            let mut parameters = 0;
            layer.params(&mut |param| parameters += usize::from(param.grad.is_some()));
            let of_layer: Vec<(Range<usize>, Option<Vec<&Tensor>>)> = sums
                .iter_mut()
                .map(|(groups, held)| {
                    let held = held.as_mut();
                    let held = held.map(|held| held.by_ref().take(parameters).collect());
                    (groups.clone(), held)
                })
                .collect();
            if !self.sent[place] {
                self.send(place, layer.as_mut(), &of_layer)?;
            }
        }
        Ok(())
    }

    /// Sends its share of the sums of a layer to every other replica. A sum without tensors is the one in the parameters.
    fn send(
        &mut self,
        place: usize,
        layer: &mut dyn Layer,
        sums: &[(Range<usize>, Option<Vec<&Tensor>>)],
    ) -> Result<()> {
        self.sent[place] = true;
        let own = gradients(layer)?;
        if own.is_empty() {
            return Ok(());
        }
        let others = self.others().collect::<Vec<_>>();
        let mut parcels = vec![Parcel::default(); others.len()];
        for (groups, held) in sums {
            let tensors: Vec<&Tensor> = match held {
                Some(held) => held.clone(),
                None => own.iter().collect(),
            };
            for parcel in &mut parcels {
                for bound in [groups.start, groups.end] {
                    parcel.head.extend((bound as u64).to_le_bytes());
                }
                parcel.bodies.push(Vec::new());
            }
            for tensor in tensors {
                with_values(tensor, |values| {
                    for (&replica, parcel) in others.iter().zip(&mut parcels) {
                        let share = &values[self.share(values.len(), replica)];
                        if let Some(body) = parcel.bodies.last_mut() {
                            append(body, share);
                        }
                    }
                })?;
            }
        }
        for (&replica, parcel) in others.iter().zip(parcels) {
            self.world
                .post(self.ranks[replica], self.label(place, false), parcel);
        }
        Ok(())
    }

    /// Puts the sums over all replicas into the parameters. `near` is a device of the processor.
    pub fn finish(
        &mut self,
        layers: &mut [Box<dyn Layer>],
        gradients_of: &GroupGradients,
        near: &Device,
    ) -> Result<()> {
        let mut sums = gradients_of.parts();
        let mut own: Vec<Vec<Part>> = Vec::with_capacity(layers.len());
        for layer in &mut *layers {
            let current = gradients(layer.as_mut())?;
            let mut parts = Vec::new();
            for (groups, held) in &mut sums {
                let tensors: Vec<&Tensor> = match held {
                    Some(held) => held.by_ref().take(current.len()).collect(),
                    None => current.iter().collect(),
                };
                let mut share = Vec::new();
                for tensor in tensors {
                    with_values(tensor, |values| {
                        share.extend_from_slice(
                            &values[self.share(values.len(), self.groups.replica())],
                        );
                    })?;
                }
                parts.push((groups.clone(), share));
            }
            own.push(match current.is_empty() {
                true => Vec::new(),
                false => parts,
            });
        }
        drop(sums);
        // Gradients of the last layers are there first.
        let mut shares: HashMap<usize, Vec<f32>> = HashMap::new();
        for (place, parts) in own.into_iter().enumerate().rev() {
            if parts.is_empty() {
                continue;
            }
            let sum = self.sum(place, parts)?;
            for replica in self.others() {
                let mut body = Vec::new();
                append(&mut body, &sum);
                let parcel = Parcel {
                    head: Vec::new(),
                    bodies: vec![body],
                };
                self.world
                    .post(self.ranks[replica], self.label(place, true), parcel);
            }
            shares.insert(place, sum);
        }
        for (place, layer) in layers.iter_mut().enumerate().rev() {
            let Some(own) = shares.remove(&place) else {
                continue;
            };
            let mut sums: Vec<Vec<f32>> = Vec::with_capacity(self.ranks.len());
            for (replica, &rank) in self.ranks.iter().enumerate() {
                sums.push(match replica == self.groups.replica() {
                    true => own.clone(),
                    false => {
                        let parcel = self.world.take_posted(rank, self.label(place, true))?;
                        let body = parcel.bodies.into_iter().next();
                        values_of(&body.unwrap_or_default())?
                    }
                });
            }
            let mut taken = vec![0; sums.len()];
            let mut put = |param: &mut Param| {
                let Some(grad) = &mut param.grad else {
                    return Ok(());
                };
                let elements = grad.elements();
                let mut whole = Vec::with_capacity(elements);
                for (replica, (sum, taken)) in sums.iter().zip(&mut taken).enumerate() {
                    let end = *taken + self.share(elements, replica).len();
                    whole.extend_from_slice(sum.get(*taken..end).ok_or_else(|| short(place))?);
                    *taken = end;
                }
                match grad.f32s_mut() {
                    Ok(values) => values.copy_from_slice(&whole),
                    Err(_) => {
                        let whole = Tensor::from_f32(near, grad.shape().clone(), whole)?;
                        grad.copy_from(&whole)?;
                    }
                }
                Ok::<_, Error>(())
            };
            let mut result = Ok(());
            layer.params(&mut |param| {
                if result.is_ok() {
                    result = put(param);
                }
            });
            result?;
        }
        Ok(())
    }

    /// The sum of this replica's share of a layer over all groups.
    fn sum(&self, place: usize, own: Vec<Part>) -> Result<Vec<f32>> {
        let elements = own.first().map_or(0, |(_, values)| values.len());
        let mut parts: HashMap<Range<usize>, Vec<f32>> = own.into_iter().collect();
        for replica in self.others() {
            let parcel = self
                .world
                .take_posted(self.ranks[replica], self.label(place, false))?;
            let (bounds, _) = parcel.head.as_chunks::<8>();
            let bounds: Vec<usize> = bounds
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes) as usize)
                .collect();
            for (bounds, body) in bounds.chunks_exact(2).zip(parcel.bodies) {
                let values = values_of(&body)?;
                if values.len() != elements {
                    return Err(short(place));
                }
                parts.insert(bounds[0]..bounds[1], values);
            }
        }
        let mut of = |groups: &Range<usize>| parts.remove(groups);
        let mut add = |mut left: Vec<f32>, right: Vec<f32>| {
            left.iter_mut()
                .zip(right)
                .for_each(|(left, right)| *left += right);
            left
        };
        let sum = self.groups.sum_parts(&mut of, &mut add);
        sum.ok_or_else(|| short(place))
    }

    /// The elements of a parameter that a replica sums.
    fn share(&self, elements: usize, replica: usize) -> Range<usize> {
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

    fn label(&self, layer: usize, is_sum: bool) -> Label {
        Label {
            call: self.call,
            place: self.stage,
            part: 2 * layer + usize::from(is_sum),
        }
    }
}

fn short(layer: usize) -> Error {
    Error::Assembly(format!(
        "the gradients of layer {layer} of the stage are others on another replica: start all alike"
    ))
}

/// The gradients of a layer's parameters.
fn gradients(layer: &mut dyn Layer) -> Result<Vec<Tensor>> {
    let mut gradients = Vec::new();
    layer.params(&mut |param| gradients.extend(param.grad.clone()));
    Ok(gradients)
}

/// Calls `read` with the elements of a tensor.
fn with_values<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
    Ok(match tensor.f32s() {
        Ok(values) => read(values),
        Err(_) => read(&tensor.to_f32s()?),
    })
}

fn append(body: &mut Vec<u8>, values: &[f32]) {
    body.reserve(4 * values.len());
    body.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn values_of(body: &[u8]) -> Result<Vec<f32>> {
    match body.as_chunks::<4>() {
        (words, []) => Ok(words
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()),
        _ => Err(Error::Assembly(
            "the bytes of a gradient are no whole elements".to_owned(),
        )),
    }
}
