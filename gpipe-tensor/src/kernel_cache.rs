//! Where compiled kernels are kept from one process to the next.

/// A place for compiled kernels. What is stored under a key is a function of the key: a cache may
/// forget, but it gives nothing else than what it got.
pub trait KernelCache: Send + Sync {
    /// What was stored under the key, if it is still there and whole.
    fn load(&self, key: &str) -> Option<Vec<u8>>;

    /// Keeps an image. Nobody is told if that fails: the next process compiles again.
    fn store(&self, key: &str, image: &[u8]);
}
