//! The invariants that a machine can check without compiling.
//!
//! Every rule is a function from texts to problems, so that its tests can plant a violation and see
//! it caught.

mod circles;
mod code;
mod items;
mod layout;
mod manifests;
mod map;
mod modules;
mod paths;
mod problem;
mod quiet;
mod sources;
mod unsafety;

use std::path::Path;

use crate::tree::Tree;
pub use manifests::is_private;
use problem::Problem;

/// Prints the circles of files and the imports that make them, or that there are none.
pub fn list_circles(root: &Path) -> anyhow::Result<()> {
    let found = circles::find(&Tree::read(root)?);
    print!("{}", circles::listed(&found));
    anyhow::ensure!(found.is_empty(), "{} circles of files", found.len());
    Ok(())
}

/// Checks the repository, prints what is wrong, and fails if anything is.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let warnings = sources::long_files(&tree).into_iter();
    for warning in warnings.chain(sources::plain_words(&tree)) {
        println!("warning: {warning}");
    }
    let problems = check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    anyhow::ensure!(problems.is_empty(), "{} untidy places", problems.len());
    println!("tidy: {} files", tree.files.len());
    Ok(())
}

/// All problems, by rule.
fn check(tree: &Tree) -> Vec<Problem> {
    let rules = [
        layout::root,
        layout::readmes,
        layout::packages,
        layout::links,
        map::complete,
        layout::module_docs,
        manifests::arrows,
        manifests::shared_settings,
        manifests::documented_with_features,
        quiet::libraries_stay_quiet,
        circles::none,
        sources::thin_program,
        sources::nothing_unfinished,
        unsafety::forbidden,
        unsafety::explained,
        unsafety::listed,
    ];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}

/// A tree of these files for tests, its root made of their first folders.
#[cfg(test)]
fn tree_of(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        let name = match path.split_once('/') {
            Some((folder, _)) => format!("{folder}/"),
            None => (*path).to_owned(),
        };
        if !tree.root.contains(&name) {
            tree.root.push(name);
        }
        tree.files.insert((*path).to_owned(), (*text).to_owned());
    }
    tree
}

/// The problems as text, for tests.
#[cfg(test)]
fn lines(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tidy_tree_has_no_problems() {
        let tree = tree_of(&[
            (
                "Cargo.toml",
                "[workspace]\n[workspace.dependencies]\nthiserror = \"2\"\n",
            ),
            (
                "gpipe-sched/Cargo.toml",
                "[package.metadata.docs.rs]\nall-features = true\n[dependencies]\nthiserror.workspace = true\n\
                 [lints]\nworkspace = true\n",
            ),
            ("gpipe-sched/README.md", "# gpipe-sched\n"),
            ("gpipe-sched/CHANGELOG.md", "# Changelog\n"),
            ("gpipe-sched/LICENSE-MIT", ""),
            ("gpipe-sched/LICENSE-APACHE", ""),
            (
                "gpipe-sched/src/lib.rs",
                "#![doc = include_str!(\"../README.md\")]\n#![forbid(unsafe_code)]\n\nmod executor;\n",
            ),
            (
                "gpipe-sched/src/executor/clock.rs",
                "//! The clock.\n\nfn now() { std::time::Instant::now(); }\n",
            ),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn every_rule_is_asked() {
        let tree = tree_of(&[
            ("notes.txt", ""),
            ("Cargo.toml", "[workspace]\n"),
            (
                "gpipe-sched/Cargo.toml",
                "[dependencies]\ngpipe-tensor.workspace = true\nfoo = \"1\"\n",
            ),
            (
                "gpipe-sched/src/lib.rs",
                "mod a;\nfn f() { println!(\"{}\", todo!()); unsafe { g() } a::A; }\n",
            ),
            (
                "gpipe-sched/src/a.rs",
                "//! A.\npub struct A;\nfn h() { crate::f() }\n",
            ),
            (
                "gpipe-cli/Cargo.toml",
                "[package]\npublish = false\n[lints]\nworkspace = true\n",
            ),
            ("gpipe-cli/README.md", ""),
            (
                "gpipe-cli/src/a.rs",
                &format!("//! Long.\n{}", "\n".repeat(4000)),
            ),
            (
                "gpipe-tensor/Cargo.toml",
                "[package.metadata.docs.rs]\nfeatures = []\n[lints]\nworkspace = true\n",
            ),
            ("gpipe-tensor/README.md", ""),
            ("gpipe-tensor/CHANGELOG.md", ""),
            ("gpipe-tensor/LICENSE-MIT", ""),
            (
                "gpipe-tensor/src/lib.rs",
                "#![doc = include_str!(\"../README.md\")]\nfn f() { unsafe { g() } }\n",
            ),
        ]);
        assert_eq!(
            lines(check(&tree)),
            [
                "notes.txt: does not belong in the root: only Cargo.toml, Cargo.lock, README.md, \
                 ARCHITECTURE.md, CONTRIBUTING.md, SECURITY.md, CHANGELOG.md, LICENSE-*, gpipe-*, xtask and dot-files do",
                "gpipe-sched/README.md: is missing: every crate says what it is for",
                "gpipe-sched/src/lib.rs: does not show the README as the crate's docs: begin with #![doc = \
                 include_str!(\"../README.md\")]",
                "gpipe-sched/LICENSE-MIT: is missing: every package holds its licences and its changes",
                "gpipe-sched/LICENSE-APACHE: is missing: every package holds its licences and its changes",
                "gpipe-sched/CHANGELOG.md: is missing: every package holds its licences and its changes",
                "gpipe-tensor/LICENSE-APACHE: is missing: every package holds its licences and its changes",
                "gpipe-sched/src/lib.rs: has no module docs: begin with `//!` and what the file is for",
                "gpipe-sched/Cargo.toml: gpipe-sched depends on gpipe-tensor: it may depend on no crate of the \
                 workspace",
                "gpipe-sched/Cargo.toml: foo has a version of its own: write `foo.workspace = true` and the \
                 version in the root",
                "gpipe-sched/Cargo.toml: the workspace's lints do not apply: add [lints] workspace = true",
                "gpipe-sched/Cargo.toml: no features are chosen for docs.rs: add [package.metadata.docs.rs] \
                 with all-features = true, or features = [...]",
                "gpipe-sched/src/lib.rs:2: println! in a library: bytes go out through return values or \
                 io::Write",
                "gpipe-sched/src/a.rs:3: a circle of files: a.rs -> lib.rs -> a.rs: import from the defining \
                 file, or move what both need to one of its own (`cargo xtask tidy --circles` lists every \
                 import)",
                "gpipe-cli/src/: 4001 lines of Rust outside of tests, where 4000 is the cap: move what is not \
                 flags, commands, console or exit codes to a library; a new command may raise the cap in \
                 xtask/src/tidy/sources.rs",
                "gpipe-sched/src/lib.rs:2: todo! is unfinished work: finish it or leave it out",
                "gpipe-sched/src/lib.rs: unsafe code is not forbidden: add #![forbid(unsafe_code)]",
                "gpipe-sched/src/lib.rs:2: unsafe outside gpipe-tensor and gpipe-mpi: move it there",
                "gpipe-tensor/src/lib.rs:2: unsafe without a SAFETY comment: say why it is sound",
                "gpipe-tensor/src/lib.rs: unsafe in another module: list it in tidy/unsafety.rs, and how it is \
                 tried",
            ]
        );
    }
}
