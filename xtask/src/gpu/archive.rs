//! The files for a host with a driver and no Rust: stripped programs, and a script that runs them.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::programs::Programs;
use crate::dist::{File, Files, checksum, pack};

/// Bytes of the archive, which is copied to a host whose time is short.
const MOST: usize = 25_000_000;

/// Runs everything there.
const SCRIPT: &str = r#"#!/bin/sh
# Checks and measures gpipe on the GPU of this host. Writes results.md, results.jsonl (an object a line) and results.summary.md
# (one page), each row as soon as it is known; ends with 1 if a check went wrong, with 2 without a GPU. cuBLAS and NVRTC are
# taken from LD_LIBRARY_PATH, from the wheels of any Python found, or from a toolkit in /usr/local. PyTorch is measured too where
# --python (python3 if not given) has one that reaches the GPU. `--only a` runs one of the parts a,b,c,d, each of which ends
# within --limit seconds (540 if not given), and adds to the results that are there. `./run.sh --help` says what else can be asked.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
wheels=$(for python in python3 python; do
    "$python" -c 'import glob, sys; [print(f) for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")]' 2>/dev/null
done)
for folder in $wheels /usr/local/cuda*/lib64; do
    if [ -d "$folder" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; fi
done
export LD_LIBRARY_PATH
exec "$here/xtask" gpu --programs "$here" "$@"
"#;

/// What was packed.
pub struct Packed {
    /// The folder in the archive.
    pub name: String,
    /// The archive.
    pub bytes: Vec<u8>,
    /// Where the archive is.
    pub folder: PathBuf,
}

/// Packs the programs, built in a profile of cargo, to target/gpu; `emulated` as [`Programs::build`] takes it.
///
/// # Errors
/// If one cannot be built or stripped, they are too large, or the archive cannot be written.
pub fn run(
    shell: &Shell,
    root: &Path,
    profile: Option<&str>,
    emulated: bool,
) -> anyhow::Result<Packed> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = std::path::absolute(target)?.join("gpu");
    let files = collect(shell, &Programs::build(shell, profile, emulated)?)?;
    let bytes: usize = files.values().map(|file| file.bytes.len()).sum();
    let name = format!("gpipe-gpu-{}", env!("CARGO_PKG_VERSION"));
    let archive = pack(&name, &files)?;
    anyhow::ensure!(
        archive.len() < MOST,
        "an archive of {} bytes is too large: {MOST} are the most",
        archive.len()
    );
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.tar.gz"));
    fs::write(&path, &archive).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    println!(
        "{} files, {:.1} MB, {:.1} MB packed, SHA-256 {}",
        files.len(),
        bytes as f64 / 1e6,
        archive.len() as f64 / 1e6,
        checksum(&archive),
    );
    Ok(Packed {
        name,
        bytes: archive,
        folder,
    })
}

fn collect(shell: &Shell, programs: &Programs) -> anyhow::Result<Files> {
    let folder = shell.create_temp_dir()?;
    let mut files: Files = BTreeMap::new();
    let xtask = env::current_exe()?;
    let xtask = ("xtask", xtask.as_path());
    for (name, program) in programs.named().into_iter().chain([xtask]) {
        let stripped = folder.path().join(name);
        cmd!(shell, "strip -o {stripped} {program}")
            .run()
            .context("stripping a program takes binutils")?;
        let bytes = fs::read(&stripped)?;
        let executable = true;
        files.insert(name.into(), File { bytes, executable });
    }
    let script = File {
        bytes: SCRIPT.into(),
        executable: true,
    };
    files.insert("run.sh".into(), script);
    Ok(files)
}
