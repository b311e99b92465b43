//! Memory for floats.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};

use ndarray::{Array1, s};

#[cfg(all(target_os = "linux", not(miri)))]
use crate::huge_pages::{HugePages, Part};
use crate::{Error, Result};

/// Floats aligned to a cache line, so that no vector load of a kernel straddles two.
pub(crate) struct Floats(Memory);

enum Memory {
    Array(Array1<f32>),
    #[cfg(all(target_os = "linux", not(miri)))]
    Huge(HugePages),
    #[cfg(all(target_os = "linux", not(miri)))]
    Part(Part),
}

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
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Some(huge) = HugePages::zeros(n) {
            return Ok(Self(Memory::Huge(huge)));
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Some(part) = Part::zeros(n) {
            return Ok(Self(Memory::Part(part)));
        }
        let room = n.checked_add(LINE - 1);
        let layout = room.and_then(|room| Layout::array::<f32>(room).ok());
        let (Some(room), Some(layout)) = (room, layout) else {
            return Err(out_of_memory);
        };
        // SAFETY: `n` is not zero, so neither is the layout's size.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        if memory.is_null() {
            return Err(out_of_memory);
        }
        // SAFETY: the global allocator returned `memory` for the layout of an array of `room` floats,
        // it has no other owner, and all of its bytes are zero: `room` floats of value 0.
        let floats = unsafe { Vec::from_raw_parts(memory, room, room) };
        let start = floats.as_ptr().align_offset(64);
        let start = if start < LINE { start } else { 0 };
        Ok(Self(Memory::Array(
            Array1::from_vec(floats).slice_move(s![start..start + n]),
        )))
    }
}

impl Default for Floats {
    fn default() -> Self {
        Self(Memory::Array(Array1::from_vec(Vec::new())))
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Memory::Array(array) => array.as_slice().expect("a buffer is one contiguous run"),
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Huge(huge) => huge,
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Part(part) => part,
        }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Memory::Array(array) => array
                .as_slice_mut()
                .expect("a buffer is one contiguous run"),
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Huge(huge) => huge,
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Part(part) => part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeros_that_begin_on_a_cache_line() {
        for n in [
            0,
            1,
            15,
            16,
            17,
            1024,
            8191,
            8192,
            8193,
            300_001,
            1 << 19,
            1_000_001,
        ] {
            let mut floats = Floats::zeros(n).unwrap();
            assert_eq!(floats.len(), n);
            assert!(floats.iter().all(|&v| v.to_bits() == 0));
            floats.fill(1.0);
            assert_eq!(floats.iter().sum::<f32>(), n as f32);
            assert!(n == 0 || floats.as_ptr().addr().is_multiple_of(64));
        }
    }

    /// Each buffer holds what was written to it while those beside it come, are filled and go.
    #[test]
    fn parts_of_a_chunk_do_not_meet() {
        let sizes = [8192, 8193, 20_000, 100_001, 400_000, 524_287];
        let mut kept: Vec<(f32, Floats)> = Vec::new();
        for turn in 0..200_usize {
            let mut floats = Floats::zeros(sizes[turn % sizes.len()]).unwrap();
            assert!(floats.iter().all(|&v| v.to_bits() == 0), "turn {turn}");
            floats.fill(turn as f32);
            kept.push((turn as f32, floats));
            if turn % 3 == 2 {
                kept.swap_remove(turn % kept.len());
            }
            for (value, floats) in &kept {
                assert!(floats.iter().all(|v| v == value), "{value} in turn {turn}");
            }
            if kept.len() > 12 {
                kept.drain(..6);
            }
        }
    }

    /// A chunk keeps the pages of no part that was dropped, though another part keeps the chunk.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_pages_of_a_dropped_part_go_back() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
            let line = status.lines().find(|line| line.starts_with("Rss:"));
            let words = line.and_then(|line| line.split_whitespace().nth(1));
            words.unwrap().parse::<usize>().unwrap() << 10
        };
        let n = 400_000;
        let mut floats: Vec<_> = (0..200).map(|_| Floats::zeros(n).unwrap()).collect();
        for floats in &mut floats {
            floats.fill(1.0);
        }
        let before = resident();
        // One of ten stays, in each chunk one.
        let mut place = 0;
        floats.retain(|_| {
            place += 1;
            place % 10 == 0
        });
        let freed = before.saturating_sub(resident());
        assert_eq!(floats.len(), 20);
        // Other tests run beside this one.
        assert!(freed > 100 * n * size_of::<f32>(), "{freed} bytes");
    }

    #[test]
    fn what_the_system_does_not_have_is_an_error() {
        for n in [1 << 45, isize::MAX as usize, usize::MAX - 20, usize::MAX] {
            let outcome = Floats::zeros(n);
            assert!(matches!(outcome, Err(Error::OutOfMemory { .. })));
        }
    }
}
