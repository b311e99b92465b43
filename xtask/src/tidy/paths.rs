//! The paths in a file's code: what its `use` declarations import, and the paths written out elsewhere.

use super::code::is_word;

/// A path of a file, such as `crate::shape::Shape`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mention {
    /// Its segments; `$crate` is `crate`.
    pub segments: Vec<String>,
    /// Where it begins, in bytes.
    pub at: usize,
}

/// A name that a `use` declaration brings in.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// The path that it stands for.
    pub path: Mention,
    /// The name in this file; `None` for a glob, whose path is that of the module.
    pub name: Option<String>,
    /// Whether `pub` or `pub(…)` hands it on.
    pub reexported: bool,
}

/// The imports of code (as `without_prose` and `without_tests` leave it), and the code without them.
pub fn imports(code: &str) -> (Vec<Import>, String) {
    let mut found = Vec::new();
    let mut rest = code.as_bytes().to_vec();
    for (at, _) in code.match_indices("use") {
        let Some((start, end)) = declaration(code, at) else {
            continue;
        };
        let before = code[..at].trim_end();
        let reexported = before.ends_with(')') || last_word(before) == "pub";
        let tree = Tree {
            code,
            reexported,
            found: &mut found,
        };
        tree.read(&[], start, end);
        for byte in &mut rest[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    (found, String::from_utf8_lossy(&rest).into_owned())
}

/// The tree of the declaration whose `use` stands at `at`: its beginning and the place of its semicolon.
fn declaration(code: &str, at: usize) -> Option<(usize, usize)> {
    let before = code[..at].trim_end();
    let begins = before.is_empty()
        || before.ends_with([';', '{', '}', ']', ')'])
        || last_word(before) == "pub";
    let apart = at == 0 || !is_word(code.as_bytes()[at - 1]);
    let after = code.as_bytes().get(at + 3);
    // `use<'a>` names what an opaque type captures.
    (begins && apart && after.is_some_and(u8::is_ascii_whitespace)).then_some(())?;
    let end = at + code[at..].find(';')?;
    Some((at + 3, end))
}

/// A use tree that is being read.
struct Tree<'a, 'f> {
    code: &'a str,
    reexported: bool,
    found: &'f mut Vec<Import>,
}

impl Tree<'_, '_> {
    fn read(mut self, prefix: &[String], start: usize, end: usize) {
        self.branch(prefix, start, end);
    }

    /// The tree between two places, below `prefix`.
    fn branch(&mut self, prefix: &[String], start: usize, end: usize) {
        let text = &self.code[start..end];
        let at = start + text.len() - text.trim_start().len();
        if let Some(open) = text.find('{') {
            let close = text.rfind('}').unwrap_or(text.len());
            let below = [prefix, &segments(&text[..open])].concat();
            for (from, to) in parts(&text[open + 1..close]) {
                self.branch(&below, start + open + 1 + from, start + open + 1 + to);
            }
            return;
        }
        let (path, alias) = match text.trim().split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim())),
            None => (text.trim(), None),
        };
        // A path from the outside.
        if path.is_empty() || (prefix.is_empty() && path.starts_with("::")) {
            return;
        }
        let mut path = [prefix, &segments(path)].concat();
        let glob = path.last().is_some_and(|last| last == "*");
        let itself = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        if glob || itself {
            path.pop();
        }
        let name = match alias {
            Some(alias) => Some(alias.to_owned()),
            None => path.last().cloned(),
        };
        self.found.push(Import {
            name: name.filter(|_| !glob),
            path: Mention { segments: path, at },
            reexported: self.reexported,
        });
    }
}

/// The parts of a list between its commas, braces kept together.
fn parts(list: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push((from, list.len()));
    found
}

fn segments(path: &str) -> Vec<String> {
    let segments = path.split("::").map(str::trim);
    segments
        .filter(|segment| !segment.is_empty())
        .map(str::to_owned)
        .collect()
}

fn last_word(text: &str) -> &str {
    let start = text.bytes().rposition(|byte| !is_word(byte));
    start.map_or(text, |before| &text[before + 1..])
}

/// The paths of two segments or more in code without imports.
pub fn mentions(code: &str) -> Vec<Mention> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        let mut segments = vec![word(code, &mut at)];
        while code[at..].starts_with("::") && bytes.get(at + 2).is_some_and(|&byte| is_word(byte)) {
            at += 2;
            segments.push(word(code, &mut at));
        }
        let goes_on = code[..start].ends_with("::") || code[..start].ends_with('.');
        if segments.len() > 1 && !goes_on {
            found.push(Mention {
                segments,
                at: start,
            });
        }
    }
    found
}

/// The word at `at`, which moves behind it.
fn word(code: &str, at: &mut usize) -> String {
    let start = *at;
    while code.as_bytes().get(*at).is_some_and(|&byte| is_word(byte)) {
        *at += 1;
    }
    code[start..*at].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(code: &str) -> Vec<String> {
        let (imports, _) = imports(code);
        let show = |import: &Import| {
            let name = import.name.as_deref().unwrap_or("*");
            let how = if import.reexported { "pub " } else { "" };
            format!("{how}{} as {name}", import.path.segments.join("::"))
        };
        imports.iter().map(show).collect()
    }

    #[test]
    fn use_trees_are_flattened() {
        assert_eq!(
            imported("use crate::a::{self, B, c::{D as E, *}};\npub(crate) use super::f;"),
            [
                "crate::a as a",
                "crate::a::B as B",
                "crate::a::c::D as E",
                "crate::a::c as *",
                "pub super::f as f"
            ]
        );
        assert_eq!(
            imported("use std::{fs, io};"),
            ["std::fs as fs", "std::io as io"]
        );
        assert_eq!(imported("use ::x::y; let use_it = 1; reuse a;"), [""; 0]);
        assert_eq!(
            imported("fn f() -> impl Iterator + use<'_> { g() }"),
            [""; 0]
        );
        assert_eq!(
            imported("fn f() {\n    use super::G as _;\n}"),
            ["super::G as _"]
        );
    }

    #[test]
    fn paths_are_found_outside_of_imports() {
        let (_, rest) =
            imports("use crate::a::b;\nfn f() { crate::c::d::<T>(); x.y(); $crate::e! }");
        let found: Vec<String> = mentions(&rest)
            .into_iter()
            .map(|mention| mention.segments.join("::"))
            .collect();
        assert_eq!(found, ["crate::c::d", "crate::e"]);
    }
}
