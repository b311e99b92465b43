//! Opaque handles of the driver and the libraries.

/// An opaque handle that the driver or a library gave: this process never dereferences it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle<T>(pub T);

// SAFETY: the driver's functions may be called from any thread with any name that it gave; what a
// handle stands for is freed once, by its owner.
unsafe impl<T> Send for RawHandle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for RawHandle<T> {}
