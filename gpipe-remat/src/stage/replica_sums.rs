//! Sums of a stage's gradients over the replicas of a pipeline.
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

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use gpipe_layers::Kind::Statistic;
use gpipe_layers::{Layer, try_params};
use gpipe_sched::{Groups, Label, Parcel, World};
use gpipe_tensor::{Device, Tensor};

use super::group_gradients::{Held, Parts, StageSums};
use super::statistics::Statistics;
use crate::words::{append, elements};
use crate::{Error, Result};

/// The elements of a parameter in one sum, and the groups that it is of.
type Part = (Range<usize>, Vec<f32>);

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

    /// Sends the gradients of a layer, if the current sum is all that this replica will have of it: after its backward
    /// pass of the replica's last micro-batch.
    pub fn send_early(&mut self, place: usize, layer: &mut dyn Layer) -> Result<()> {
        let own = self.groups.own();
        match own.len() == 1 && self.sent.get(place) == Some(&false) {
            true => self.send(place, layer, &[(own, None, Vec::new())]),
            false => Ok(()),
        }
    }

    /// Sends what was not sent yet, after the replica's last micro-batch.
    pub fn send_rest(
        &mut self,
        layers: &mut [Box<dyn Layer>],
        mut sums: StageSums<'_>,
    ) -> Result<()> {
        for (place, layer) in layers.iter_mut().enumerate() {
            let of_layer = of_layer(sums.of(place), layer.as_mut());
            if !self.sent[place] {
                self.send(place, layer.as_mut(), &of_layer)?;
            }
        }
        Ok(())
    }

    /// Sends its share of the sums of a layer to every other replica.
    fn send(&mut self, place: usize, layer: &mut dyn Layer, sums: &[OfLayer]) -> Result<()> {
        self.sent[place] = true;
        let own = gradients(layer)?;
        if own.is_empty() {
            return Ok(());
        }
        let others = self.others().collect::<Vec<_>>();
        let mut parcels = vec![Parcel::default(); others.len()];
        let mut statistics = Parcel::default();
        for (groups, held, rows) in sums {
            let tensors: Vec<&Tensor> = match held {
                Some(held) => held.clone(),
                None => own.iter().collect(),
            };
            for parcel in &mut parcels {
                append_numbers(&mut parcel.head, [groups.start, groups.end]);
                parcel.bodies.push(Vec::new());
            }
            let (mut merged, mut counts) = (Vec::new(), rows.clone());
            if held.is_none() {
                layer.merged_rows(&mut |count| counts.push(*count));
            }
            for (parameter, tensor) in tensors.into_iter().enumerate() {
                let shared = self.shared(place, parameter);
                if shared == Share::Merged {
                    with_values(tensor, |values| append(&mut merged, values))?;
                    continue;
                }
                with_values(tensor, |values| {
                    for (&replica, parcel) in others.iter().zip(&mut parcels) {
                        let share = &values[self.share(shared, values.len(), replica)];
                        if let Some(body) = parcel.bodies.last_mut() {
                            append(body, share);
                        }
                    }
                })?;
            }
            if !counts.is_empty() {
                append_numbers(&mut statistics.head, [groups.start, groups.end]);
                append_numbers(
                    &mut statistics.head,
                    counts.iter().map(|&rows| rows as usize),
                );
                statistics.bodies.push(merged);
            }
        }
        for (&replica, parcel) in others.iter().zip(parcels) {
            let rank = self.ranks[replica];
            self.world
                .post(rank, self.label(place, Kind::Parts), parcel);
            if !statistics.bodies.is_empty() {
                let label = self.label(place, Kind::Statistics);
                self.world.post(rank, label, statistics.clone());
            }
        }
        Ok(())
    }

    /// Puts the sums over all replicas into the parameters. `near` is a device of the processor.
    pub fn finish(
        &mut self,
        layers: &mut [Box<dyn Layer>],
        mut sums: StageSums<'_>,
        near: &Device,
    ) -> Result<()> {
        let mut own: Vec<Vec<Part>> = Vec::with_capacity(layers.len());
        let mut merged: Vec<(usize, BTreeMap<[usize; 2], Statistics>)> = Vec::new();
        for (place, layer) in layers.iter_mut().enumerate() {
            let current = gradients(layer.as_mut())?;
            let mut parts = Vec::new();
            let mut statistics = BTreeMap::new();
            for (groups, held, rows) in of_layer(sums.of(place), layer.as_mut()) {
                let mut of_groups = Statistics::default();
                of_groups.rows.extend(rows);
                if held.is_none() {
                    layer.merged_rows(&mut |count| of_groups.rows.push(*count));
                }
                let tensors: Vec<&Tensor> = match held {
                    Some(held) => held,
                    None => current.iter().collect(),
                };
                let mut share = Vec::new();
                for (parameter, tensor) in tensors.into_iter().enumerate() {
                    let shared = self.shared(place, parameter);
                    if shared == Share::Merged {
                        let values = tensor.to_f32s()?;
                        let value = Tensor::from_f32(near, tensor.shape().clone(), values)?;
                        of_groups.values.push(value);
                        continue;
                    }
                    with_values(tensor, |values| {
                        let own = self.share(shared, values.len(), self.groups.replica());
                        share.extend_from_slice(&values[own]);
                    })?;
                }
                if !of_groups.rows.is_empty() {
                    statistics.insert([groups.start, groups.end], of_groups);
                }
                parts.push((groups, share));
            }
            if !statistics.is_empty() {
                merged.push((place, statistics));
            }
            own.push(match current.is_empty() {
                true => Vec::new(),
                false => parts,
            });
        }
        drop(sums);
        // Gradients of the last layers are there first.
        let mut shares: HashMap<usize, Vec<f32>> = HashMap::new();
        for (place, (parts, layer)) in own.into_iter().zip(&mut *layers).enumerate().rev() {
            if parts.is_empty() {
                continue;
            }
            let sum = self.sum(place, parts)?;
            // Those that a replica alone updates stay with it.
            let (mut body, mut rest, mut parameter) = (Vec::new(), &sum[..], 0);
            layer.params(&mut |param| {
                if let Some(grad) = &param.grad {
                    let shared = self.shared(place, parameter);
                    let own = self.share(shared, grad.elements(), self.groups.replica());
                    let (of_param, others) = rest.split_at(own.len().min(rest.len()));
                    if shared == Share::Elements {
                        append(&mut body, of_param);
                    }
                    (rest, parameter) = (others, parameter + 1);
                }
            });
            self.post_all(place, Kind::Sums, &body);
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
                    false => self.take(rank, place, Kind::Sums)?,
                });
            }
            let (mut taken, mut parameter) = (vec![0; sums.len()], 0);
            try_params(layer.as_mut(), |param| {
                let Some(grad) = &mut param.grad else {
                    return Ok(());
                };
                let (shared, elements) = (self.shared(place, parameter), grad.elements());
                parameter += 1;
                let mut whole = Vec::with_capacity(elements);
                for (replica, (sum, taken)) in sums.iter().zip(&mut taken).enumerate() {
                    let is_told = shared == Share::Elements || replica == self.groups.replica();
                    let share = self.share(shared, elements, replica).len();
                    let end = *taken + if is_told { share } else { 0 };
                    whole.extend_from_slice(sum.get(*taken..end).ok_or_else(|| short(place))?);
                    *taken = end;
                }
                match shared {
                    Share::Elements => set(grad, whole, near),
                    Share::Owner(owner) if owner == self.groups.replica() => set(grad, whole, near),
                    _ => Ok(()),
                }
            })?;
        }
        for (place, own) in merged {
            self.merge(place, layers[place].as_mut(), own, near)?;
        }
        Ok(())
    }

    /// Merges a layer's statistics of all groups into it.
    fn merge(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        mut parts: BTreeMap<[usize; 2], Statistics>,
        near: &Device,
    ) -> Result<()> {
        let own = parts.values().next();
        let (pairs, shapes): (usize, Vec<_>) = match own {
            Some(own) => (
                own.rows.len(),
                own.values.iter().map(|v| v.shape().clone()).collect(),
            ),
            None => return Ok(()),
        };
        for replica in self.others() {
            let label = self.label(place, Kind::Statistics);
            let parcel = self.world.take_posted(self.ranks[replica], label)?;
            let numbers = numbers_of(&parcel.head);
            for (numbers, body) in numbers.chunks(2 + pairs).zip(parcel.bodies) {
                let [start, end, ref rows @ ..] = *numbers else {
                    return Err(short(place));
                };
                let mut values = values_of(&body)?.into_iter();
                let tensors = shapes.iter().map(|shape| {
                    let elements = shape.elements().unwrap_or_default();
                    let values: Vec<f32> = values.by_ref().take(elements).collect();
                    Ok(Tensor::from_f32(near, shape.clone(), values)?)
                });
                let statistics = Statistics {
                    values: tensors.collect::<Result<Vec<_>>>()?,
                    rows: rows.iter().map(|&rows| rows as u64).collect(),
                };
                parts.insert([start, end], statistics);
            }
        }
        let mut of = |groups: &Range<usize>| {
            parts
                .remove(&[groups.start, groups.end])
                .map(Ok::<_, Error>)
        };
        let mut add = |left: Result<Statistics>, right: Result<Statistics>| left?.merge(right?);
        let all = self.groups.sum_parts(&mut of, &mut add);
        let Statistics { rows, values } = all.ok_or_else(|| short(place))??;
        let (mut rows, mut values) = (rows.into_iter(), values.into_iter());
        layer.merged_rows(&mut |count| *count = rows.next().unwrap_or(*count));
        let mut parameter = 0;
        try_params(layer, |param| {
            let Some(grad) = &mut param.grad else {
                return Ok(());
            };
            let is_merged = self.shared(place, parameter) == Share::Merged;
            parameter += 1;
            match is_merged.then(|| values.next()).flatten() {
                Some(value) => set(grad, value.to_f32s()?, near),
                None => Ok(()),
            }
        })
    }

    /// Sends the new values of parameters that this replica alone updated, and takes those of the others.
    pub fn share_values(&self, layers: &mut [Box<dyn Layer>], near: &Device) -> Result<()> {
        for (place, layer) in layers.iter_mut().enumerate() {
            if self.has_owners(place) {
                let (mut body, mut parameter) = (Vec::new(), 0);
                try_params(layer.as_mut(), |param| {
                    if param.grad.is_some() {
                        let owner = self.owner(place, parameter);
                        parameter += 1;
                        if owner == Some(self.groups.replica()) {
                            with_values(param.exact()?, |values| append(&mut body, values))?;
                        }
                    }
                    Ok::<_, Error>(())
                })?;
                self.post_all(place, Kind::Values, &body);
            }
        }
        for (place, layer) in layers.iter_mut().enumerate() {
            if !self.has_owners(place) {
                continue;
            }
            let mut of_replicas: Vec<std::vec::IntoIter<f32>> = Vec::new();
            for (replica, &rank) in self.ranks.iter().enumerate() {
                of_replicas.push(match replica == self.groups.replica() {
                    true => Vec::new().into_iter(),
                    false => self.take(rank, place, Kind::Values)?.into_iter(),
                });
            }
            let mut parameter = 0;
            try_params(layer.as_mut(), |param| {
                if param.grad.is_none() {
                    return Ok(());
                }
                let owner = self.owner(place, parameter);
                parameter += 1;
                let owner = owner.filter(|&owner| owner != self.groups.replica());
                if let Some(owner) = owner {
                    let elements = param.value()?.elements();
                    let values: Vec<f32> = of_replicas[owner].by_ref().take(elements).collect();
                    let shape = param.shape.clone();
                    param.set_value(&Tensor::from_f32(near, shape, values)?)?;
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }

    fn has_owners(&self, layer: usize) -> bool {
        let shares = self.shares.get(layer).into_iter().flatten();
        shares
            .into_iter()
            .any(|share| matches!(share, Share::Owner(_)))
    }

    fn post_all(&self, layer: usize, kind: Kind, body: &[u8]) {
        for replica in self.others() {
            let parcel = Parcel {
                head: Vec::new(),
                bodies: vec![body.to_vec()],
            };
            self.world
                .post(self.ranks[replica], self.label(layer, kind), parcel);
        }
    }

    fn take(&self, rank: usize, layer: usize, kind: Kind) -> Result<Vec<f32>> {
        let parcel = self.world.take_posted(rank, self.label(layer, kind))?;
        values_of(&parcel.bodies.into_iter().next().unwrap_or_default())
    }

    /// The sum of this replica's share of a layer over all groups.
    fn sum(&self, place: usize, own: Vec<Part>) -> Result<Vec<f32>> {
        let elements = own.first().map_or(0, |(_, values)| values.len());
        let mut parts: HashMap<Range<usize>, Vec<f32>> = own.into_iter().collect();
        for replica in self.others() {
            let parcel = self
                .world
                .take_posted(self.ranks[replica], self.label(place, Kind::Parts))?;
            let bounds = numbers_of(&parcel.head);
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

/// The sums of a layer: of these groups, its tensors, and the rows of its statistics. Without tensors they are those in
/// the layer.
type OfLayer<'a> = (Range<usize>, Option<Vec<&'a Tensor>>, Vec<u64>);

/// The sums of the next layer.
fn of_layer<'a>(sums: &mut Parts<'a>, layer: &mut dyn Layer) -> Vec<OfLayer<'a>> {
    let (mut parameters, mut counts) = (0, 0);
    layer.params(&mut |param| parameters += usize::from(param.grad.is_some()));
    layer.merged_rows(&mut |_| counts += 1);
    let of_sum = |(groups, held): &mut (Range<usize>, Option<Held<'a>>)| match held {
        None => (groups.clone(), None, Vec::new()),
        Some(held) => {
            let tensors = held.gradients.by_ref().take(parameters).collect();
            let rows = held.rows.by_ref().take(counts).copied().collect();
            (groups.clone(), Some(tensors), rows)
        }
    };
    sums.iter_mut().map(of_sum).collect()
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

fn values_of(body: &[u8]) -> Result<Vec<f32>> {
    let values = elements(body).map_err(Error::Assembly)?;
    Ok(values.into_owned())
}
