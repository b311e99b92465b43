//! Memory in huge pages of Linux, for floats.

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Advice, MmapMut, UncheckedAdvice};

/// Bytes of a cache line, on which a part begins.
const LINE: usize = 64;

/// Floats in huge pages of 2 MiB, where the system has some. A product reads many rows at once that are 4 KiB
/// pages apart, more than the translation buffer (TLB) holds. In a virtual machine, where a miss costs
/// more, huge pages made training of a GPT 5 to 9 % faster.
pub(crate) struct HugePages {
    map: MmapMut,
    bytes: Range<usize>,
}

impl HugePages {
    const PAGE: usize = 2 << 20;

    /// `n` zeros, if they fill a huge page and the system has some. The rest beside whole huge pages is in
    /// small ones, so that no more memory is used than there are floats.
    pub(crate) fn zeros(n: usize) -> Option<Self> {
        let size = n.checked_mul(size_of::<f32>())?;
        if size < Self::PAGE {
            return None;
        }
        let map = MmapMut::map_anon(size.checked_add(Self::PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(Self::PAGE);
        if start >= Self::PAGE {
            return None;
        }
        // It stays a wish: a system without huge pages gives small ones.
        let whole_pages = size / Self::PAGE * Self::PAGE;
        let _ = map.advise_range(Advice::HugePage, start, whole_pages);
        let bytes = start..start + size;
        Some(Self { map, bytes })
    }
}

impl Deref for HugePages {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.map[self.bytes.clone()])
    }
}

impl DerefMut for HugePages {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.map[self.bytes.clone()])
    }
}

/// Floats in a part of a chunk of huge pages: those that do not fill one of their own. Weights and micro-batches of
/// small models are of that size. A first touch takes a fault for each page: gpt-mini's first step took 52,000 with
/// small pages and takes 3,400 with huge ones.
pub(crate) struct Part {
    start: *mut f32,
    len: usize,
    chunk: Arc<MmapMut>,
}

// SAFETY: a part is the only owner of its floats.
unsafe impl Send for Part {}
// SAFETY: `&Part` allows to read alone.
unsafe impl Sync for Part {}

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
    pub(crate) fn zeros(n: usize) -> Option<Self> {
        static OPEN: Mutex<Option<OpenChunk>> = Mutex::new(None);
        let size = n.checked_mul(size_of::<f32>())?;
        if !(Self::LEAST..HugePages::PAGE).contains(&size) {
            return None;
        }
        let size = size.next_multiple_of(LINE);
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

impl Deref for Part {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the chunk, which the part keeps mapped, has `len` initialized floats there, which no other part has
        // and which are written through `&mut self` alone.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

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
            let advice = UncheckedAdvice::DontNeed;
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
struct OpenChunk {
    chunk: Arc<MmapMut>,
    base: *mut u8,
    free: Range<usize>,
}

// SAFETY: the pointer is that of the map beside it, which may be sent.
unsafe impl Send for OpenChunk {}

impl OpenChunk {
    fn map() -> Option<Self> {
        let mut map = MmapMut::map_anon(Part::CHUNK + HugePages::PAGE).ok()?;
        let start = map.as_ptr().align_offset(HugePages::PAGE);
        if start >= HugePages::PAGE {
            return None;
        }
        let _ = map.advise_range(Advice::HugePage, start, Part::CHUNK);
        Some(Self {
            base: map.as_mut_ptr(),
            chunk: Arc::new(map),
            free: start..start + Part::CHUNK,
        })
    }
}
