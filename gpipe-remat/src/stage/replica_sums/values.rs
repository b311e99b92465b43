//! Values of parameters that one replica alone updates.

use gpipe_layers::Layer;
use gpipe_tensor::{Device, Tensor};

use super::{Kind, ReplicaSums, Share, with_values};
use crate::Result;
use crate::words::append;

impl ReplicaSums {
    /// Sends the new values of parameters that this replica alone updated, and takes those of the others.
    pub fn share_values(&self, layers: &mut [Box<dyn Layer>], near: &Device) -> Result<()> {
        let own = self.groups.replica();
        for (place, layer) in layers.iter_mut().enumerate() {
            if self.has_owners(place) {
                let mut body = Vec::new();
                self.each(place, layer.as_mut(), |param, shared| {
                    if shared == Share::Owner(own) {
                        with_values(param.exact()?, |values| append(&mut body, values))?;
                    }
                    Ok(())
                })?;
                self.post_all(place, Kind::Values, &body)?;
            }
        }
        for (place, layer) in layers.iter_mut().enumerate() {
            if !self.has_owners(place) {
                continue;
            }
            let mut of_replicas: Vec<std::vec::IntoIter<f32>> = Vec::new();
            for (replica, &rank) in self.ranks.iter().enumerate() {
                of_replicas.push(match replica == own {
                    true => Vec::new().into_iter(),
                    false => self.take(rank, place, Kind::Values)?.into_iter(),
                });
            }
            self.each(place, layer.as_mut(), |param, shared| {
                if let Share::Owner(owner) = shared
                    && owner != own
                {
                    let elements = param.value()?.elements();
                    let values: Vec<f32> = of_replicas[owner].by_ref().take(elements).collect();
                    let shape = param.shape.clone();
                    param.set_value(&Tensor::from_f32(near, shape, values)?)?;
                }
                Ok(())
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
}
