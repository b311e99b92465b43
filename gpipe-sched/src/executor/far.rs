//! The other ranks of a pipeline, and how flows to them are written.

use std::sync::Arc;

use crate::executor::wire::Codec;
use crate::executor::world::World;

/// The other ranks of a pipeline.
pub(crate) struct Far<F> {
    pub world: Arc<World>,
    /// The number of replicas of the pipeline.
    pub replicas: usize,
    /// The rank of each device, in this replica.
    pub rank_of: Vec<usize>,
    pub codec: Arc<dyn Codec<F>>,
}

impl<F> Far<F> {
    /// The replica of a rank.
    pub fn replica_of(&self, rank: usize) -> usize {
        rank * self.replicas / self.world.ranks()
    }

    /// Whether a rank has stages of this replica.
    pub fn is_near(&self, rank: usize) -> bool {
        self.replica_of(rank) == self.replica_of(self.world.rank())
    }
}
