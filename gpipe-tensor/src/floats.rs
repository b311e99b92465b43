//! Memory for floats.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};

use ndarray::{Array1, s};

use crate::{Error, Result};

/// Floats aligned to a cache line, so that no vector load of a kernel straddles two.
pub(crate) struct Floats(Memory);

enum Memory {
    Array(Array1<f32>),
    #[cfg(all(target_os = "linux", not(miri)))]
    Huge(HugePages),
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
            Memory::Huge(huge) => bytemuck::cast_slice(&huge.map[huge.bytes.clone()]),
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
            Memory::Huge(huge) => bytemuck::cast_slice_mut(&mut huge.map[huge.bytes.clone()]),
        }
    }
}

/// Floats in huge pages of 2 MiB, where the system has some. A product reads many rows at once that are 4 KiB
/// pages apart, more than the translation buffer (TLB) holds. In a virtual machine, where a miss costs
/// more, huge pages made training of a GPT 5 to 9 % faster.
#[cfg(all(target_os = "linux", not(miri)))]
struct HugePages {
    map: memmap2::MmapMut,
    bytes: std::ops::Range<usize>,
}

#[cfg(all(target_os = "linux", not(miri)))]
impl HugePages {
    const PAGE: usize = 2 << 20;

    /// `n` zeros, if they fill a huge page and the system has some. The rest beside whole huge pages is in
    /// small ones, so that no more memory is used than there are floats.
    fn zeros(n: usize) -> Option<Self> {
        let size = n.checked_mul(size_of::<f32>())?;
        if size < Self::PAGE {
            return None;
        }
        let map = memmap2::MmapMut::map_anon(size.checked_add(Self::PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(Self::PAGE);
        if start >= Self::PAGE {
            return None;
        }
        // It stays a wish: a system without huge pages gives small ones.
        let whole_pages = size / Self::PAGE * Self::PAGE;
        let _ = map.advise_range(memmap2::Advice::HugePage, start, whole_pages);
        let bytes = start..start + size;
        Some(Self { map, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeros_that_begin_on_a_cache_line() {
        for n in [0, 1, 15, 16, 17, 1024, 1 << 19, 1_000_001] {
            let mut floats = Floats::zeros(n).unwrap();
            assert_eq!(floats.len(), n);
            assert!(floats.iter().all(|&v| v.to_bits() == 0));
            floats.fill(1.0);
            assert_eq!(floats.iter().sum::<f32>(), n as f32);
            assert!(n == 0 || floats.as_ptr().addr().is_multiple_of(64));
        }
    }

    #[test]
    fn what_the_system_does_not_have_is_an_error() {
        for n in [1 << 45, isize::MAX as usize, usize::MAX - 20, usize::MAX] {
            let outcome = Floats::zeros(n);
            assert!(matches!(outcome, Err(Error::OutOfMemory { .. })));
        }
    }
}
