//! Memory for floats.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};
#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::{Arc, Mutex, PoisonError};

use ndarray::{Array1, s};

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
            Memory::Huge(huge) => bytemuck::cast_slice(&huge.map[huge.bytes.clone()]),
            #[cfg(all(target_os = "linux", not(miri)))]
            // SAFETY: the chunk, which the part keeps mapped, has `len` initialized floats there, which no other part
            // has and which are written through `&mut self` alone.
            Memory::Part(part) => unsafe { std::slice::from_raw_parts(part.start, part.len) },
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
            #[cfg(all(target_os = "linux", not(miri)))]
            // SAFETY: as above.
            Memory::Part(part) => unsafe { std::slice::from_raw_parts_mut(part.start, part.len) },
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

/// Floats in a part of a chunk of huge pages: those that do not fill one of their own. Weights and micro-batches of
/// small models are of that size. A first touch takes a fault for each page: gpt-mini's first step took 52,000 with
/// small pages and takes 3,400 with huge ones.
#[cfg(all(target_os = "linux", not(miri)))]
struct Part {
    start: *mut f32,
    len: usize,
    chunk: Arc<memmap2::MmapMut>,
}

// SAFETY: a part is the only owner of its floats.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe impl Send for Part {}
// SAFETY: `&Part` allows to read alone.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe impl Sync for Part {}

#[cfg(all(target_os = "linux", not(miri)))]
impl Part {
    /// Bytes of a chunk. Of it only what has parts is touched, to a huge page.
    const CHUNK: usize = 8 * HugePages::PAGE;
    /// Bytes of the smallest part; smaller buffers are left to the allocator.
    const LEAST: usize = 32 << 10;
    /// Bytes of a page, or of the largest where systems differ: advice about less would reach the part beside it.
    const SMALL_PAGE: usize = if cfg!(target_arch = "x86_64") {
        4 << 10
    } else {
        64 << 10
    };

    /// `n` zeros, if they are neither too few nor fill a huge page.
    fn zeros(n: usize) -> Option<Self> {
        static OPEN: Mutex<Option<OpenChunk>> = Mutex::new(None);
        let size = n.checked_mul(size_of::<f32>())?;
        if !(Self::LEAST..HugePages::PAGE).contains(&size) {
            return None;
        }
        let size = size.next_multiple_of(LINE * size_of::<f32>());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(|open| open.free.len() < size) {
            *open = Some(OpenChunk::map()?);
        }
        let open = open.as_mut()?;
        let place = open.free.start;
        open.free.start += size;
        // SAFETY: `place` lies in the map. The pointer was taken from the map as a whole, before it was shared.
        let start = unsafe { open.base.add(place) }.cast();
        Some(Self {
            start,
            len: n,
            chunk: open.chunk.clone(),
        })
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl Drop for Part {
    /// Gives the pages of the part back to the system; the addresses follow with the last part of the chunk.
    fn drop(&mut self) {
        // Whole pages are counted in addresses: the map itself need not begin on a large one.
        let base = self.chunk.as_ptr().addr();
        let start = self.start.addr();
        let end = start + self.len * size_of::<f32>();
        let first = start.next_multiple_of(Self::SMALL_PAGE) - base;
        let end = (end / Self::SMALL_PAGE * Self::SMALL_PAGE).saturating_sub(base);
        if first < end {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: nobody reads these bytes any more: the part was their only owner, and no other part gets them.
            // A system that takes no advice keeps the pages until the chunk is unmapped.
            let _ = unsafe {
                self.chunk
                    .unchecked_advise_range(advice, first, end - first)
            };
        }
    }
}

/// The chunk from which parts are taken, one behind the other.
#[cfg(all(target_os = "linux", not(miri)))]
struct OpenChunk {
    chunk: Arc<memmap2::MmapMut>,
    base: *mut u8,
    free: std::ops::Range<usize>,
}

// SAFETY: the pointer is that of the map beside it, which may be sent.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe impl Send for OpenChunk {}

#[cfg(all(target_os = "linux", not(miri)))]
impl OpenChunk {
    fn map() -> Option<Self> {
        let mut map = memmap2::MmapMut::map_anon(Part::CHUNK + HugePages::PAGE).ok()?;
        let start = map.as_ptr().align_offset(HugePages::PAGE);
        if start >= HugePages::PAGE {
            return None;
        }
        let _ = map.advise_range(memmap2::Advice::HugePage, start, Part::CHUNK);
        Some(Self {
            base: map.as_mut_ptr(),
            chunk: Arc::new(map),
            free: start..start + Part::CHUNK,
        })
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
