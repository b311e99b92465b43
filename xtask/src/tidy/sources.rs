//! What may stand in Rust sources.

use super::code::{lines_with, without_prose};
use super::modules::production;
use super::problem::Problem;
use crate::tree::Tree;

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

/// Words that a comment does better without, and what to say.
const DIALECT: [(&str, &str); 4] = [
    ("so many", "name the number"),
    (
        "is told",
        "say what it gets: an argument, a value, an error",
    ),
    ("are told", "say what they get: arguments, values, errors"),
    ("whoever", "name the caller, the user or the worker"),
];

/// Comments are plain technical English.
pub fn plain_words(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.sources() {
        for (number, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let comment = comment.to_lowercase();
            for (word, instead) in DIALECT {
                if lines_with(&comment, word).next().is_some() {
                    let message = format!("`{word}` in a comment: {instead}");
                    problems.push(Problem::new(path, Some(number + 1), message));
                }
            }
        }
    }
    problems
}

/// The program: flags, commands, console and exit codes. What it does lies in the libraries.
const PROGRAM: &str = "gpipe-cli";

/// Lines of Rust that the program may have. A new command is a reason to raise it, by what that needs.
const PROGRAM_LINES: usize = 4000;

/// The program stays thin: lines of `src`, as `wc -l` counts them, files of tests left out.
pub fn thin_program(tree: &Tree) -> Vec<Problem> {
    let folder = format!("{PROGRAM}/src/");
    let files = production(tree).into_iter().map(|(path, _)| path);
    let counted = files
        .filter(|path| path.starts_with(&folder))
        .filter_map(|path| tree.files.get(path));
    let lines: usize = counted.map(|text| text.matches('\n').count()).sum();
    if lines <= PROGRAM_LINES {
        return Vec::new();
    }
    let message = format!(
        "{lines} lines of Rust outside of tests, where {PROGRAM_LINES} is the cap: move what is not flags, \
         commands, console or exit codes to a library; a new command may raise the cap in \
         xtask/src/tidy/sources.rs"
    );
    vec![Problem::new(&folder, None, message)]
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
    fn dialect_is_found_in_comments_alone() {
        let text = "//! Whoever calls.\n/// Runs so many steps.\nlet is_told = \"so many\";\n// so manysided\n";
        let tree = tree_of(&[("gpipe-a/src/a.rs", text)]);
        assert_eq!(
            lines(plain_words(&tree)),
            [
                "gpipe-a/src/a.rs:1: `whoever` in a comment: name the caller, the user or the worker",
                "gpipe-a/src/a.rs:2: `so many` in a comment: name the number",
            ]
        );
    }

    #[test]
    fn the_program_is_capped() {
        let count = |lines: usize, path: &str| {
            let text = "x\n".repeat(lines);
            let tree = tree_of(&[
                ("gpipe-cli/src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n"),
                (path, &text),
            ]);
            lines_of(&tree)
        };
        assert_eq!(count(3997, "gpipe-cli/src/a.rs"), [""; 0]);
        assert_eq!(
            count(3998, "gpipe-cli/src/a.rs"),
            [
                "gpipe-cli/src/: 4001 lines of Rust outside of tests, where 4000 is the cap: move what is not \
                 flags, commands, console or exit codes to a library; a new command may raise the cap in \
                 xtask/src/tidy/sources.rs"
            ]
        );
        assert_eq!(count(3998, "gpipe-cli/src/tests/a.rs"), [""; 0]);
        assert_eq!(count(3998, "gpipe-cli/tests/a.rs"), [""; 0]);
        assert_eq!(count(3998, "gpipe-train/src/a.rs"), [""; 0]);
    }

    fn lines_of(tree: &Tree) -> Vec<String> {
        lines(thin_program(tree))
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
