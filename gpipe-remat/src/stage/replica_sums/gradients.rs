//! Gradients that a replica sends, its share of their sums, and the sums of all others.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use gpipe_layers::{Layer, try_params};
use gpipe_sched::Parcel;
use gpipe_tensor::{Device, Tensor};

use super::{
    Kind, ReplicaSums, Share, append_numbers, numbers_of, set, short, values_of, with_values,
};
use crate::Result;
use crate::stage::group_gradients::{Held, Parts, StageSums};
use crate::stage::statistics::Statistics;
use crate::words::append;

/// The elements of a parameter in one sum, and the groups that it is of.
type Part = (Range<usize>, Vec<f32>);

/// The sums of a layer: of these groups, its tensors, and the rows of its statistics. Without tensors they are those in
/// the layer.
type OfLayer<'a> = (Range<usize>, Option<Vec<&'a Tensor>>, Vec<u64>);

impl ReplicaSums {
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
}

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

/// The gradients of a layer's parameters.
fn gradients(layer: &mut dyn Layer) -> Result<Vec<Tensor>> {
    let mut gradients = Vec::new();
    layer.params(&mut |param| gradients.extend(param.grad.clone()));
    Ok(gradients)
}
