//! Where things lie, and that they say what they are for.

use super::manifests::is_private;
use super::problem::Problem;
use crate::tree::{Tree, is_crate};

/// What each package may be used under.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The pages of the root.
const PAGES: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

/// The root holds a short list of things.
pub fn root(tree: &Tree) -> Vec<Problem> {
    let allowed = |name: &str| match name.strip_suffix('/') {
        Some(folder) => folder.starts_with('.') || is_crate(folder),
        None => {
            name.starts_with('.')
                || LICENCES.contains(&name)
                || PAGES.contains(&name)
                || ["Cargo.toml", "Cargo.lock"].contains(&name)
        }
    };
    let message = "does not belong in the root: only Cargo.toml, Cargo.lock, README.md, ARCHITECTURE.md, \
                   CONTRIBUTING.md, SECURITY.md, CHANGELOG.md, LICENSE-*, gpipe-*, xtask and dot-files do";
    let strange = tree.root.iter().filter(|name| !allowed(name));
    strange
        .map(|name| Problem::new(name, None, message))
        .collect()
}

/// Every library has a README, which is its documentation too.
pub fn readmes(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates().filter(|name| *name != "xtask") {
        let readme = format!("{name}/README.md");
        if !tree.files.contains_key(&readme) {
            problems.push(Problem::new(
                &readme,
                None,
                "is missing: every crate says what it is for",
            ));
        }
        let library = format!("{name}/src/lib.rs");
        let shown = "#![doc = include_str!(\"../README.md\")]";
        if tree
            .files
            .get(&library)
            .is_some_and(|text| !text.contains(shown))
        {
            let message =
                format!("does not show the README as the crate's docs: begin with {shown}");
            problems.push(Problem::new(&library, None, message));
        }
    }
    problems
}

/// What is published holds its licences and says what has changed. Links to the root's licences will do.
pub fn packages(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates().filter(|name| !is_private(tree, name)) {
        for file in LICENCES.into_iter().chain(["CHANGELOG.md"]) {
            let path = format!("{name}/{file}");
            if !tree.files.contains_key(&path) {
                let message = "is missing: every package holds its licences and its changes";
                problems.push(Problem::new(&path, None, message));
            }
        }
    }
    problems
}

/// The page of a crate is read on registries too, where the files beside its folder are not.
pub fn links(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let pages = tree.crates().map(|name| format!("{name}/README.md"));
    for page in pages {
        let text = tree.files.get(&page).map_or("", |text| text);
        for (line, text) in text.lines().enumerate() {
            if text.contains("](../") {
                let message = "a link out of the package leads nowhere on a registry: name the crate instead, as \
                               https://docs.rs/CRATE";
                problems.push(Problem::new(&page, Some(line + 1), message));
            }
        }
    }
    problems
}

/// Every source file begins with what it is for.
pub fn module_docs(tree: &Tree) -> Vec<Problem> {
    let documented = |text: &str| {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.any(|line| line.starts_with("//!") || line.starts_with("#![doc"))
    };
    let silent = tree.sources().filter(|(_, text)| !documented(text));
    let message = "has no module docs: begin with `//!` and what the file is for";
    silent
        .map(|(path, _)| Problem::new(path, None, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{lines, tree_of};
    use super::*;

    #[test]
    fn strangers_in_the_root_are_named() {
        let tree = tree_of(&[
            (".cargo/config.toml", ""),
            (".gitignore", ""),
            ("LICENSE-MIT", ""),
            ("gpipe-cli/src/main.rs", ""),
            ("xtask/src/main.rs", ""),
            ("ARCHITECTURE.md", ""),
            ("LICENSE-OTHER", ""),
            ("scripts/run.sh", ""),
            ("todo.md", ""),
        ]);
        let named: Vec<String> = root(&tree)
            .into_iter()
            .map(|problem| problem.path)
            .collect();
        assert_eq!(named, ["LICENSE-OTHER", "scripts/", "todo.md"]);
    }

    #[test]
    fn readmes_must_be_there_and_shown() {
        let shown = "#![doc = include_str!(\"../README.md\")]\n";
        assert_eq!(
            readmes(&tree_of(&[
                ("gpipe-a/README.md", ""),
                ("gpipe-a/src/lib.rs", shown)
            ])),
            []
        );
        let problems = readmes(&tree_of(&[("gpipe-a/src/lib.rs", "//! Something else.\n")]));
        assert_eq!(problems.len(), 2, "{:?}", lines(problems));
    }

    #[test]
    fn packages_hold_their_licences() {
        let whole = [
            ("gpipe-a/Cargo.toml", ""),
            ("gpipe-a/CHANGELOG.md", ""),
            ("gpipe-a/LICENSE-APACHE", ""),
            ("gpipe-a/LICENSE-MIT", ""),
        ];
        assert_eq!(packages(&tree_of(&whole)), []);
        assert_eq!(packages(&tree_of(&whole[1..])), []);
        for missing in 1..whole.len() {
            let mut files = whole.to_vec();
            let (path, _) = files.remove(missing);
            let named: Vec<String> = packages(&tree_of(&files))
                .into_iter()
                .map(|problem| problem.path)
                .collect();
            assert_eq!(named, [path]);
        }
        let private = [("xtask/Cargo.toml", "[package]\npublish = false\n")];
        assert_eq!(packages(&tree_of(&private)), []);
    }

    #[test]
    fn links_stay_in_the_package() {
        let text = "[tables](reference/keys.md)\n[sched](../gpipe-sched/README.md)\n";
        let tree = tree_of(&[("gpipe-a/README.md", text), ("gpipe-a/GPU.md", text)]);
        let found: Vec<(String, Option<usize>)> = links(&tree)
            .into_iter()
            .map(|problem| (problem.path, problem.line))
            .collect();
        assert_eq!(found, [("gpipe-a/README.md".to_owned(), Some(2))]);
    }

    #[test]
    fn silent_files_are_named() {
        let tree = tree_of(&[
            ("gpipe-a/src/good.rs", "//! Good.\n"),
            (
                "gpipe-a/src/licensed.rs",
                "#![allow(missing_docs)]\n//! Good too.\n",
            ),
            ("gpipe-a/src/silent.rs", "// Not docs.\nfn f() {}\n"),
            ("gpipe-a/src/empty.rs", ""),
        ]);
        let named: Vec<String> = module_docs(&tree)
            .into_iter()
            .map(|problem| problem.path)
            .collect();
        assert_eq!(named, ["gpipe-a/src/empty.rs", "gpipe-a/src/silent.rs"]);
    }
}
