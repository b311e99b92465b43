//! The graphs of a handle: operations that come again are launched by one call.
//!
//! A graph belongs to the operations that it was captured of, one after the other, with the addresses of products, fillings and
//! copies. Whatever else differs, arguments of this crate's kernels, is set in the graph's nodes before it is
//! launched. Nothing is taken on trust: each launch compares all operations with those of the graph, so a graph never
//! does anything but what was asked for, wherever memory went since.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use super::asked::{Asked, same_arguments};
use super::blas::Blas;
use super::graph::{Graph, Node};
use super::stream::Stream;
use crate::GraphCounts;
use crate::error::Result;

/// Fewer operations are asked for one by one.
const LEAST: usize = 4;

/// Graphs that a handle keeps. A schedule needs one for each of its actions, at most.
const MOST: usize = 256;

/// Runs of operations that are remembered until they come again.
const REMEMBERED: usize = 16 * MOST;

/// Graphs by the hash of their operations, and what came once.
#[derive(Default)]
pub(super) struct Replays {
    graphs: HashMap<u64, Replay>,
    /// When each was met last.
    met: HashMap<u64, u64>,
    now: u64,
    pub counts: GraphCounts,
}

/// Operations and their graph.
struct Replay {
    asked: Vec<Asked>,
    /// The nodes of kernels.
    nodes: Vec<Option<Node>>,
    /// None if the driver made no graph of them.
    graph: Option<Graph>,
    used: u64,
}

impl Replays {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.graphs.clear();
        self.met.clear();
    }

    /// Does the operations, by a graph if they came before.
    ///
    /// # Safety
    /// As [`Asked::ask`] says of each of them. The stream is always the same.
    pub unsafe fn run(
        &mut self,
        asked: Vec<Asked>,
        stream: &Stream,
        blas: Option<&mut Blas>,
    ) -> Result<()> {
        let work = asked.iter().filter(|asked| asked.is_work()).count();
        let count = work as u64;
        if work < LEAST {
            self.counts.few += count;
            // SAFETY: the caller vouches for this and what follows.
            return unsafe { one_by_one(&asked, stream, blas) };
        }
        self.now += 1;
        let key = key_of(&asked);
        if let Some(replay) = self.graphs.get_mut(&key) {
            replay.used = self.now;
            // SAFETY: as above.
            return match unsafe { replay.prepare(&asked) } {
                Some(set) => {
                    self.counts.launches += 1;
                    self.counts.in_graphs += count;
                    self.counts.arguments_set += set;
                    // SAFETY: as above; the graph does what is asked for now.
                    unsafe { replay.launch(stream) }
                }
                None => {
                    self.counts.refused += count;
                    // SAFETY: as above.
                    unsafe { one_by_one(&asked, stream, blas) }
                }
            };
        }
        let came_before = self.met.insert(key, self.now).is_some();
        if !came_before || !self.has_room() {
            let reason = match came_before {
                false => &mut self.counts.first,
                true => &mut self.counts.full,
            };
            *reason += count;
            self.forget_old();
            // SAFETY: as above.
            return unsafe { one_by_one(&asked, stream, blas) };
        }
        let mut blas = blas;
        // SAFETY: as above.
        let replay = unsafe { Replay::capture(asked, stream, blas.as_deref_mut(), self.now) };
        let replay = self.graphs.entry(key).insert_entry(replay).into_mut();
        if replay.graph.is_none() {
            self.counts.refused += count;
            // SAFETY: as above.
            return unsafe { one_by_one(&replay.asked, stream, blas) };
        }
        self.counts.captured += 1;
        self.counts.launches += 1;
        self.counts.in_graphs += count;
        // SAFETY: as above; it was captured of what is asked for.
        unsafe { replay.launch(stream) }
    }

    /// Whether there is room for one more graph; one that was not used for long makes it.
    fn has_room(&mut self) -> bool {
        if self.graphs.len() >= MOST {
            let since = self.now.saturating_sub(2 * MOST as u64);
            self.graphs.retain(|_, replay| replay.used >= since);
        }
        self.graphs.len() < MOST
    }

    /// Forgets what was met long ago.
    fn forget_old(&mut self) {
        if self.met.len() > REMEMBERED {
            let since = self.now.saturating_sub(REMEMBERED as u64 / 2);
            self.met.retain(|_, met| *met >= since);
        }
    }
}

impl Replay {
    /// Captures operations; without a graph if the driver cannot.
    ///
    /// # Safety
    /// As [`Replays::run`].
    unsafe fn capture(
        asked: Vec<Asked>,
        stream: &Stream,
        mut blas: Option<&mut Blas>,
        now: u64,
    ) -> Self {
        let mut nodes = Vec::with_capacity(asked.len());
        let graph = Graph::capture(stream, |capture| {
            for one in &asked {
                // SAFETY: nothing is done yet; the caller vouches for when it is.
                unsafe { one.ask(stream, blas.as_deref_mut()) }?;
                nodes.push(match one {
                    Asked::Launch(_) => Some(capture.last()?),
                    _ => None,
                });
            }
            Ok(())
        });
        Self {
            asked,
            nodes,
            // What was wrong is said again when the operations are asked for one by one.
            graph: graph.ok(),
            used: now,
        }
    }

    /// Makes the graph do these operations; how many kernels were given other arguments, or none if it cannot.
    ///
    /// # Safety
    /// As [`Replays::run`].
    unsafe fn prepare(&mut self, asked: &[Asked]) -> Option<u64> {
        let graph = self.graph.as_mut()?;
        let alike = || self.asked.iter().zip(asked).all(|(a, b)| a.is_like(b));
        if self.asked.len() != asked.len() || !alike() {
            // Another run of operations has the same hash.
            return None;
        }
        let mut set = 0;
        for ((old, new), node) in self.asked.iter_mut().zip(asked).zip(&self.nodes) {
            let (Asked::Launch(old), Asked::Launch(new), Some(node)) = (old, new, node) else {
                continue;
            };
            if same_arguments(old, new) {
                continue;
            }
            // SAFETY: the node was captured of a launch like this one; the caller vouches for its pointers.
            if unsafe { graph.set_arguments(*node, new) }.is_err() {
                // What it does is not known any more.
                self.graph = None;
                return None;
            }
            old.args.clone_from(&new.args);
            set += 1;
        }
        Some(set)
    }

    /// # Safety
    /// As [`Replays::run`], of the operations that the graph was captured of or prepared for.
    unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        match &self.graph {
            // SAFETY: the caller vouches for it.
            Some(graph) => unsafe { graph.launch(stream) },
            None => Ok(()),
        }
    }
}

/// # Safety
/// As [`Asked::ask`] says of each of them.
unsafe fn one_by_one(asked: &[Asked], stream: &Stream, mut blas: Option<&mut Blas>) -> Result<()> {
    asked.iter().try_for_each(|asked| {
        // SAFETY: the caller vouches for it.
        unsafe { asked.ask(stream, blas.as_deref_mut()) }
    })
}

fn key_of(asked: &[Asked]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for asked in asked {
        asked.hash_likeness(&mut hasher);
    }
    hasher.finish()
}
