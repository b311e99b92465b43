//! The checks of this workspace, in their order.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use toml::{Table, Value};

use super::step::{Step, What};
use crate::tree::{self, Tree};

/// What the compiler and clippy may not say. The last one finds what the standard library got after the
/// `rust-version` of the workspace.
const LINTS: &str = "-D warnings -D clippy::incompatible_msrv";

/// The steps: what fails fastest first.
pub fn steps(tree: &Tree, root: &Path) -> anyhow::Result<Vec<Step>> {
    let mut steps = vec![
        Step::cargo("fmt", "fmt --all --check"),
        Step {
            name: "tidy".into(),
            what: What::Tidy,
        },
        Step {
            name: "package".into(),
            what: What::Package,
        },
        Step {
            name: "deny".into(),
            what: What::Deny,
        },
        Step::cargo(
            "clippy",
            &format!("clippy --workspace --all-targets -- {LINTS}"),
        ),
        // The README's second command, word for word.
        Step::cargo("test", "test --workspace"),
        Step::cargo("docs", "doc --workspace --no-deps").with("RUSTDOCFLAGS", "-D warnings"),
    ];
    // With CUDA, which needs no toolkit: the libraries are looked for when the program runs. The feature
    // `emulated` only adds tests to it.
    steps.extend([
        Step::cargo(
            "cuda clippy",
            &format!("clippy --workspace --all-targets --features cuda,emulated -- {LINTS}"),
        ),
        Step::cargo("cuda docs", "doc --workspace --no-deps --features cuda")
            .with("RUSTDOCFLAGS", "-D warnings"),
    ]);
    // Together, as the tests have built them: one package alone would build its dependencies again, with fewer features.
    steps.push(Step::cargo(
        "build examples",
        "build --workspace --examples",
    ));
    let target = env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    for name in tree.crates() {
        for example in examples(root, name)? {
            let arguments: &[&str] = match &*example {
                // Milliseconds of an action: what is compared with the prediction at 20 only has to run here.
                "sleepers" => &["2"],
                _ => &[],
            };
            let program = Path::new(&target).join("debug/examples").join(&example);
            steps.push(Step {
                name: format!("example {name} {example}"),
                what: What::Example(program, arguments),
            });
        }
    }
    for name in tree.crates() {
        // In the workspace a crate may lean on features that another one, or its own tests, switch on.
        steps.push(Step::cargo(
            format!("alone {name}"),
            &format!("check -p {name}"),
        ));
        steps.extend(feature_steps(tree, name)?);
    }
    steps.extend([
        Step {
            name: "other systems".into(),
            what: What::Systems(minimum_version(tree)?),
        },
        Step {
            name: "arm gpipe-tensor".into(),
            what: What::Arm,
        },
    ]);
    // The backend on emulated GPUs; without g++ the tests say that they are skipped.
    steps.push(Step::cargo(
        "emulated",
        "test --workspace --features emulated --test emulated",
    ));
    // Unsafe code stays within its bounds in programs that are built without checks for overflow, too. With CUDA, whose
    // unit tests run nowhere else; what the kernels are made of was tried by `test` and has no such checks. The other
    // packages have no library to test, but the features of dependencies that the step before has built.
    let unchecked = "profile.dev.package.gpipe-tensor.overflow-checks=false";
    steps.push(Step::cargo(
        "unchecked gpipe-tensor",
        &format!(
            "test -p gpipe-tensor -p gpipe-cli -p xtask --lib --features cuda --config {unchecked} -- \
             --skip cuda::conformance --skip cuda::nvrtc"
        ),
    ));
    // Another cfg is another build of everything: its own folder keeps the first one warm. Only
    // the tests that the model checker runs: its threads and channels work nowhere else.
    steps.push(
        Step::cargo("shuttle", "test -p gpipe-sched --test shuttle --target-dir")
            .argument(format!("{target}/shuttle"))
            .with("RUSTFLAGS", "--cfg shuttle"),
    );
    // Of what the tests compiled with NVRTC; without that there is no table.
    if let Some(kernels) = env::var("GPIPE_KERNELS").ok().filter(|_| has_nvrtc()) {
        let step = Step::cargo("gpu table", "xtask gpu --table --kernels").argument(kernels);
        let out = format!("{target}/kernels.md");
        steps.push(step.argument("--out".into()).argument(out));
    }
    // The files for a host with a GPU, run on emulated ones: programs with CUDA, as fast to build as those of the tests.
    steps.push(Step::cargo(
        "gpu archive",
        "xtask gpu --check --profile dev",
    ));
    steps.push(Step::cargo("release", "build --release"));
    // The README's first command, for two steps.
    let train = "run --release -- train --steps 2 --quiet --overwrite --out";
    steps.push(Step::cargo("train", train).argument(format!("{target}/ci/train")));
    // The program is built already: packing takes seconds.
    steps.push(Step::cargo("dist", "xtask dist --check"));
    Ok(steps)
}

/// Whether the tests compile kernels for GPUs.
fn has_nvrtc() -> bool {
    env::var_os("GPIPE_NVRTC").is_some()
}

/// The toolchain of the oldest compiler that is promised, where it is installed.
fn minimum_version(tree: &Tree) -> anyhow::Result<Option<String>> {
    let manifest: Table = tree
        .files
        .get("Cargo.toml")
        .map_or("", |text| text)
        .parse()?;
    let version = || {
        manifest
            .get("workspace")?
            .get("package")?
            .get("rust-version")?
            .as_str()
    };
    let Some(version) = version() else {
        return Ok(None);
    };
    let rustup = Command::new("rustup").args(["toolchain", "list"]).output();
    let installed = rustup.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    Ok(toolchain(&installed.unwrap_or_default(), version).map(str::to_owned))
}

/// The name of the toolchain of a version, such as `1.90` or `1.90.0`, in what rustup lists.
fn toolchain<'a>(installed: &'a str, version: &str) -> Option<&'a str> {
    let names = installed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let mut found = names.filter(|name| {
        let rest = name
            .strip_prefix(version)
            .map(|rest| rest.trim_start_matches(".0"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    found.next()
}

/// Without default features, and with every feature alone.
fn feature_steps(tree: &Tree, name: &str) -> anyhow::Result<Vec<Step>> {
    let path = format!("{name}/Cargo.toml");
    let manifest: Table = tree
        .files
        .get(&path)
        .with_context(|| format!("{path} is missing"))?
        .parse()?;
    let Some(features) = manifest.get("features").and_then(Value::as_table) else {
        return Ok(Vec::new());
    };
    let none = ("no default features".to_owned(), String::new());
    let each = features.keys().filter(|feature| *feature != "default");
    let each = each.map(|feature| (feature.clone(), format!("--features {feature}")));
    let step = |(what, switch): (String, String)| {
        Step::cargo(
            format!("features {name} {what}"),
            &format!("check -p {name} --no-default-features {switch}"),
        )
    };
    Ok(std::iter::once(none).chain(each).map(step).collect())
}

/// The names of a crate's examples.
fn examples(root: &Path, name: &str) -> anyhow::Result<Vec<String>> {
    let folder = root.join(name).join("examples");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let stems = tree::entries(&folder)?.into_iter().filter_map(|path| {
        let is_example = path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file();
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        is_example.then_some(stem)
    });
    Ok(stems.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_with(manifest: &str) -> Tree {
        Tree {
            root: vec!["gpipe-sched/".into()],
            files: [("gpipe-sched/Cargo.toml".to_owned(), manifest.to_owned())].into(),
        }
    }

    #[test]
    fn every_feature_is_checked_alone() {
        let tree = tree_with("[features]\ndefault = [\"a\"]\na = []\nb = [\"a\"]\n");
        let names: Vec<String> = feature_steps(&tree, "gpipe-sched")
            .unwrap()
            .into_iter()
            .map(|s| s.name)
            .collect();
        assert_eq!(
            names,
            [
                "features gpipe-sched no default features",
                "features gpipe-sched a",
                "features gpipe-sched b"
            ]
        );
        assert!(
            feature_steps(&tree_with(""), "gpipe-sched")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn the_oldest_compiler_is_found_by_its_version() {
        let installed = "stable-x86_64-unknown-linux-gnu (active, default)\n\
                         1.9.0-x86_64-unknown-linux-gnu\n1.90.0-x86_64-unknown-linux-gnu\n";
        let found = toolchain(installed, "1.90");
        assert_eq!(found, Some("1.90.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain("1.90-x86_64-pc-windows-msvc\n", "1.90.0"), None);
        assert_eq!(toolchain("1.905.0-a\n1.90.1-a\n", "1.90"), None);
    }

    #[test]
    fn the_steps_of_this_workspace() {
        let root = tree::root().unwrap();
        let steps = steps(&Tree::read(&root).unwrap(), &root).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        for name in [
            "fmt",
            "tidy",
            "package",
            "deny",
            "unchecked gpipe-tensor",
            "clippy",
            "test",
            "docs",
            "shuttle",
            "release",
            "train",
            "dist",
            "cuda clippy",
            "cuda docs",
            "gpu archive",
        ] {
            assert_eq!(
                names.iter().filter(|step| **step == name).count(),
                1,
                "{name}"
            );
        }
        for name in [
            "alone gpipe-sched",
            "alone xtask",
            "example gpipe-partition cuts",
        ] {
            assert!(names.contains(&name), "{name} among {names:?}");
        }
        for (name, is_static) in [
            ("tidy", true),
            ("clippy", true),
            ("cuda docs", true),
            ("alone gpipe-sched", true),
            ("other systems", true),
            ("test", false),
            ("build examples", false),
            ("arm gpipe-tensor", false),
            ("dist", false),
        ] {
            let step = steps.iter().find(|step| step.name == name).unwrap();
            assert_eq!(step.is_static(), is_static, "{name}");
        }
    }
}
