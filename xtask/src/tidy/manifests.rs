//! What the crates' manifests may say.

use toml::{Table, Value};

use super::problem::Problem;
use crate::tree::Tree;

/// Which crates of the workspace a crate may depend on: the arrows of ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 14] = [
    ("gpipe-partition", &[]),
    ("gpipe-sched", &[]),
    ("gpipe-mpi", &["gpipe-sched"]),
    ("gpipe-tensor", &[]),
    ("gpipe-layers", &["gpipe-tensor"]),
    (
        "gpipe-remat",
        &[
            "gpipe-partition",
            "gpipe-sched",
            "gpipe-layers",
            "gpipe-tensor",
        ],
    ),
    ("gpipe-files", &[]),
    // None of these four on another.
    ("gpipe-checkpoint", FIVE_AND_FILES),
    ("gpipe-hf", FIVE_AND_FILES),
    ("gpipe-data", FIVE_AND_FILES),
    ("gpipe-report", FIVE_AND_FILES),
    ("gpipe-train", BELOW_TRAIN),
    (
        "gpipe-cli",
        &[
            "gpipe-partition",
            "gpipe-sched",
            "gpipe-layers",
            "gpipe-tensor",
            "gpipe-remat",
            "gpipe-files",
            "gpipe-checkpoint",
            "gpipe-hf",
            "gpipe-data",
            "gpipe-report",
            "gpipe-train",
        ],
    ),
    ("xtask", &[]),
];
const FIVE_AND_FILES: &[&str] = &[
    "gpipe-partition",
    "gpipe-sched",
    "gpipe-layers",
    "gpipe-tensor",
    "gpipe-remat",
    "gpipe-files",
];
const BELOW_TRAIN: &[&str] = &[
    "gpipe-partition",
    "gpipe-sched",
    "gpipe-mpi",
    "gpipe-layers",
    "gpipe-tensor",
    "gpipe-remat",
    "gpipe-files",
    "gpipe-checkpoint",
    "gpipe-hf",
    "gpipe-data",
    "gpipe-report",
];

/// Crates depend on each other only along the arrows, their tests included.
pub fn arrows(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates() {
        let path = format!("{name}/Cargo.toml");
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            let message =
                "is in no arrow: say in xtask/src/tidy/manifests.rs what it may depend on";
            problems.push(Problem::new(&path, None, message));
            continue;
        };
        let Some(manifest) = parse(tree, &path, &mut problems) else {
            continue;
        };
        for (dependency, _) in dependencies(&manifest) {
            let inside = ARROWS.iter().any(|(from, _)| *from == dependency);
            if inside && !allowed.contains(&dependency.as_str()) {
                let may = match allowed.join(", ") {
                    none if none.is_empty() => "no crate of the workspace".to_owned(),
                    some => format!("{some} alone"),
                };
                let message = format!("{name} depends on {dependency}: it may depend on {may}");
                problems.push(Problem::new(&path, None, message));
            }
        }
    }
    problems
}

/// Versions and lints are settled once, in the root.
pub fn shared_settings(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates() {
        let path = format!("{name}/Cargo.toml");
        // A manifest that does not parse was reported above.
        let Some(manifest) = parse(tree, &path, &mut Vec::new()) else {
            continue;
        };
        for (dependency, settings) in dependencies(&manifest) {
            if !inherits(settings) {
                let message = format!(
                    "{dependency} has a version of its own: write `{dependency}.workspace = true` and the \
                     version in the root"
                );
                problems.push(Problem::new(&path, None, message));
            }
        }
        if !manifest.get("lints").is_some_and(inherits) {
            let message = "the workspace's lints do not apply: add [lints] workspace = true";
            problems.push(Problem::new(&path, None, message));
        }
    }
    problems
}

/// The crate is not for registries.
pub fn is_private(tree: &Tree, name: &str) -> bool {
    let manifest = parse(tree, &format!("{name}/Cargo.toml"), &mut Vec::new());
    let publish = manifest.and_then(|manifest| manifest.get("package")?.get("publish")?.as_bool());
    publish == Some(false)
}

/// The pages of a registry show every feature.
pub fn documented_with_features(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates().filter(|name| !is_private(tree, name)) {
        let path = format!("{name}/Cargo.toml");
        let Some(manifest) = parse(tree, &path, &mut Vec::new()) else {
            continue;
        };
        let docs = || {
            manifest
                .get("package")?
                .get("metadata")?
                .get("docs")?
                .get("rs")
        };
        let chosen = docs().and_then(Value::as_table).is_some_and(|docs| {
            ["all-features", "features", "no-default-features"]
                .iter()
                .any(|key| docs.contains_key(*key))
        });
        if !chosen {
            let message = "no features are chosen for docs.rs: add [package.metadata.docs.rs] with all-features = \
                           true, or features = [...]";
            problems.push(Problem::new(&path, None, message));
        }
    }
    problems
}

fn parse(tree: &Tree, path: &str, problems: &mut Vec<Problem>) -> Option<Table> {
    let Some(text) = tree.files.get(path) else {
        problems.push(Problem::new(
            path,
            None,
            "is missing: every gpipe-* folder is a crate",
        ));
        return None;
    };
    let manifest = text.parse::<Table>();
    if let Err(error) = &manifest {
        problems.push(Problem::new(path, None, error.message()));
    }
    manifest.ok()
}

fn inherits(settings: &Value) -> bool {
    settings.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Names and settings of all dependencies: plain, of tests, of builds, and of some targets only.
fn dependencies(manifest: &Table) -> Vec<(String, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(Value::as_table));
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let section = table.get(kind).and_then(Value::as_table);
            for (name, settings) in section.into_iter().flatten() {
                // A renamed dependency is known by its package.
                let package = settings
                    .get("package")
                    .and_then(Value::as_str)
                    .unwrap_or(name);
                found.push((package.to_owned(), settings));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{lines, tree_of};
    use super::*;

    fn arrow_problems(name: &str, manifest: &str) -> Vec<String> {
        lines(arrows(&tree_of(&[(
            &format!("{name}/Cargo.toml"),
            manifest,
        )])))
    }

    #[test]
    fn arrows_may_not_point_back() {
        let on = |name: &str| format!("[dependencies]\n{name}.workspace = true\n");
        assert_eq!(
            arrow_problems("gpipe-layers", &on("gpipe-tensor")),
            Vec::<String>::new()
        );
        assert_eq!(
            arrow_problems("gpipe-layers", &on("gpipe-sched")),
            [
                "gpipe-layers/Cargo.toml: gpipe-layers depends on gpipe-sched: it may depend on gpipe-tensor alone"
            ]
        );
        assert_eq!(
            arrow_problems("gpipe-partition", &on("gpipe-tensor")).len(),
            1
        );
        assert_eq!(arrow_problems("gpipe-tensor", &on("gpipe-cli")).len(), 1);
        assert_eq!(arrow_problems("xtask", &on("gpipe-cli")).len(), 1);
        assert_eq!(arrow_problems("gpipe-new", "").len(), 1);
    }

    #[test]
    fn siblings_do_not_lean_on_each_other() {
        let siblings = ["checkpoint", "hf", "data", "report"];
        for from in siblings {
            for section in ["dependencies", "dev-dependencies"] {
                for to in siblings
                    .into_iter()
                    .chain(["train", "cli"])
                    .filter(|to| *to != from)
                {
                    let manifest = format!("[{section}]\ngpipe-{to}.workspace = true\n");
                    let problems = arrow_problems(&format!("gpipe-{from}"), &manifest);
                    assert_eq!(problems.len(), 1, "{from} on {to}");
                    let below = format!("[{section}]\ngpipe-{from}.workspace = true\n");
                    assert_eq!(arrow_problems("gpipe-files", &below).len(), 1);
                    assert_eq!(arrow_problems("gpipe-remat", &below).len(), 1);
                    assert_eq!(arrow_problems("gpipe-train", &below), [""; 0]);
                    assert_eq!(arrow_problems("gpipe-cli", &below), [""; 0]);
                }
                for to in ["files", "remat", "tensor"] {
                    let manifest = format!("[{section}]\ngpipe-{to}.workspace = true\n");
                    assert_eq!(arrow_problems(&format!("gpipe-{from}"), &manifest), [""; 0]);
                }
            }
        }
        let on = |name: &str| format!("[dependencies]\n{name}.workspace = true\n");
        assert_eq!(arrow_problems("gpipe-train", &on("gpipe-cli")).len(), 1);
        assert_eq!(arrow_problems("gpipe-cli", &on("gpipe-train")), [""; 0]);
    }

    #[test]
    fn no_kind_of_dependency_escapes() {
        for section in [
            "dev-dependencies",
            "build-dependencies",
            "target.'cfg(unix)'.dependencies",
        ] {
            let manifest = format!("[{section}]\ngpipe-layers.workspace = true\n");
            assert_eq!(
                arrow_problems("gpipe-sched", &manifest).len(),
                1,
                "{section}"
            );
        }
        let renamed =
            "[dependencies]\nlayers = { package = \"gpipe-layers\", path = \"../gpipe-layers\" }\n";
        assert_eq!(arrow_problems("gpipe-sched", renamed).len(), 1);
        let table = "[dependencies.gpipe-layers]\nworkspace = true\n";
        assert_eq!(arrow_problems("gpipe-sched", table).len(), 1);
    }

    #[test]
    fn versions_and_lints_come_from_the_root() {
        let check = |manifest: &str| {
            lines(shared_settings(&tree_of(&[(
                "gpipe-sched/Cargo.toml",
                manifest,
            )])))
        };
        let lints = "[lints]\nworkspace = true\n";
        let with = |dependency: &str| format!("[dev-dependencies]\n{dependency}\n{lints}");
        assert!(check(&with("rayon.workspace = true")).is_empty());
        assert!(check(&with("rayon = { workspace = true, features = [\"x\"] }")).is_empty());
        assert_eq!(check(&with("rayon = \"1\"")).len(), 1);
        assert_eq!(check(&with("rayon = { version = \"1\" }")).len(), 1);
        assert_eq!(check(&with("rayon = { path = \"../../rayon\" }")).len(), 1);
        assert_eq!(check("[dependencies]\n").len(), 1);
    }

    #[test]
    fn docs_rs_knows_the_features() {
        let check = |manifest: &str| {
            let tree = tree_of(&[("gpipe-sched/Cargo.toml", manifest)]);
            documented_with_features(&tree).len()
        };
        assert_eq!(
            check("[package.metadata.docs.rs]\nall-features = true\n"),
            0
        );
        assert_eq!(check("[package.metadata.docs.rs]\nfeatures = [\"a\"]\n"), 0);
        assert_eq!(check("[package.metadata.docs.rs]\n"), 1);
        assert_eq!(check("[package]\n"), 1);
        assert_eq!(check("[package]\npublish = false\n"), 0);
    }

    #[test]
    fn a_broken_manifest_is_a_problem() {
        assert_eq!(arrow_problems("gpipe-sched", "[dependencies\n").len(), 1);
        assert_eq!(
            lines(arrows(&tree_of(&[("gpipe-sched/src/lib.rs", "")]))).len(),
            1
        );
    }
}
