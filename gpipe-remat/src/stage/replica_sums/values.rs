//! Values of parameters that one replica alone updates.

use gpipe_layers::{Layer, try_params};
use gpipe_tensor::{Device, Tensor};

use super::{Kind, ReplicaSums, Share, with_values};
use crate::words::append;
use crate::{Error, Result};

impl ReplicaSums {
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
}
