//! What can be asked for.

use std::path::PathBuf;

xflags::xflags! {
    /// Automation for gpipe.
    cmd xtask {
        /// Checks the invariants that a machine can check without compiling.
        cmd tidy {}
        /// Runs every check that a change must pass, in the order of their cost.
        cmd ci {
            /// Lists the steps and stops.
            optional --list
            /// Leaves out the tests that `cargo test --workspace` runs.
            optional --no-test
            /// Runs only the steps whose name starts with this; may be repeated.
            repeated --only name: String
        }
        /// Makes the archive to hand out in target/dist: the program, its pages, completions and
        /// licences, with the SHA-256 beside it.
        cmd dist {
            /// Unpacks it again, compares every file and runs the program.
            optional --check
        }
        /// Trains a GPT-2 of `transformers` here and in PyTorch, and compares losses, gradient norms
        /// and probabilities.
        cmd parity {
            /// A Python with torch and transformers; python3 if not given.
            optional --python path: PathBuf
            /// Replaces the recorded results, with which CI compares.
            optional --record
        }
        /// Runs the rows of the exam at their full numbers; `--list` names them.
        cmd exam {
            /// Rows, such as F1; all of them if none is named.
            repeated row: String
            /// Lists the rows and stops.
            optional --list
            /// Runs the quick rows only, at the numbers of `cargo test`.
            optional --quick
            /// Runs the faults planted for each row instead, all of which must be caught.
            optional --teeth
        }
        /// Measures: `ops` by criterion, `schedule` by programs of its own, `training`, `sizes` and `plan`
        /// by whole runs of the program.
        cmd bench {
            /// ops, schedule, training, sizes (step time against layers, width, length and micro-batches)
            /// or plan (every way to train against what is predicted); all if none is named.
            repeated family: String
            /// Prints one JSON object a line on stdout instead of tables.
            optional --json
            /// Prints the tables of schedule, training and sizes as Markdown.
            optional --markdown
            /// What an earlier --json of training printed: slower than that is a failure.
            optional --baseline file: PathBuf
            /// How long the stages of schedule sleep; 10 if not given (about a minute and a half in all).
            optional --milliseconds n: u32
            /// Model of training (bench-a, bench-b or bench-tiny) or plan; bench-a or gpt-mini if not given.
            optional --model name: String
            /// Threads in all; 2 if not given.
            optional --threads n: usize
            /// Numbers of stages, as 1,2,4.
            optional --stages list: String
            /// Numbers of micro-batches, as 1,4,8.
            optional --micro-batches list: String
            /// Schedules, as gpipe,1f1b.
            optional --schedules list: String
            /// Rematerialization policies, as keep,stage.
            optional --remat list: String
            /// How often every configuration runs, in turns; 3 if not given, 2 for sizes and plan.
            optional --rounds n: usize
            /// Measured steps a run, after two that warm up; 6 if not given, 4 for sizes, 3 after one for plan.
            optional --steps n: usize
            /// A folder with single.py and pipelining.py: PyTorch takes its turns in every round.
            optional --peers dir: PathBuf
            /// The Python that runs it; python3 if not given.
            optional --python path: PathBuf
        }
    }
}
