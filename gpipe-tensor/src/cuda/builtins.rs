//! NVRTC's second library, `libnvrtc-builtins`, opened by its full path.
//!
//! NVRTC looks for it by name when it compiles first, and wheels of NVRTC 13 have no RUNPATH: where the
//! first library was found by its path alone, the second is not found unless it is there already.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use libloading::Library;

/// Opens the library that lies beside NVRTC, once; where it cannot be opened, NVRTC looks for it itself.
pub(super) fn open() {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for path in folder(&maps).map(libraries).unwrap_or_default() {
            // SAFETY: it is the part of NVRTC that would be loaded by its first compilation.
            if let Ok(library) = unsafe { Library::new(path) } {
                // It stays loaded for as long as NVRTC does: to the end of the process.
                std::mem::forget(library);
                return;
            }
        }
    });
}

/// The folder that NVRTC was loaded from, by the process's map of its memory.
fn folder(maps: &str) -> Option<&Path> {
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let mut paths = paths.map(Path::new).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libnvrtc.so"))
    });
    paths.next()?.parent()
}

/// The files of this folder that are such a library.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libnvrtc-builtins.so."))
    };
    entries.map(|entry| entry.path()).filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_that_of_nvrtc_alone() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 08:01 42    {path}\n");
        let others = line("/usr/lib/libnvrtc-builtins.so.13.0") + &line("[heap]");
        assert_eq!(folder(&others), None);
        let maps = others + &line("/a b/lib/libnvrtc.so.13");
        assert_eq!(folder(&maps), Some(Path::new("/a b/lib")));
    }
}
