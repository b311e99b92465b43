//! What became of the operations that a handle put together for CUDA graphs.

/// Operations of actions, counted since the handle was opened: those that graphs did, and those that were asked for
/// one by one, by reason. See [`Device::graph_counts`](crate::Device::graph_counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphCounts {
    /// Launches of graphs.
    pub launches: u64,
    /// Graphs that were captured.
    pub captured: u64,
    /// Operations that graphs did.
    pub in_graphs: u64,
    /// Kernels in graphs that were given other arguments before a launch.
    pub arguments_set: u64,
    /// Operations of runs with these addresses, sizes and kernels that came for the first time.
    pub first: u64,
    /// Operations of runs of too few for a graph.
    pub few: u64,
    /// Operations for which there was no room among the graphs.
    pub full: u64,
    /// Operations of which the driver made no graph, or one that it would not change.
    pub refused: u64,
    /// Operations of steps in which memory was short, so that there was neither an arena nor a graph.
    pub short: u64,
    /// Bytes of the arena that buffers of actions lie in.
    pub arena_bytes: u64,
}

impl GraphCounts {
    /// Operations that were asked for one by one.
    pub fn alone(&self) -> u64 {
        self.first + self.few + self.full + self.refused + self.short
    }
}
