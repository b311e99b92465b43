//! The files for a host with a driver and no Rust: stripped programs, and a script that runs them.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::read::GzDecoder;
use xshell::{Shell, cmd};

use super::programs::Programs;
use crate::dist::{File, Files, checksum, pack};

/// Bytes of all files together, before they are packed.
const MOST: usize = 50_000_000;

/// Runs everything there.
const SCRIPT: &str = r#"#!/bin/sh
# Checks and measures gpipe on the GPU of this host and writes results.md; ends with 1 if a check went
# wrong, with 2 without a GPU. cuBLAS and NVRTC are taken from LD_LIBRARY_PATH, from the wheels of any Python
# found, or from a toolkit in /usr/local. `./run.sh --help` says what can be asked for: `--only a,b,c,d`, `--small`, `--peers DIR`, `--out FILE`.
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

/// Packs; with `check`, runs what was packed at small sizes on emulated GPUs.
pub fn run(shell: &Shell, root: &Path, check: bool) -> anyhow::Result<()> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = std::path::absolute(target)?.join("gpu");
    let files = collect(shell, &Programs::build(shell)?)?;
    let bytes: usize = files.values().map(|file| file.bytes.len()).sum();
    anyhow::ensure!(
        bytes < MOST,
        "{bytes} bytes are too many: {MOST} are the most"
    );
    let name = format!("gpipe-gpu-{}", env!("CARGO_PKG_VERSION"));
    let archive = pack(&name, &files)?;
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
    if check {
        return try_it(shell, &name, &archive, &folder.join("emulated.md"));
    }
    Ok(())
}

fn collect(shell: &Shell, programs: &Programs) -> anyhow::Result<Files> {
    let folder = shell.create_temp_dir()?;
    let mut files: Files = BTreeMap::new();
    let xtask = env::current_exe()?;
    for (name, program) in [
        ("gpipe", &programs.gpipe),
        ("operations", &programs.operations),
        ("products", &programs.products),
        ("xtask", &xtask),
    ] {
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

/// Unpacks the archive and runs its script where a driver is found that emulates GPUs.
fn try_it(shell: &Shell, name: &str, archive: &[u8], results: &Path) -> anyhow::Result<()> {
    let test =
        "test --quiet -p gpipe-tensor --features emulated --test emulated -- --nocapture --exact";
    let arguments = test.split(' ');
    let said = cmd!(
        shell,
        "cargo {arguments...} the_libraries_are_in_one_folder"
    )
    .read()?;
    let Some((_, libraries)) = said.split_once("libraries: ") else {
        println!("skipped: no GPUs are emulated without g++");
        return Ok(());
    };
    let libraries = libraries.lines().next().unwrap_or_default();
    let folder = shell.create_temp_dir()?;
    tar::Archive::new(GzDecoder::new(archive)).unpack(folder.path())?;
    let script = folder.path().join(name).join("run.sh");
    let faults = folder.path().join("faults");
    let settings = format!("seed=7 faults={}", faults.display());
    // As wheels lie in a Python's path, where the script looks; without a Python they are named to it.
    let wheels = folder.path().join("site-packages/nvidia/emulated");
    fs::create_dir_all(&wheels)?;
    std::os::unix::fs::symlink(libraries, wheels.join("lib"))?;
    let python = cmd!(shell, "python3 --version")
        .quiet()
        .ignore_stdout()
        .run();
    let named = if python.is_ok() { "" } else { libraries };
    cmd!(shell, "{script} --small --out {results}")
        .env("LD_LIBRARY_PATH", named)
        .env("PYTHONPATH", folder.path().join("site-packages"))
        .env("EMULATED_GPU", settings)
        .env("XDG_CACHE_HOME", folder.path())
        .run()?;
    let faults = fs::read_to_string(&faults).unwrap_or_default();
    anyhow::ensure!(
        faults.is_empty(),
        "the programs did what they may not:\n{faults}"
    );
    let written = fs::read_to_string(results)?;
    for heading in [
        "Operations",
        "Training",
        "Rehearsals",
        "compute-sanitizer",
        "Speed",
    ] {
        let found = written.contains(&format!("\n## {heading}"));
        anyhow::ensure!(found, "{} says nothing of {heading}", results.display());
    }
    println!("unpacked and run on emulated GPUs");
    Ok(())
}
