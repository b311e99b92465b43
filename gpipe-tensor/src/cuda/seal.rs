//! The digest in front of an image that a cache keeps: damage and mistakes are found by it.

use sha2::{Digest, Sha256};

/// Bytes of a digest.
const DIGEST: usize = 32;

fn digest(key: &str, image: &[u8]) -> [u8; DIGEST] {
    // No key holds a zero.
    let digest = Sha256::new().chain_update(key).chain_update([0]);
    digest.chain_update(image).finalize().into()
}

/// An image as a cache keeps it.
pub(super) fn sealed(key: &str, image: &[u8]) -> Vec<u8> {
    [&digest(key, image), image].concat()
}

/// The image in bytes that a cache gave for this key.
pub(super) fn opened<'a>(key: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
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
