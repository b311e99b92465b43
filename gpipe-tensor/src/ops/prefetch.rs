//! Cache lines that are asked for before a loop needs them.
//!
//! What a backward pass reads was written long before, and comes from the third-level cache or from memory. Where a loop does much
//! for each float, too few of its reads are under way at once, and the processor's own look ahead ends with a page of 4 KiB: on an
//! Intel Xeon, waits were half the time of GELU's gradient. Loops that do little, such as the layer normalization's, gain nothing.

/// Floats that a loop computes between two looks ahead.
pub(super) const RUN: usize = 128;
/// How far ahead it looks, in floats: 2 KiB.
const AHEAD: usize = 512;
/// Floats of a cache line.
const LINE: usize = 16;

/// Asks for what a loop over a tensor reads some runs after this one.
#[inline(always)]
pub(super) fn fetch_ahead(run: &[f32]) {
    for line in (0..run.len()).step_by(LINE) {
        fetch(run, AHEAD + line);
    }
}

/// Asks for the cache line of a float, which may lie behind the end.
#[inline(always)]
pub(super) fn fetch(floats: &[f32], index: usize) {
    fetch_at(floats.as_ptr().wrapping_add(index));
}

/// As [`fetch_at`], into the second-level cache: for what is needed after what fills the first-level cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) fn fetch_far(place: *const f32) {
    use std::arch::x86_64::_MM_HINT_T1;
    prefetch::<_MM_HINT_T1>(place);
}

/// Asks for the cache line of a place, which may be none.
#[inline(always)]
pub(super) fn fetch_at(place: *const f32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn prefetch<const HINT: i32>(place: *const f32) {
    // SAFETY: every processor of this architecture has the instruction, which takes any address and has no effect but
    // on caches.
    unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(place.cast()) };
}
