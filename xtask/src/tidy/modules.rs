//! A crate's files as modules, and the file that defines what a path names.
//!
//! Two files for one module (`#[path]`, for builds without a feature) count as two modules.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{without_prose, without_tests};
use super::items::{blocks, definitions, is_used};
use super::paths::{Import, Mention, imports, mentions};
use crate::tree::Tree;

/// Paths and code of the sources below the `src` of the crates, without prose, tests and files of tests.
pub fn production(tree: &Tree) -> Vec<(&str, String)> {
    let mut code = Vec::new();
    let mut tests = Vec::new();
    let is_of_crate = |path: &str| path.split('/').nth(1) == Some("src");
    for (path, text) in tree.sources().filter(|(path, _)| is_of_crate(path)) {
        let (kept, modules) = without_tests(&without_prose(text));
        let folder = module_folder(path);
        tests.extend(modules.iter().map(|module| format!("{folder}/{module}")));
        code.push((path, kept));
    }
    code.retain(|(path, _)| {
        let below = |module: &String| {
            let rest = path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        !tests.iter().any(below)
    });
    code
}

/// The folder in which a file's modules lie.
fn module_folder(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    }
}

/// The path of a module from the crate's root.
type ModulePath = Vec<String>;

/// A module: a file, or a block of one.
struct Module {
    file: usize,
    /// What it imports, by place in [`Crate::imports`].
    imports: Vec<usize>,
    /// The names of the modules right below.
    children: BTreeSet<String>,
    /// The names of the items that its text defines.
    defined: BTreeSet<String>,
    /// Where its block lies in the file; the whole of it for a file.
    range: (usize, usize),
}

/// The files of a crate, read as modules.
pub struct Crate<'a> {
    /// Paths from the root of the repository.
    pub files: Vec<&'a str>,
    code: Vec<String>,
    modules: BTreeMap<ModulePath, Module>,
    imports: Vec<Import>,
}

/// That a file needs what another one defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// By place in [`Crate::files`].
    pub from: usize,
    pub to: usize,
    /// The line that says so, from 1.
    pub line: usize,
}

impl<'a> Crate<'a> {
    /// The crate `name` of these sources; its programs in `src/bin` are not part of it.
    pub fn read(name: &str, sources: &[(&'a str, String)]) -> Self {
        let folder = format!("{name}/src/");
        let library = format!("{folder}lib.rs");
        let has_library = sources.iter().any(|(path, _)| *path == library);
        let mut found = Self {
            files: Vec::new(),
            code: Vec::new(),
            modules: BTreeMap::new(),
            imports: Vec::new(),
        };
        for (path, code) in sources {
            let Some(below) = path.strip_prefix(&folder) else {
                continue;
            };
            if below.starts_with("bin/") || (has_library && below == "main.rs") {
                continue;
            }
            let module = module_folder(path).strip_prefix(folder.trim_end_matches('/'));
            let segments = module.unwrap_or_default().split('/');
            let segments: ModulePath = segments
                .filter(|segment| !segment.is_empty())
                .map(str::to_owned)
                .collect();
            found.add_file(path, code, &segments);
        }
        for path in found.modules.keys().cloned().collect::<Vec<_>>() {
            if let Some((last, parent)) = path.split_last()
                && let Some(parent) = found.modules.get_mut(parent)
            {
                parent.children.insert(last.clone());
            }
        }
        found
    }

    fn add_file(&mut self, path: &'a str, code: &str, module: &[String]) {
        let file = self.files.len();
        let (imports, rest) = imports(code);
        self.files.push(path);
        self.code.push(rest);
        let mut add = |path: ModulePath, range: (usize, usize)| {
            let module = Module {
                file,
                imports: Vec::new(),
                children: BTreeSet::new(),
                defined: definitions(&self.code[file][range.0..range.1]),
                range,
            };
            self.modules.insert(path, module);
        };
        add(module.to_vec(), (0, code.len()));
        for (name, range) in blocks(code) {
            add([module, &[name]].concat(), range);
        }
        for import in imports {
            let path = self.module_at(file, import.path.at);
            let place = self.imports.len();
            self.imports.push(import);
            if let Some(module) = self.modules.get_mut(&path) {
                module.imports.push(place);
            }
        }
    }

    /// The innermost module of a file at a place.
    fn module_at(&self, file: usize, at: usize) -> ModulePath {
        let here = self.modules.iter().filter(|(_, module)| {
            module.file == file && module.range.0 <= at && at < module.range.1
        });
        let innermost = here.max_by_key(|(path, _)| path.len());
        innermost.map_or_else(Vec::new, |(path, _)| path.clone())
    }

    /// Which file needs which, each pair once, at its first line.
    pub fn needs(&self) -> Vec<Need> {
        let mut first = BTreeMap::new();
        let mut add = |from: usize, to: Option<usize>, line: usize| {
            if let Some(to) = to.filter(|to| *to != from) {
                let known = first.entry((from, to)).or_insert(line);
                *known = line.min(*known);
            }
        };
        let line = |file: usize, at: usize| {
            let before = &self.code[file].as_bytes()[..at];
            1 + before.iter().filter(|&&byte| byte == b'\n').count()
        };
        for (path, module) in &self.modules {
            for import in module.imports.iter().map(|&place| &self.imports[place]) {
                let name = import.name.as_deref();
                // What is only handed on is not needed here.
                let code = &self.code[module.file];
                let handed_on = import.reexported && !name.is_some_and(|name| is_used(code, name));
                if !handed_on {
                    let to = self.defining(path, &import.path.segments, name.is_none(), 0);
                    add(module.file, to, line(module.file, import.path.at));
                }
            }
        }
        for (file, code) in self.code.iter().enumerate() {
            for Mention { segments, at } in mentions(code) {
                let path = self.module_at(file, at);
                let to = self.defining(&path, &segments, false, 0);
                add(file, to, line(file, at));
            }
        }
        let need = |((from, to), line)| Need { from, to, line };
        first.into_iter().map(need).collect()
    }

    /// The file that defines what a path names, seen from a module; `None` for what lies outside of the
    /// crate, and for a module: what is taken from it counts. `all` takes everything of a module.
    fn defining(&self, from: &[String], path: &[String], all: bool, depth: usize) -> Option<usize> {
        // Imports that lead to each other name nothing.
        if depth > 16 {
            return None;
        }
        let mut module = from.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" | "super" => {
                while let Some(first) = rest.first() {
                    match first.as_str() {
                        "self" => {}
                        "super" => drop(module.pop()),
                        _ => break,
                    }
                    rest = &rest[1..];
                }
            }
            first => {
                let known = self.modules.get(from)?;
                let named = |&place: &usize| self.imports[place].name.as_deref() == Some(first);
                if !known.children.contains(first) && !known.imports.iter().any(named) {
                    return None;
                }
            }
        }
        while let Some((segment, below)) = rest.split_first() {
            let here = self.modules.get(&module)?;
            if here.children.contains(segment) && (!below.is_empty() || all) {
                module.push(segment.clone());
                rest = below;
                continue;
            }
            return self.item(&module, rest, all, depth);
        }
        all.then(|| self.modules.get(&module).map(|here| here.file))?
    }

    /// The file that defines the item at the beginning of `path` as it is known in a module.
    fn item(&self, module: &[String], path: &[String], all: bool, depth: usize) -> Option<usize> {
        let (name, below) = path.split_first()?;
        let here = self.modules.get(module)?;
        let imports = || here.imports.iter().map(|&place| &self.imports[place]);
        let defined = here.defined.contains(name);
        let named = imports().find(|import| import.name.as_ref() == Some(name));
        if let Some(import) = named.filter(|_| !defined) {
            let whole = [import.path.segments.as_slice(), below].concat();
            // `use a;` of a module `a` of this file names that module.
            return match whole == path {
                true => None,
                false => self.defining(module, &whole, all, depth + 1),
            };
        }
        if here.children.contains(name) {
            return None;
        }
        if !defined {
            for import in imports().filter(|import| import.name.is_none()) {
                let whole = [import.path.segments.as_slice(), path].concat();
                let file = self.defining(module, &whole, all, depth + 1);
                let holds = |file: &usize| {
                    let mut modules = self.modules.values();
                    modules.any(|module| module.file == *file && module.defined.contains(name))
                };
                if let Some(file) = file.filter(holds) {
                    return Some(file);
                }
            }
        }
        Some(here.file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree_of;
    use super::*;

    /// The needs of a crate of these files, as `from -> to`.
    fn needs(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (format!("gpipe-a/src/{path}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let tree = tree_of(&files);
        let sources = production(&tree);
        let read = Crate::read("gpipe-a", &sources);
        let short = |file: usize| read.files[file].trim_start_matches("gpipe-a/src/");
        let needs = read.needs().into_iter();
        needs
            .map(|need| format!("{}:{} -> {}", short(need.from), need.line, short(need.to)))
            .collect()
    }

    #[test]
    fn imports_are_resolved_to_the_defining_file() {
        let found = needs(&[
            (
                "lib.rs",
                "mod a;\nmod b;\npub use a::{A, Again as Other};\npub use b::*;\n",
            ),
            ("a.rs", "use crate::B;\npub struct A;\npub struct Again;\n"),
            ("b.rs", "\nuse super::{A, Other};\npub struct B;\n"),
        ]);
        assert_eq!(found, ["a.rs:1 -> b.rs", "b.rs:2 -> a.rs"]);
    }

    #[test]
    fn what_a_parent_defines_and_uses_counts() {
        let found = needs(&[
            (
                "lib.rs",
                "mod a;\npub use a::A;\npub type Result = Option<A>;\n",
            ),
            ("a.rs", "pub struct A;\nfn f() -> crate::Result { None }\n"),
        ]);
        assert_eq!(found, ["a.rs:2 -> lib.rs", "lib.rs:2 -> a.rs"]);
    }

    #[test]
    fn modules_count_by_what_is_taken_from_them() {
        let found = needs(&[
            ("lib.rs", "mod ops;\nmod c;\n"),
            (
                "ops/mod.rs",
                "mod add;\nmod sub;\npub use add::add;\npub fn own() {}\n",
            ),
            (
                "ops/add.rs",
                "use super::sub;\npub fn add() { sub::sub() }\n",
            ),
            (
                "ops/sub.rs",
                "use crate::ops;\npub fn sub() { ops::own() }\n",
            ),
            ("c.rs", "use crate::ops;\nfn f() { ops::add() }\n"),
        ]);
        assert_eq!(
            found,
            [
                "c.rs:2 -> ops/add.rs",
                "ops/add.rs:2 -> ops/sub.rs",
                "ops/sub.rs:2 -> ops/mod.rs"
            ]
        );
    }

    #[test]
    fn blocks_are_modules_of_their_own() {
        let found = needs(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            (
                "a.rs",
                "mod field { pub use super::super::b::B; const X: u8 = super::Y; }\nfn f(_: field::B) {}\n",
            ),
            ("b.rs", "pub struct B;\nfn f() { crate::a::field::X }\n"),
        ]);
        assert_eq!(found, ["a.rs:2 -> b.rs", "b.rs:2 -> a.rs"]);
    }

    #[test]
    fn tests_do_not_count() {
        let found = needs(&[
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n"),
            (
                "a.rs",
                "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n",
            ),
            ("tests/mod.rs", "mod deep;\nuse crate::a::A;\n"),
            ("tests/deep.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
