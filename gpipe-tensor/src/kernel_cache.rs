//! A cache of compiled kernels, which outlives a process.

/// A cache of compiled kernels.
///
/// Nothing rests on it: bytes that are not those stored under the key are thrown away, and the kernels are
/// compiled again. What comes back is known by a digest of key and image in front of the image, which
/// finds damage and mistakes, not forgery: who can write to the cache decides what runs on the GPU.
pub trait KernelCache: Send + Sync {
    /// The bytes stored under `key`, if the cache still has them.
    fn load(&self, key: &str) -> Option<Vec<u8>>;

    /// Stores bytes. A failure is silent: the next process compiles again.
    fn store(&self, key: &str, bytes: &[u8]);
}
