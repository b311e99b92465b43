//! Statistics of layers, which every replica sends to all and each merges.

use std::collections::BTreeMap;
use std::ops::Range;

use gpipe_layers::Layer;
use gpipe_tensor::{Device, Tensor};

use super::{Kind, ReplicaSums, Share, numbers_of, set, short, values_of};
use crate::stage::statistics::Statistics;
use crate::{Error, Result};

/// The statistics of a layer, by the bounds of the groups that they are of.
pub(super) type OfGroups = BTreeMap<[usize; 2], Statistics>;

impl ReplicaSums {
    /// Merges a layer's statistics of all groups into it.
    pub(super) fn merge(
        &self,
        place: usize,
        layer: &mut dyn Layer,
        mut parts: OfGroups,
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
        let mut add = |left: Result<Statistics>, right: Result<Statistics>| {
            let mut left = left?;
            left.merge(&right?)?;
            Ok(left)
        };
        let all = self.groups.sum_parts(&mut of, &mut add);
        let Statistics { rows, values } = all.ok_or_else(|| short(place))??;
        let (mut rows, mut values) = (rows.into_iter(), values.into_iter());
        layer.merged_rows(&mut |count| *count = rows.next().unwrap_or(*count));
        self.each(place, layer, |param, shared| {
            let value = match shared {
                Share::Merged => values.next(),
                _ => None,
            };
            match (&mut param.grad, value) {
                (Some(grad), Some(value)) => set(grad, value.to_f32s()?, near),
                _ => Ok(()),
            }
        })
    }
}
