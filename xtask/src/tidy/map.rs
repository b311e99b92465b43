//! ARCHITECTURE.md shows what there is: every path in it and in other pages exists, and every folder of the crates is in it.
//!
//! A path is code that begins with the name of a crate, or with `src/` and its like in a page of a crate and below the
//! heading of one.

use std::collections::BTreeSet;

use super::problem::Problem;
use crate::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";

/// Pages of the root that name paths.
const PAGES: [&str; 3] = [PAGE, "CONTRIBUTING.md", "README.md"];

/// What a path below the heading of a crate begins with.
const FOLDERS: [&str; 5] = ["src/", "tests/", "examples/", "benches/", "reference/"];

/// What the name of a file that is read ends with.
const READ: [&str; 3] = [".rs", ".toml", ".md"];

/// The map has every folder of the crates, and nothing that is not there.
pub fn complete(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut shown = BTreeSet::new();
    for (page, home) in pages(tree) {
        for (line, path) in paths(&tree.files[page], home) {
            let below = path.strip_suffix('/').unwrap_or(&path).to_owned() + "/";
            let exists = tree.files.contains_key(&path)
                || tree.files.keys().any(|file| file.starts_with(&below));
            if !exists {
                let message = format!("names {path}, which is not there");
                problems.push(Problem::new(page, Some(line), message));
            }
            if page == PAGE {
                shown.insert(below);
            }
        }
    }
    if tree.files.contains_key(PAGE) {
        let missing = folders(tree)
            .into_iter()
            .filter(|folder| !shown.contains(folder));
        problems.extend(missing.map(|folder| {
            let message = format!("does not show {folder}: say in a line what it is for");
            Problem::new(PAGE, None, message)
        }));
    }
    problems
}

/// The pages that name paths, each with the crate that it is of, if it is of one. Changelogs name what was.
fn pages(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let names = tree.files.keys().map(String::as_str);
    names.filter_map(|name| {
        let (home, file) = name.split_once('/').unwrap_or(("", name));
        let is_page = match home {
            "" => PAGES.contains(&file),
            _ => file.ends_with(".md") && file != "CHANGELOG.md" && crate::tree::is_crate(home),
        };
        is_page.then_some((name, home))
    })
}

/// The paths that a page of `home` names, with their lines. What holds a name in capitals stands for many.
fn paths<'a>(text: &'a str, mut home: &'a str) -> Vec<(usize, String)> {
    let is_of_crate = !home.is_empty();
    let mut found = Vec::new();
    let mut drawing = false;
    for (line, text) in text.lines().enumerate() {
        if text.starts_with("```") {
            drawing = !drawing;
        }
        if drawing {
            continue;
        }
        if text.starts_with('#') && !is_of_crate {
            home = text.trim_start_matches(['#', ' ']);
        }
        for code in text.split('`').skip(1).step_by(2) {
            let relative = FOLDERS.iter().any(|folder| code.starts_with(folder));
            let first = code.split('/').next().unwrap_or_default();
            let path = match relative {
                true => format!("{home}/{code}"),
                false => code.to_owned(),
            };
            let is_path = relative || (first.len() < code.len() && crate::tree::is_crate(first));
            let is_one = !path.contains(|c: char| c.is_ascii_uppercase() || " *{".contains(c));
            // The tree has no other files, nor folders of such files alone, which pages of crates name.
            let (_, file) = code.rsplit_once('/').unwrap_or_default();
            let is_folder = !file.contains('.') && !is_of_crate;
            let is_read = is_folder || READ.iter().any(|end| file.ends_with(end));
            if is_path && is_one && is_read {
                found.push((line + 1, path));
            }
        }
    }
    found
}

/// The folders right below the `src` of the libraries and the program that hold code.
fn folders(tree: &Tree) -> BTreeSet<String> {
    let sources = super::modules::production(tree);
    let folders = sources.iter().filter_map(|(path, _)| {
        let (home, below) = path.split_once("/src/")?;
        let (folder, _) = below.split_once('/')?;
        (home != "xtask" && folder != "bin").then(|| format!("{home}/src/{folder}/"))
    });
    folders.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{lines, tree_of};
    use super::*;

    #[test]
    fn the_map_shows_all_that_is_there_and_nothing_else() {
        let page = "# Map\n### gpipe-a\n| `src/b/` | `src/b/c.rs`, `src/gone.rs` |\n`gpipe-a/src/b/NAME.rs`\n\
                    ```text\n`src/x/`\n```\n`gpipe-a/src/gone/` `fs/read`\n";
        let tree = tree_of(&[
            ("ARCHITECTURE.md", page),
            ("gpipe-a/src/b/c.rs", ""),
            ("gpipe-a/src/d/mod.rs", ""),
            ("gpipe-a/src/lib.rs", "#[cfg(test)]\nmod tests;\n"),
            ("gpipe-a/src/tests/mod.rs", ""),
            (
                "gpipe-a/README.md",
                "# Own\n`src/tests/mod.rs` `src/k.cu`\n`tests/mod.rs`",
            ),
            ("gpipe-a/CHANGELOG.md", "`src/was.rs`"),
        ]);
        assert_eq!(
            lines(complete(&tree)),
            [
                "ARCHITECTURE.md:3: names gpipe-a/src/gone.rs, which is not there",
                "ARCHITECTURE.md:8: names gpipe-a/src/gone/, which is not there",
                "gpipe-a/README.md:3: names gpipe-a/tests/mod.rs, which is not there",
                "ARCHITECTURE.md: does not show gpipe-a/src/d/: say in a line what it is for",
            ]
        );
        assert_eq!(complete(&tree_of(&[("gpipe-a/src/d/mod.rs", "")])), []);
    }
}
