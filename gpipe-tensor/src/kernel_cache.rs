//! A cache of compiled kernels, which outlives a process.

use sha2::{Digest, Sha256};

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

/// Bytes of a digest.
const DIGEST: usize = 32;

fn digest(key: &str, image: &[u8]) -> [u8; DIGEST] {
    // No key holds a zero.
    let digest = Sha256::new().chain_update(key).chain_update([0]);
    digest.chain_update(image).finalize().into()
}

/// An image as a cache keeps it.
pub(crate) fn sealed(key: &str, image: &[u8]) -> Vec<u8> {
    [&digest(key, image), image].concat()
}

/// The image in bytes that a cache gave for this key.
pub(crate) fn opened<'a>(key: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (seal, image) = bytes.split_first_chunk()?;
    (*seal == digest(key, image)).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_whole_and_under_its_key_or_not_at_all() {
        let sealed = sealed("key", b"image");
        assert_eq!(opened("key", &sealed), Some(&b"image"[..]));
        assert_eq!(opened("other", &sealed), None);
        for length in 0..sealed.len() {
            assert_eq!(opened("key", &sealed[..length]), None, "{length} bytes");
            let mut flipped = sealed.clone();
            flipped[length] ^= 4;
            assert_eq!(opened("key", &flipped), None, "byte {length}");
        }
        assert_eq!(opened("key", &[&sealed[..], b"s"].concat()), None);
    }
}
