//! The archive that people download: `gpipe-VERSION-TARGET.tar.gz` with its SHA-256 beside it.
//!
//! The same files give the same bytes: they are sorted, and their times and owners are fixed.

mod licences;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use xshell::{Shell, cmd};

use crate::flags::Dist;
use crate::tree;

/// The time of every file: 1980, the first year that all formats of archives know.
const TIME: u64 = 315_532_800;

/// The shells that completions are written for.
const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Files by their path in the archive.
pub type Files = BTreeMap<String, File>;

/// A file of an archive.
pub struct File {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Whether it is a program.
    pub executable: bool,
}

impl File {
    fn text(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            bytes: bytes.into(),
            executable: false,
        }
    }
}

/// Builds the program and packs it with its pages, completions and licences. With `--check`, the
/// archive is unpacked again and the program in it is run.
pub fn run(shell: &Shell, root: &Path, flags: &Dist) -> anyhow::Result<()> {
    // Together with the other crates, as a user builds it: alone its dependencies would be built again.
    cmd!(shell, "cargo build --release --locked").run()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = std::path::absolute(target)?;
    let host = host(shell)?;
    let name = format!("gpipe-{}-{host}", env!("CARGO_PKG_VERSION"));
    let program = format!("gpipe{}", env::consts::EXE_SUFFIX);

    let files = collect(shell, root, &target.join("release").join(&program), &host)?;
    let archive = pack(&name, &files)?;
    let folder = target.join("dist");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.tar.gz"));
    fs::write(&path, &archive).with_context(|| format!("writing {}", path.display()))?;
    let sum = checksum(&archive);
    // As `sha256sum --check` reads it.
    let line = format!("{sum}  {name}.tar.gz\n");
    fs::write(folder.join(format!("{name}.tar.gz.sha256")), line)?;
    println!("{}", path.display());
    println!(
        "{} files, {} bytes, SHA-256 {sum}",
        files.len(),
        archive.len()
    );
    if flags.check {
        check(shell, &path, &name, &program, &files)?;
        println!("unpacked, compared and run");
    }
    Ok(())
}

/// The target that cargo builds for.
fn host(shell: &Shell) -> anyhow::Result<String> {
    let version = cmd!(shell, "rustc --version --verbose").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

fn collect(shell: &Shell, root: &Path, program: &Path, host: &str) -> anyhow::Result<Files> {
    let read =
        |path: PathBuf| fs::read(&path).with_context(|| format!("reading {}", path.display()));
    let mut files = Files::new();
    let executable = File {
        bytes: read(program.to_owned())?,
        executable: true,
    };
    files.insert(format!("gpipe{}", env::consts::EXE_SUFFIX), executable);
    files.insert(
        "README.md".into(),
        File::text(read(root.join("gpipe-cli/README.md"))?),
    );
    for page in tree::entries(&root.join("gpipe-cli/reference"))? {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        files.insert(format!("reference/{name}"), File::text(read(page.clone())?));
    }
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.insert(name.into(), File::text(read(root.join(name))?));
    }
    let licences = licences::of_dependencies(shell, "gpipe-cli", host)?;
    files.insert("LICENSES-OF-DEPENDENCIES.txt".into(), File::text(licences));

    let made = shell.create_temp_dir()?;
    let (man, completions) = (made.path().join("man"), made.path().join("completions"));
    cmd!(shell, "{program} generate man {man}").quiet().run()?;
    for name in SHELLS {
        cmd!(shell, "{program} generate completions {name} {completions}")
            .quiet()
            .run()?;
    }
    for (folder, name) in [(man, "man/man1"), (completions, "completions")] {
        for path in tree::entries(&folder)? {
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            files.insert(format!("{name}/{file}"), File::text(read(path)?));
        }
    }
    Ok(files)
}

/// The archive with everything below one folder.
pub fn pack(folder: &str, files: &Files) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (path, file) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.bytes.len() as u64);
        header.set_mode(if file.executable { 0o755 } else { 0o644 });
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{folder}/{path}"), &file.bytes[..])?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// SHA-256, as text.
pub fn checksum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fails unless the archive gives back what went into it, and its program runs.
fn check(
    shell: &Shell,
    path: &Path,
    name: &str,
    program: &str,
    files: &Files,
) -> anyhow::Result<()> {
    let again = pack(name, files)?;
    let archive = fs::read(path)?;
    anyhow::ensure!(again == archive, "packed twice, the archive differs");
    let mut entries = tar::Archive::new(GzDecoder::new(&archive[..]));
    let mut left = files.iter();
    for entry in entries.entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        let (expected, file) = left
            .next()
            .context("the archive holds more than was packed")?;
        let found = entry.path()?.to_string_lossy().into_owned();
        anyhow::ensure!(
            found == format!("{name}/{expected}") && bytes == file.bytes,
            "{found} is not {expected} as it was packed"
        );
    }
    anyhow::ensure!(
        left.next().is_none(),
        "the archive holds less than was packed"
    );

    let folder = shell.create_temp_dir()?;
    tar::Archive::new(GzDecoder::new(&archive[..])).unpack(folder.path())?;
    let program = folder.path().join(name).join(program);
    let version = cmd!(shell, "{program} --version").quiet().read()?;
    anyhow::ensure!(
        version == format!("gpipe {}", env!("CARGO_PKG_VERSION")),
        "the program says that it is {version}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let file = |executable| File {
            bytes: vec![1, 2, 3],
            executable,
        };
        let files = |order: [&str; 3]| -> Files {
            let named = order
                .iter()
                .map(|name| ((*name).to_owned(), file(*name == "gpipe")));
            named.collect()
        };
        let packed = pack(
            "gpipe-1",
            &files(["gpipe", "README.md", "man/man1/gpipe.1"]),
        )
        .unwrap();
        let other = pack(
            "gpipe-1",
            &files(["man/man1/gpipe.1", "gpipe", "README.md"]),
        )
        .unwrap();
        assert_eq!(checksum(&packed), checksum(&other));

        let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
        let headers: Vec<(String, u32, u64, u64)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().to_string_lossy().into_owned();
                (
                    path,
                    header.mode().unwrap(),
                    header.mtime().unwrap(),
                    header.uid().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("gpipe-1/README.md", 0o644),
            ("gpipe-1/gpipe", 0o755),
            ("gpipe-1/man/man1/gpipe.1", 0o644),
        ];
        assert_eq!(
            headers,
            expected.map(|(path, mode)| (path.to_owned(), mode, TIME, 0))
        );
    }

    #[test]
    fn the_checksum_is_sha_256() {
        assert_eq!(
            checksum(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
