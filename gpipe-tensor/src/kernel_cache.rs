//! A cache of compiled kernels, which outlives a process.

/// A cache of compiled kernels. The image of a key is a function of the key: a cache may forget an image, but
/// must never return other bytes than were stored.
pub trait KernelCache: Send + Sync {
    /// The complete image stored under `key`, if the cache still has it.
    fn load(&self, key: &str) -> Option<Vec<u8>>;

    /// Stores an image. A failure is silent: the next process compiles again.
    fn store(&self, key: &str, image: &[u8]);
}
