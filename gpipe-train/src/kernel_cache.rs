//! A folder of compiled CUDA kernels: only the first run on a device compiles them.

use std::fs;
use std::path::{Path, PathBuf};

use gpipe_files::{Links, read_capped, replace};
use gpipe_tensor::KernelCache;

/// A folder of compiled kernels.
pub struct KernelFolder {
    folder: PathBuf,
}

impl KernelFolder {
    /// A cache in `folder`, which is created with the first kernel, for its owner alone.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }
}

/// The largest file that is read: the kernels of a device take less than 1 MiB.
const LARGEST: u64 = 64 << 20;

impl KernelCache for KernelFolder {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        read_capped(&self.folder.join(key), LARGEST, Links::Refused, "").ok()
    }

    fn store(&self, key: &str, bytes: &[u8]) {
        // Without them the next run compiles again.
        let _ = created(&self.folder).map(|()| replace(&self.folder.join(key), bytes));
    }
}

/// Creates a folder that only its owner can enter.
fn created(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelFolder::new(folder.path().join("new"));
        assert_eq!(cache.load("key"), None);
        for bytes in [&b"image"[..], b"another"] {
            cache.store("key", bytes);
            assert_eq!(cache.load("key").as_deref(), Some(bytes));
        }
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn the_folder_is_its_owners_and_links_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let cache = KernelFolder::new(folder.path().join("new"));
        cache.store("key", b"image");
        let mode = fs::metadata(&cache.folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, b"theirs").unwrap();
        symlink(&elsewhere, cache.folder.join("link")).unwrap();
        assert_eq!(cache.load("link"), None);
        cache.store("link", b"ours");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
        assert_eq!(cache.load("link"), None);
        // A pipe would wait for a writer, a device never ends.
        symlink("/dev/zero", cache.folder.join("endless")).unwrap();
        assert_eq!(cache.load("endless"), None);
    }
}
