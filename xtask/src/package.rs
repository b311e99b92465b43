//! What each crate would send to a registry.

use std::path::Path;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use crate::tidy::is_private;
use crate::tree::Tree;

/// What every package holds.
const FILES: [&str; 6] = [
    "Cargo.toml",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "src/lib.rs",
];

/// What no package holds: runs, and what only tests of private items need.
const STRANGERS: [&str; 3] = ["runs/", "src/cuda/conformance/", "src/cuda/emulator/"];

/// Packs every crate that is published and looks at the lists of files. Asks no registry: the crates of the
/// workspace stand in for each other.
pub fn run(shell: &Shell, root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let names: Vec<&str> = tree
        .crates()
        .filter(|name| !is_private(&tree, name))
        .collect();
    let mut problems = Vec::new();
    for name in &names {
        let list = cmd!(
            shell,
            "cargo package --package {name} --list --offline --allow-dirty"
        );
        let list = list
            .quiet()
            .ignore_stderr()
            .read()
            .with_context(|| format!("listing {name}"))?;
        problems.extend(
            faults(&list)
                .into_iter()
                .map(|fault| format!("{name}: {fault}")),
        );
    }
    for problem in &problems {
        println!("{problem}");
    }
    anyhow::ensure!(problems.is_empty(), "{} faults in packages", problems.len());
    let packages = names.iter().flat_map(|name| ["--package", name]);
    cmd!(
        shell,
        "cargo package --quiet --no-verify --offline --allow-dirty {packages...}"
    )
    .quiet()
    .run()?;
    println!("package: {} packages", names.len());
    Ok(())
}

/// What is wrong with the files of a package.
fn faults(list: &str) -> Vec<String> {
    // Cargo parts by the separators of the system.
    let list = list.replace('\\', "/");
    let held: Vec<&str> = list.lines().collect();
    let missing = FILES.iter().filter(|file| !held.contains(file));
    let strange = held.iter().filter(|file| {
        let strangers = STRANGERS.iter();
        strangers.clone().any(|stranger| file.starts_with(stranger))
    });
    missing
        .map(|file| format!("{file} is not in the package"))
        .chain(strange.map(|file| format!("{file} does not belong in the package")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_licence_is_a_fault() {
        let whole = FILES.join("\n");
        assert_eq!(faults(&whole), [""; 0]);
        let without = whole.replace("LICENSE-MIT\n", "");
        assert_eq!(faults(&without), ["LICENSE-MIT is not in the package"]);
        let with = format!("{whole}\nsrc/cuda/emulator/host/blas.cpp");
        assert_eq!(
            faults(&with),
            ["src/cuda/emulator/host/blas.cpp does not belong in the package"]
        );
    }
}
