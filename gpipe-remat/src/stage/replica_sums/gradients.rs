//! Gradients that a replica sends, its share of their sums, and the sums of all others.

use std::collections::HashMap;
use std::ops::Range;

use gpipe_layers::Layer;
use gpipe_sched::Parcel;
use gpipe_tensor::{Device, Tensor};

use super::statistics::OfGroups;
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
            true => {
                let rows = rows_of(layer);
                self.send(place, layer, vec![(own, None, rows)])
            }
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
                self.send(place, layer.as_mut(), of_layer)?;
            }
        }
        Ok(())
    }

    /// Sends its share of the sums of a layer to every other replica.
    fn send(&mut self, place: usize, layer: &mut dyn Layer, sums: Vec<OfLayer<'_>>) -> Result<()> {
        self.sent[place] = true;
        let own = gradients(layer);
        if own.is_empty() {
            return Ok(());
        }
        let others = self.others().collect::<Vec<_>>();
        let mut parcels = vec![Parcel::default(); others.len()];
        let mut statistics = Parcel::default();
        for (groups, held, rows) in sums {
            let tensors = held.unwrap_or_else(|| own.iter().collect());
            for parcel in &mut parcels {
                append_numbers(&mut parcel.head, [groups.start, groups.end]);
                parcel.bodies.push(Vec::new());
            }
            let mut merged = Vec::new();
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
            if !rows.is_empty() {
                let bounds = [groups.start, groups.end];
                let rows = rows.iter().map(|&rows| rows as usize);
                append_numbers(&mut statistics.head, bounds.into_iter().chain(rows));
                statistics.bodies.push(merged);
            }
        }
        for (&replica, parcel) in others.iter().zip(parcels) {
            let rank = self.ranks[replica];
            self.world
                .post(rank, self.label(place, Kind::Parts), parcel)?;
            if !statistics.bodies.is_empty() {
                let label = self.label(place, Kind::Statistics);
                self.world.post(rank, label, statistics.clone())?;
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
        let (mut own, mut statistics) = (Vec::new(), Vec::new());
        for (place, layer) in layers.iter_mut().enumerate() {
            let of_layer = of_layer(sums.of(place), layer.as_mut());
            let (parts, of_groups) = self.collect(place, layer.as_mut(), of_layer, near)?;
            own.push(parts);
            statistics.push(of_groups);
        }
        drop(sums);
        // Gradients of the last layers are there first.
        let mut shares = Vec::new();
        for (place, (layer, parts)) in layers.iter_mut().zip(own).enumerate().rev() {
            if !parts.is_empty() {
                shares.push((place, self.sum_and_post(place, layer.as_mut(), parts)?));
            }
        }
        for (place, own) in shares {
            self.take_and_set(place, layers[place].as_mut(), own, near)?;
        }
        for (place, (layer, own)) in layers.iter_mut().zip(statistics).enumerate() {
            self.merge(place, layer.as_mut(), own, near)?;
        }
        Ok(())
    }

    /// The elements of a layer's gradients that this replica sums, and the statistics that it merges.
    fn collect(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        sums: Vec<OfLayer<'_>>,
        near: &Device,
    ) -> Result<(Vec<Part>, OfGroups)> {
        let current = gradients(layer);
        let (mut parts, mut statistics) = (Vec::new(), OfGroups::new());
        for (groups, held, rows) in sums {
            let tensors = held.unwrap_or_else(|| current.iter().collect());
            let (mut share, mut values) = (Vec::new(), Vec::new());
            for (parameter, tensor) in tensors.into_iter().enumerate() {
                let shared = self.shared(place, parameter);
                if shared == Share::Merged {
                    let copy = Tensor::from_f32(near, tensor.shape().clone(), tensor.to_f32s()?)?;
                    values.push(copy);
                    continue;
                }
                with_values(tensor, |values| {
                    let own = self.share(shared, values.len(), self.groups.replica());
                    share.extend_from_slice(&values[own]);
                })?;
            }
            if !rows.is_empty() {
                let bounds = [groups.start, groups.end];
                statistics.insert(bounds, Statistics { rows, values });
            }
            if !current.is_empty() {
                parts.push((groups, share));
            }
        }
        Ok((parts, statistics))
    }

    /// Sums this replica's share of a layer, and sends it to the others.
    fn sum_and_post(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        parts: Vec<Part>,
    ) -> Result<Vec<f32>> {
        let sum = self.sum(place, parts)?;
        // Those that a replica alone updates stay with it.
        let (mut body, mut rest) = (Vec::new(), &sum[..]);
        self.each(place, layer, |param, shared| {
            let elements = param.grad()?.elements();
            let own = self.share(shared, elements, self.groups.replica());
            let (of_param, others) = rest.split_at(own.len().min(rest.len()));
            if shared == Share::Elements {
                append(&mut body, of_param);
            }
            rest = others;
            Ok(())
        })?;
        self.post_all(place, Kind::Sums, &body)?;
        Ok(sum)
    }

    /// Takes the shares of the other replicas of a layer, and sets its gradients to all of them.
    fn take_and_set(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        mut own: Vec<f32>,
        near: &Device,
    ) -> Result<()> {
        let mut sums: Vec<Vec<f32>> = Vec::with_capacity(self.ranks.len());
        for (replica, &rank) in self.ranks.iter().enumerate() {
            sums.push(match replica == self.groups.replica() {
                true => std::mem::take(&mut own),
                false => self.take(rank, place, Kind::Sums)?,
            });
        }
        let mut taken = vec![0; sums.len()];
        self.each(place, layer, |param, shared| {
            let Some(grad) = &mut param.grad else {
                return Ok(());
            };
            let elements = grad.elements();
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
        })
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
    let (parameters, current) = (gradients(layer).len(), rows_of(layer));
    let of_sum = |(groups, held): &mut (Range<usize>, Option<Held<'a>>)| match held {
        None => (groups.clone(), None, current.clone()),
        Some(held) => {
            let tensors = held.gradients.by_ref().take(parameters).collect();
            let rows = held.rows.by_ref().take(current.len()).copied().collect();
            (groups.clone(), Some(tensors), rows)
        }
    };
    sums.iter_mut().map(of_sum).collect()
}

/// The gradients of a layer's parameters.
fn gradients(layer: &mut dyn Layer) -> Vec<Tensor> {
    let mut gradients = Vec::new();
    layer.params(&mut |param| gradients.extend(param.grad.clone()));
    gradients
}

/// The rows that a layer's statistics are of.
fn rows_of(layer: &mut dyn Layer) -> Vec<u64> {
    let mut rows = Vec::new();
    layer.merged_rows(&mut |count| rows.push(*count));
    rows
}
