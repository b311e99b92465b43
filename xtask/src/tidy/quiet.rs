//! What a library leaves to the program.

use super::code::lines_with;
use super::modules::production;
use super::paths::imports;
use super::problem::Problem;
use crate::tree::Tree;

/// A thing that a library may not do unless it is for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Print,
    Environment,
    Clock,
    Files,
}

use Deed::{Clock, Environment, Files, Print};

impl Deed {
    /// What is done instead.
    fn instead(self) -> &'static str {
        match self {
            Print => "bytes go out through return values or io::Write",
            Environment => "settings are arguments",
            Clock => {
                "times are arguments; only the executor's spans, idle helper threads and gpipe-train read the clock"
            }
            Files => "the crates above gpipe-remat touch files",
        }
    }
}

/// What does it, as written in code.
const WORDS: [(&str, Deed); 13] = [
    ("println!", Print),
    ("print!", Print),
    ("eprintln!", Print),
    ("eprint!", Print),
    ("dbg!", Print),
    ("std::env", Environment),
    ("env::var", Environment),
    ("env::args", Environment),
    ("Instant::now", Clock),
    ("SystemTime::now", Clock),
    (ELAPSED, Clock),
    ("fs::File", Files),
    ("std::fs", Files),
];

/// Reads the clock without saying so.
const ELAPSED: &str = "elapsed()";

/// Paths that say what they do only by what they are imported as.
const PATHS: [(&str, Deed); 2] = [("std::env", Environment), ("std::fs", Files)];

/// What the program was built for, which is no environment.
const CONSTANTS: &str = "std::env::consts";

/// The libraries with a task that needs more. A crate that is not named does none of it.
const TASKS: [(&str, &[Deed]); 7] = [
    ("gpipe-files", &[Files]),
    // The launcher tells a process its rank in variables, and its own place in `/proc`.
    ("gpipe-mpi", &[Environment, Clock, Files]),
    ("gpipe-checkpoint", &[Files]),
    ("gpipe-hf", &[Files]),
    ("gpipe-data", &[Files]),
    ("gpipe-report", &[Files]),
    // The machine's memory and processor are files of `/proc`.
    ("gpipe-train", &[Files, Clock]),
];

/// Files that read the clock: for the executor's spans, and for how long a thread looks out for work.
const CLOCKS: [&str; 2] = [
    "gpipe-sched/src/executor/clock.rs",
    "gpipe-tensor/src/helpers.rs",
];

/// The program may do all of it; xtask is no library.
const PROGRAMS: [&str; 2] = ["gpipe-cli", "xtask"];

/// Libraries print nothing and read no environment; files and clocks are left to those whose task they are.
pub fn libraries_stay_quiet(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, code) in production(tree) {
        let name = path.split('/').next().unwrap_or_default();
        if PROGRAMS.contains(&name) {
            continue;
        }
        let task = TASKS.iter().find(|(library, _)| *library == name);
        let allowed = |deed: Deed| {
            task.is_some_and(|(_, deeds)| deeds.contains(&deed))
                || (CLOCKS.contains(&path) && deed == Clock)
        };
        let code = code.replace(CONSTANTS, &" ".repeat(CONSTANTS.len()));
        let mut found: Vec<(usize, &str, Deed)> = Vec::new();
        for (word, deed) in WORDS {
            found.extend(lines_with(&code, word).map(|line| (line, word, deed)));
        }
        let (imports, _) = imports(&code);
        for import in &imports {
            let whole = import.path.segments.join("::");
            for (module, deed) in PATHS {
                let inside = whole.strip_prefix(module);
                if inside.is_some_and(|rest| rest.is_empty() || rest.starts_with("::")) {
                    let before = &code.as_bytes()[..import.path.at];
                    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                    found.push((line, module, deed));
                }
            }
        }
        found.retain(|(_, _, deed)| !allowed(*deed));
        found.sort_by_key(|&(line, word, _)| (line, word));
        found.dedup();
        for (line, word, deed) in found {
            let message = format!("{word} in a library: {}", deed.instead());
            problems.push(Problem::new(path, Some(line), message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::tree_of;
    use super::*;

    fn quiet(path: &str, text: &str) -> usize {
        libraries_stay_quiet(&tree_of(&[(path, text)])).len()
    }

    #[test]
    fn every_loud_word_is_caught() {
        for (word, deed) in WORDS {
            let code = format!("fn f() {{ {word}(x) }}");
            assert!(quiet("gpipe-tensor/src/a.rs", &code) >= 1, "{word}");
            // An example that is a package of its own is a program.
            assert_eq!(quiet("gpipe-sched/examples/a/src/main.rs", &code), 0);
            let train = quiet("gpipe-train/src/a.rs", &code);
            assert_eq!(train >= 1, [Print, Environment].contains(&deed), "{word}");
            for library in ["files", "checkpoint", "hf", "data", "report"] {
                let found = quiet(&format!("gpipe-{library}/src/a.rs"), &code);
                assert_eq!(found >= 1, deed != Files, "{word} in {library}");
            }
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
    fn lists_of_imports_hide_nothing() {
        let found = |path: &str| quiet(path, "use std::{env, fs as files};\n");
        assert_eq!(found("gpipe-layers/src/a.rs"), 2);
        assert_eq!(found("gpipe-hf/src/a.rs"), 1);
        assert_eq!(quiet("gpipe-layers/src/a.rs", "use std::{fmt, io};\n"), 0);
    }

    #[test]
    fn times_may_be_handed_around_and_constants_read() {
        let times = "use std::time::SystemTime;\nfn f(now: SystemTime) {}\n";
        assert_eq!(quiet("gpipe-report/src/a.rs", times), 0);
        let constants = "fn f() -> &'static str { std::env::consts::OS }";
        assert_eq!(quiet("gpipe-train/src/a.rs", constants), 0);
        assert_eq!(
            quiet("gpipe-report/src/a.rs", "fn f(s: Instant) { s.elapsed() }"),
            1
        );
    }

    #[test]
    fn programs_tests_and_the_executors_clock_are_exempt() {
        let loud = "fn f() { println!(); std::time::Instant::now(); }";
        assert_eq!(quiet("gpipe-cli/src/main.rs", loud), 0);
        assert_eq!(quiet("xtask/src/main.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/tests/suite.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/examples/show.rs", loud), 0);
        assert_eq!(quiet("gpipe-sched/src/executor/clock.rs", loud), 1);
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
            ("gpipe-tensor/src/ops/tests/deep/mod.rs", loud),
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
}
