//! No circles between the files of a crate.

use std::collections::{BTreeSet, VecDeque};

use super::modules::{Crate, Need, production};
use super::problem::Problem;
use crate::tree::Tree;

/// Files that need each other.
pub struct Circle {
    /// A shortest way round, by the needs on it.
    way: Vec<(String, usize)>,
    /// All needs between files that are on any way round: from, line and to.
    needs: Vec<(String, usize, String)>,
}

/// The circles of all crates, one for each set of files that need each other.
pub fn find(tree: &Tree) -> Vec<Circle> {
    let sources = production(tree);
    let circles = tree.crates().flat_map(|name| {
        let read = Crate::read(name, &sources);
        let needs = read.needs();
        together(read.files.len(), &needs)
            .into_iter()
            .map(|files| circle(&read, &needs, &files))
            .collect::<Vec<_>>()
    });
    circles.collect()
}

/// The needs of each circle, for people.
pub fn listed(circles: &[Circle]) -> String {
    let mut lines = String::new();
    for circle in circles {
        let files: BTreeSet<&str> = circle.needs.iter().map(|(from, ..)| &**from).collect();
        lines += &format!("{} files in a circle:\n", files.len());
        for (from, line, to) in &circle.needs {
            lines += &format!("  {from}:{line} needs {to}\n");
        }
    }
    if circles.is_empty() {
        lines += "no circles\n";
    }
    lines
}

/// A file needs no file that needs it.
pub fn none(tree: &Tree) -> Vec<Problem> {
    let problem = |circle: Circle| {
        let files: Vec<&str> = circle.way.iter().map(|(file, _)| short(file)).collect();
        let (first, line) = &circle.way[0];
        let message = format!(
            "a circle of files: {} -> {}: import from the defining file, or move what both need to one of \
             its own (`cargo xtask tidy --circles` lists every import)",
            files.join(" -> "),
            files[0],
        );
        Problem::new(first, Some(*line), message)
    };
    find(tree).into_iter().map(problem).collect()
}

/// A path from its crate's `src`.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, short)| short)
}

fn circle(read: &Crate, needs: &[Need], files: &BTreeSet<usize>) -> Circle {
    let inside: Vec<&Need> = needs
        .iter()
        .filter(|need| files.contains(&need.from) && files.contains(&need.to))
        .collect();
    let named = |need: &&Need| {
        let [from, to] = [need.from, need.to].map(|file| read.files[file].to_owned());
        (from, need.line, to)
    };
    let way = shortest(&inside)
        .iter()
        .map(|need| (read.files[need.from].to_owned(), need.line))
        .collect();
    Circle {
        way,
        needs: inside.iter().map(named).collect(),
    }
}

/// The sets of two files or more each of which leads to all others of its set.
fn together(files: usize, needs: &[Need]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..files).map(|file| reach(file, needs)).collect();
    let mut sets = Vec::new();
    let mut seen = BTreeSet::new();
    for file in 0..files {
        if !reached[file].contains(&file) || seen.contains(&file) {
            continue;
        }
        let back = |other: &&usize| reached[**other].contains(&file);
        let set: BTreeSet<usize> = reached[file].iter().filter(back).copied().collect();
        seen.extend(set.iter().copied());
        sets.push(set);
    }
    sets
}

/// The files to which a file leads.
fn reach(file: usize, needs: &[Need]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(from) = open.pop() {
        for need in needs.iter().filter(|need| need.from == from) {
            if reached.insert(need.to) {
                open.push(need.to);
            }
        }
    }
    reached
}

/// The shortest way round among needs that have one.
fn shortest<'n>(needs: &[&'n Need]) -> Vec<&'n Need> {
    let ways = needs.iter().filter_map(|first| {
        let mut open = VecDeque::from([vec![*first]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = open.pop_front() {
            let end = way.last()?.to;
            if end == first.from {
                return Some(way);
            }
            if seen.insert(end) {
                let next = needs.iter().filter(|need| need.from == end);
                open.extend(next.map(|need| [way.as_slice(), &[*need]].concat()));
            }
        }
        None
    });
    ways.min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{lines, tree_of};
    use super::*;

    #[test]
    fn circles_are_named_with_their_way() {
        let tree = tree_of(&[
            (
                "gpipe-a/src/lib.rs",
                "mod a;\nmod b;\nmod c;\nmod d;\npub use c::C;\n",
            ),
            ("gpipe-a/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            ("gpipe-a/src/b.rs", "use crate::C;\npub struct B;\n"),
            (
                "gpipe-a/src/c.rs",
                "use crate::d::D;\n\nfn f() -> crate::a::A {}\npub struct C;\n",
            ),
            ("gpipe-a/src/d.rs", "pub struct D;\n"),
        ]);
        assert_eq!(
            lines(none(&tree)),
            [
                "gpipe-a/src/a.rs:1: a circle of files: a.rs -> b.rs -> c.rs -> a.rs: import from the defining \
                 file, or move what both need to one of its own (`cargo xtask tidy --circles` lists every import)"
            ]
        );
        assert_eq!(
            listed(&find(&tree)),
            "3 files in a circle:\n\
             \x20 gpipe-a/src/a.rs:1 needs gpipe-a/src/b.rs\n\
             \x20 gpipe-a/src/b.rs:1 needs gpipe-a/src/c.rs\n\
             \x20 gpipe-a/src/c.rs:3 needs gpipe-a/src/a.rs\n"
        );
    }

    #[test]
    fn children_may_import_through_a_parent_that_hands_on() {
        let tree = tree_of(&[
            (
                "gpipe-a/src/lib.rs",
                "mod a;\nmod b;\npub use a::A;\npub use b::B;\n",
            ),
            ("gpipe-a/src/a.rs", "pub struct A;\n"),
            ("gpipe-a/src/b.rs", "use crate::A;\npub struct B;\n"),
        ]);
        assert_eq!(listed(&find(&tree)), "no circles\n");
    }

    #[test]
    fn programs_are_looked_at_too() {
        let tree = tree_of(&[
            (
                "xtask/src/main.rs",
                "mod a;\nfn main() { a::run() }\npub fn f() {}\n",
            ),
            ("xtask/src/a.rs", "pub fn run() { crate::f() }\n"),
        ]);
        assert_eq!(none(&tree).len(), 1);
    }
}
