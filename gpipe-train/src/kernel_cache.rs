//! A folder of compiled CUDA kernels: only the first run on a device compiles them.

use std::path::PathBuf;
use std::{fs, process};

use gpipe_tensor::KernelCache;
use sha2::{Digest, Sha256};

/// A folder of compiled kernels.
pub struct KernelFolder {
    folder: PathBuf,
}

impl KernelFolder {
    /// A cache in `folder`, which is created with the first kernel.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }
}

/// Bytes of the SHA-256 hash in front of an image.
const HASH: usize = 32;

impl KernelCache for KernelFolder {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        let mut file = fs::read(self.folder.join(key)).ok()?;
        let image = file.split_off(file.len().min(HASH));
        (file == Sha256::digest(&image).as_slice()).then_some(image)
    }

    fn store(&self, key: &str, image: &[u8]) {
        let mut file = Sha256::digest(image).to_vec();
        file.extend(image);
        // Atomic: another process may read at the same time.
        let written = self.folder.join(format!("{key}.{}", process::id()));
        let stored = fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&written, file))
            .and_then(|()| fs::rename(&written, self.folder.join(key)));
        if stored.is_err() {
            // The next run compiles again.
            let _ = fs::remove_file(&written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelFolder::new(folder.path().join("new"));
        assert_eq!(cache.load("key"), None);
        cache.store("key", b"image");
        assert_eq!(cache.load("key").as_deref(), Some(&b"image"[..]));
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1);
        let path = cache.folder.join("key");
        let mut bytes = fs::read(&path).unwrap();
        bytes.pop();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(cache.load("key"), None);
        fs::write(&path, [0; 3]).unwrap();
        assert_eq!(cache.load("key"), None);
    }
}
