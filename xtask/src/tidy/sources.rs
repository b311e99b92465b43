//! What may stand in Rust sources.

use std::collections::BTreeSet;

use super::Problem;
use super::code::{lines_with, without_prose, without_tests};
use crate::tree::Tree;

/// What a library may not do, and what it does instead.
const QUIET: [(&str, &str); 12] = [
    ("println!", OUTPUT),
    ("print!", OUTPUT),
    ("eprintln!", OUTPUT),
    ("eprint!", OUTPUT),
    ("dbg!", OUTPUT),
    ("std::env", SETTINGS),
    ("env::var", SETTINGS),
    ("env::args", SETTINGS),
    ("Instant::now", CLOCK),
    ("SystemTime", CLOCK),
    ("fs::File", FILES),
    ("std::fs", FILES),
];
const OUTPUT: &str = "bytes go out through return values or io::Write";
const SETTINGS: &str = "settings are arguments";
const CLOCK: &str = "only the executor's spans read the clock";
const FILES: &str = "the program alone touches files";

/// The executor's clock.
const EXCEPTIONS: [(&str, &str); 1] = [("gpipe-sched/src/executor/sync.rs", "Instant::now")];

/// Libraries print nothing, read no environment or file, and use no clock.
pub fn libraries_stay_quiet(tree: &Tree) -> Vec<Problem> {
    let mut code = Vec::new();
    let mut tests = BTreeSet::new();
    for (path, text) in tree.sources().filter(|(path, _)| is_library(path)) {
        let (kept, modules) = without_tests(&without_prose(text));
        for module in modules {
            let folder = module_folder(path);
            tests.insert(format!("{folder}/{module}.rs"));
            tests.insert(format!("{folder}/{module}/mod.rs"));
        }
        code.push((path, kept));
    }
    let mut problems = Vec::new();
    for (path, code) in code.iter().filter(|(path, _)| !tests.contains(*path)) {
        for (word, instead) in QUIET {
            if EXCEPTIONS.contains(&(path, word)) {
                continue;
            }
            for line in lines_with(code, word) {
                let message = format!("{word} in a library: {instead}");
                problems.push(Problem::new(path, Some(line), message));
            }
        }
    }
    problems
}

/// Whether a path is part of what a library does when used.
fn is_library(path: &str) -> bool {
    path.starts_with("gpipe-") && !path.starts_with("gpipe-cli/") && path.contains("/src/")
}

/// The folder in which a file's modules lie.
fn module_folder(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    }
}

/// Nothing is left for later, in tests neither.
pub fn nothing_unfinished(tree: &Tree) -> Vec<Problem> {
    let words = [
        ("todo!", "is unfinished work: finish it or leave it out"),
        (
            "unimplemented!",
            "is unfinished work: finish it or leave it out",
        ),
        ("#[ignore", "hides a test: make it fast or leave it out"),
    ];
    let mut problems = Vec::new();
    for (path, text) in tree.sources() {
        let code = without_prose(text);
        for (word, message) in words {
            for line in lines_with(&code, word) {
                problems.push(Problem::new(path, Some(line), format!("{word} {message}")));
            }
        }
    }
    problems
}

/// Files that hold more than one idea, most likely.
pub fn long_files(tree: &Tree) -> Vec<Problem> {
    const LONG: usize = 400;
    let lengths = tree
        .sources()
        .map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(_, length)| *length > LONG);
    let problem = |(path, length)| {
        let message =
            format!("{length} lines, where {LONG} are long: consider splitting it by ideas");
        Problem::new(path, None, message)
    };
    long.map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{lines, tree_of};
    use super::*;

    fn quiet(path: &str, text: &str) -> usize {
        libraries_stay_quiet(&tree_of(&[(path, text)])).len()
    }

    #[test]
    fn every_loud_word_is_caught() {
        for (word, _) in QUIET {
            assert!(
                quiet("gpipe-tensor/src/a.rs", &format!("fn f() {{ {word}(x) }}")) >= 1,
                "{word}"
            );
        }
        assert_eq!(
            quiet(
                "gpipe-tensor/src/a.rs",
                "//! println! is not used, \"print!\" neither.\n"
            ),
            0
        );
    }

    #[test]
    fn programs_tests_and_the_executors_clock_are_exempt() {
        let loud = "fn f() { println!(); std::time::Instant::now(); }";
        assert_eq!(quiet("gpipe-cli/src/main.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/tests/suite.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/examples/show.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/src/executor/sync.rs", loud), 1);
        assert_eq!(quiet("gpipe-sched/src/executor/worker.rs", loud), 2);
        assert_eq!(
            quiet(
                "gpipe-sched/src/a.rs",
                &format!("#[cfg(test)]\nmod tests {{ {loud} }}")
            ),
            0
        );
    }

    #[test]
    fn test_modules_in_their_own_files_are_exempt() {
        let loud = "fn f() { println!() }";
        let tree = tree_of(&[
            (
                "gpipe-tensor/src/lib.rs",
                "mod ops;\n#[cfg(test)]\nmod testing;\n",
            ),
            ("gpipe-tensor/src/testing.rs", loud),
            ("gpipe-tensor/src/ops/mod.rs", "#[cfg(test)]\nmod tests;\n"),
            ("gpipe-tensor/src/ops/tests.rs", loud),
            ("gpipe-tensor/src/pool.rs", "#[cfg(test)]\nmod tests;\n"),
            ("gpipe-tensor/src/pool/tests.rs", loud),
            ("gpipe-tensor/src/tests.rs", loud),
        ]);
        let named: Vec<String> = libraries_stay_quiet(&tree)
            .into_iter()
            .map(|problem| problem.path)
            .collect();
        assert_eq!(named, ["gpipe-tensor/src/tests.rs"]);
    }

    #[test]
    fn unfinished_work_is_found_everywhere() {
        let tree = tree_of(&[
            ("gpipe-cli/src/a.rs", "fn f() {\n    todo!()\n}\n"),
            (
                "gpipe-sched/tests/b.rs",
                "#[test]\n#[ignore = \"slow\"]\nfn g() { unimplemented!() }\n",
            ),
            ("xtask/src/c.rs", "const WORD: &str = \"todo!\";\n"),
        ]);
        assert_eq!(
            lines(nothing_unfinished(&tree)),
            [
                "gpipe-cli/src/a.rs:2: todo! is unfinished work: finish it or leave it out",
                "gpipe-sched/tests/b.rs:3: unimplemented! is unfinished work: finish it or leave it out",
                "gpipe-sched/tests/b.rs:2: #[ignore hides a test: make it fast or leave it out",
            ]
        );
    }

    #[test]
    fn long_files_are_named() {
        let long = "x\n".repeat(401);
        let tree = tree_of(&[
            ("xtask/src/long.rs", &long),
            ("xtask/src/short.rs", &long[2..]),
        ]);
        assert_eq!(
            lines(long_files(&tree)),
            ["xtask/src/long.rs: 401 lines, where 400 are long: consider splitting it by ideas"]
        );
    }
}
