//! Bytes that are held during the whole run: parameters, gradients and optimizer states.

use std::ops::Range;

use gpipe_layers::{Flow, Layer, Optimizer, Param};

use crate::StageMemory;

/// The bytes of every layer's parameters, their gradients and their optimizer states.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterBytes {
    layers: Vec<Vec<PlaceBytes>>,
    /// The layers with a tied place.
    tied: Vec<usize>,
    /// The replica and the number of those that the optimizer states are divided among.
    shards: Option<(Option<usize>, usize)>,
}

/// One parameter at one of its places.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceBytes {
    /// Its global name, which all of its places share.
    pub name: String,
    /// Bytes of its value.
    pub value: u64,
    /// Bytes of its gradient; none of a frozen parameter.
    pub gradient: u64,
    /// Bytes of its optimizer state, including the single-precision master where the value has a narrower
    /// type; 0 at a tied place.
    pub optimizer: u64,
    /// Whether this is a further place of a parameter that an earlier layer owns.
    pub tied: bool,
}

impl ParameterBytes {
    /// The bytes of a model, whose parameters need not be made yet. `optimizer` is `None` for evaluation
    /// only.
    pub fn new(layers: &mut [Box<dyn Layer>], optimizer: Option<&Optimizer>) -> Self {
        let weights = |layer: &mut Box<dyn Layer>| {
            let mut weights = Vec::new();
            layer.params(&mut |param: &mut Param| {
                let single = Flow::f32(param.shape.clone());
                weights.push(PlaceBytes {
                    name: param.name.clone(),
                    value: single.of(param.dtype).bytes(),
                    gradient: param.grad_bytes(),
                    optimizer: match param.tied {
                        true => 0,
                        false => optimizer.map_or(0, |o| o.state_bytes(param)),
                    },
                    tied: param.tied,
                });
            });
            weights
        };
        Self::of_layers(layers.iter_mut().map(weights).collect())
    }

    /// The bytes of layers that are described rather than built, first to last.
    pub fn of_layers(layers: Vec<Vec<PlaceBytes>>) -> Self {
        let is_tied = |&layer: &usize| layers[layer].iter().any(|weight| weight.tied);
        Self {
            tied: (0..layers.len()).filter(is_tied).collect(),
            layers,
            shards: None,
        }
    }

    /// The same on one of several replicas of the pipeline that divide the optimizer states among them, by whole
    /// parameters (ZeRO 1, arXiv:1910.02054). A [`RematPlan`](crate::RematPlan) of these bytes makes the stages do so.
    #[must_use]
    pub fn sharded(self, replica: usize, replicas: usize) -> Self {
        let shards = (replicas > 1).then_some((Some(replica), replicas));
        Self { shards, ..self }
    }

    /// The same on whichever of the replicas has the most of a stage.
    #[must_use]
    pub fn largest_shards(self, replicas: usize) -> Self {
        let shards = (replicas > 1).then_some((None, replicas));
        Self { shards, ..self }
    }

    /// Whether replicas divide the optimizer states among them.
    pub(crate) fn is_sharded(&self) -> bool {
        self.shards.is_some()
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The first layer with a parameter that has a gradient, at whichever of its places; 0 if there is none.
    pub(crate) fn first_trained(&self) -> usize {
        let trains = |layer: &Vec<PlaceBytes>| layer.iter().any(|weight| weight.gradient > 0);
        self.layers.iter().position(trains).unwrap_or(0)
    }

    /// Bytes of the gradients of a layer.
    pub(crate) fn gradients(&self, layer: usize) -> u64 {
        let gradients = self.layers[layer].iter().map(|weight| weight.gradient);
        gradients.fold(0, u64::saturating_add)
    }

    /// The bytes of a stage of these layers, without its activations. A tied gradient from another stage
    /// counts while it is merged.
    ///
    /// # Panics
    /// For layers that are not there.
    pub fn of_stage(&self, part: Range<usize>) -> StageMemory {
        let mut memory = StageMemory::default();
        let here = &self.layers[part.clone()];
        let after = self.tied.iter().filter(|&&layer| layer >= part.end);
        let after = after.flat_map(|&layer| &self.layers[layer]);
        let mut shards = self
            .shards
            .map(|(replica, replicas)| (replica, StateShards::new(replicas)));
        for weight in here.iter().flatten() {
            let is_here = match &mut shards {
                Some((replica, shards)) => {
                    let owner = shards.of(weight.optimizer);
                    replica.is_some() && owner == *replica
                }
                None => true,
            };
            memory.values = memory.values.saturating_add(weight.value);
            memory.gradients = memory.gradients.saturating_add(weight.gradient);
            if is_here {
                memory.optimizer = memory.optimizer.saturating_add(weight.optimizer);
            }
        }
        if let Some((None, shards)) = &shards {
            memory.optimizer = shards.loads.iter().copied().max().unwrap_or(0);
        }
        for tied in after.filter(|weight| weight.tied) {
            let owns = |weight: &&PlaceBytes| !weight.tied && weight.name == tied.name;
            if here.iter().flatten().any(|weight| owns(&weight)) {
                memory.ties = memory.ties.max(tied.gradient);
            }
        }
        memory
    }
}

/// Divides the optimizer states of a stage among replicas: in layer order each is that of the replica with the fewest
/// bytes so far.
pub(crate) struct StateShards {
    loads: Vec<u64>,
}

impl StateShards {
    pub fn new(replicas: usize) -> Self {
        Self {
            loads: vec![0; replicas],
        }
    }

    /// The replica of the next parameter; `None` if it has no state.
    pub fn of(&mut self, bytes: u64) -> Option<usize> {
        let replicas = self.loads.iter_mut().enumerate();
        let (replica, load) = replicas.min_by_key(|(_, load)| **load)?;
        *load = load.saturating_add(bytes);
        (bytes > 0).then_some(replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, gradient: u64, tied: bool) -> PlaceBytes {
        PlaceBytes {
            name: name.to_owned(),
            value: 10,
            gradient,
            optimizer: 0,
            tied,
        }
    }

    /// One gradient of a later place is beside that of the owner at a time.
    #[test]
    fn the_owner_of_ties_has_room_for_the_largest_gradient_of_later_stages() {
        let weights = ParameterBytes::of_layers(vec![
            vec![place("a", 7, false), place("b", 5, false)],
            vec![place("a", 7, true)],
            vec![place("b", 5, true), place("a", 6, true)],
        ]);
        let ties = |part: Range<usize>| weights.of_stage(part).ties;
        assert_eq!(ties(0..1), 7);
        // The place right behind the stage counts, those in it do not, and what is tied there owns nothing.
        assert_eq!((ties(0..2), ties(0..3)), (6, 0));
        assert_eq!((ties(1..2), ties(1..3), ties(2..3)), (0, 0, 0));
    }

    #[test]
    fn every_replica_has_its_share_of_the_states_and_the_largest_is_known() {
        let states = [8, 0, 3, 4, 2].map(|optimizer| PlaceBytes {
            optimizer,
            ..place("a", 1, false)
        });
        let weights = ParameterBytes::of_layers(vec![states.to_vec()]);
        let own = |weights: ParameterBytes| weights.of_stage(0..1).optimizer;
        // Each goes to the replica that has the least so far, the first of those.
        let shares = [0, 1, 2].map(|replica| own(weights.clone().sharded(replica, 3)));
        assert_eq!(shares, [8, 5, 4]);
        assert_eq!(own(weights.clone().largest_shards(3)), 8);
        assert_eq!(own(weights.clone().sharded(0, 1)), 17);
        assert!(!weights.clone().sharded(0, 1).is_sharded());
        assert!(!weights.largest_shards(1).is_sharded());
    }
}
