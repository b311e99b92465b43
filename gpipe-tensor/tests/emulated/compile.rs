//! C++ to a shared library, once for all runs of the tests.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Compiles the source to a shared library, with `more` options, unless an earlier run of the tests has done so.
///
/// # Errors
/// Where no compiler can be run.
pub fn library(name: &str, source: &str, more: &[&str]) -> Result<PathBuf, String> {
    let flags = [
        "-std=c++17",
        "-fPIC",
        "-shared",
        "-pthread",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-Wall",
    ];
    let mut hash = DefaultHasher::new();
    (source, flags, more).hash(&mut hash);
    let folder = folder();
    let library = folder.join(format!("{name}-{:016x}.so", hash.finish()));
    if library.is_file() {
        return Ok(library);
    }
    let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(wrong)?;
    let unique = format!("{:016x}-{}", hash.finish(), std::process::id());
    let text = folder.join(format!("{unique}.cpp"));
    let built = folder.join(format!("{unique}.so"));
    fs::write(&text, source).map_err(wrong)?;
    let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
    let output = Command::new(&compiler)
        .args(flags)
        .arg("-o")
        .args([&built, &text])
        .args(more)
        .output()
        .map_err(|e| format!("cannot run {compiler}: {e}"))?;
    if !output.status.success() {
        // Not a missing tool but a fault of the sources: a test that skipped it would hide it.
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&built, &library).map_err(wrong)?;
    let _ = fs::remove_file(&text);
    Ok(library)
}

/// Where compiled kernels are kept: beside the test that runs.
fn folder() -> PathBuf {
    let test = env::current_exe().unwrap_or_default();
    let folder = test.parent().unwrap_or(Path::new("."));
    folder.join("gpipe-emulator")
}
