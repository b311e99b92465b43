//! Buffers of floats, and those that were freed and wait for their next use.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};

use ndarray::{Array1, s};

use crate::{Error, Result};

/// Floats that begin on a cache line: no vector load of a kernel then straddles two.
pub(crate) struct Floats(Array1<f32>);

/// Floats a cache line.
const LINE: usize = 64 / size_of::<f32>();

impl Floats {
    /// `n` zeros from the system, which gives large ones without writing them.
    pub(crate) fn zeros(n: usize) -> Result<Self> {
        let out_of_memory = Error::OutOfMemory {
            bytes: n.saturating_mul(size_of::<f32>()),
        };
        if n == 0 {
            return Ok(Self::default());
        }
        let room = n + LINE - 1;
        let Ok(layout) = Layout::array::<f32>(room) else {
            return Err(out_of_memory);
        };
        // SAFETY: `n` is not zero, so neither is the layout's size.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        if memory.is_null() {
            return Err(out_of_memory);
        }
        // SAFETY: the global allocator gave `memory` for the layout of an array of `room` floats,
        // it is written to nobody else, and all of its bytes are zero: `room` floats of value 0.
        let floats = unsafe { Vec::from_raw_parts(memory, room, room) };
        let start = floats.as_ptr().align_offset(64);
        let start = if start < LINE { start } else { 0 };
        Ok(Self(
            Array1::from_vec(floats).slice_move(s![start..start + n]),
        ))
    }
}

impl Default for Floats {
    fn default() -> Self {
        Self(Array1::from_vec(Vec::new()))
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().expect("a buffer is one contiguous run")
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.0
            .as_slice_mut()
            .expect("a buffer is one contiguous run")
    }
}

/// Buffers shorter than this are left to the allocator.
const POOLED_ELEMENTS: usize = 1024;

/// The free buffers, by exact length: training asks for the same lengths in every step, and from
/// the second step on finds them all here.
///
/// What lies free is bounded by twice the most that was ever in use at once, so that work of ever
/// changing sizes cannot pile buffers up; beyond that the longest unused are given back.
#[derive(Default)]
pub(crate) struct Pool {
    /// The free ones of each length, the last freed at the back, with the time of their freeing.
    free: HashMap<usize, VecDeque<(u64, Floats)>>,
    /// Elements that lie free, are in use, and were at most in use.
    idle: usize,
    in_use: usize,
    most_in_use: usize,
    /// Counts the freed buffers.
    time: u64,
}

impl Pool {
    /// A free buffer of `n` floats with unspecified contents. If there is none the caller is
    /// expected to make one, which then counts as in use.
    pub(crate) fn take(&mut self, n: usize) -> Option<Floats> {
        if n < POOLED_ELEMENTS {
            return None;
        }
        self.in_use += n;
        self.most_in_use = self.most_in_use.max(self.in_use);
        // The last freed is the likeliest to be in a cache still.
        let (_, buffer) = self.free.get_mut(&n)?.pop_back()?;
        self.idle -= n;
        Some(buffer)
    }

    /// Keeps a buffer that is no longer used.
    pub(crate) fn give(&mut self, buffer: Floats) {
        let n = buffer.len();
        if n < POOLED_ELEMENTS {
            return;
        }
        // A failed allocation was counted and never comes back, hence no plain subtraction.
        self.in_use = self.in_use.saturating_sub(n);
        self.idle += n;
        self.time += 1;
        let freed = (self.time, buffer);
        self.free.entry(n).or_default().push_back(freed);
        while self.idle > 2 * self.most_in_use {
            self.drop_longest_unused();
        }
    }

    /// Gives every free buffer back to the system.
    pub(crate) fn clear(&mut self) {
        self.free.clear();
        self.idle = 0;
    }

    fn drop_longest_unused(&mut self) {
        let oldest = self
            .free
            .iter()
            .filter_map(|(&n, buffers)| Some((buffers.front()?.0, n)))
            .min();
        let Some((_, n)) = oldest else { return };
        if let Some(buffers) = self.free.get_mut(&n) {
            buffers.pop_front();
            self.idle -= n;
            if buffers.is_empty() {
                self.free.remove(&n);
            }
        }
    }
}
