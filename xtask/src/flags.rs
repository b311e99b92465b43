//! What can be asked for.

use std::path::PathBuf;

xflags::xflags! {
    /// Automation for gpipe.
    cmd xtask {
        /// Checks the invariants that a machine can check without compiling.
        cmd tidy {
            /// Lists the circles of files and the imports that make them, and stops.
            optional --circles
            /// Another checkout than the one that this program was built in.
            optional --root dir: PathBuf
        }
        /// Runs every check that a change must pass, in the order of their cost.
        cmd ci {
            /// Lists the steps and stops.
            optional --list
            /// Leaves out the tests that `cargo test --workspace` runs.
            optional --no-test
            /// Runs only the steps that run nothing they build: formatting, lints, types and documentation.
            optional --static-checks
            /// Leaves those out.
            optional --no-static-checks
            /// Runs only the steps whose name starts with this; may be repeated.
            repeated --only name: String
        }
        /// Writes the table of keys in gpipe-cli/reference anew, from what the program says.
        cmd reference {}
        /// Makes the archive to hand out in target/dist: the program, its pages, completions and
        /// licences, with the SHA-256 beside it.
        cmd dist {
            /// Unpacks it again, compares every file and runs the program.
            optional --check
        }
        /// Trains a GPT-2 of `transformers` here and in PyTorch, and compares losses, gradient norms
        /// and probabilities; opens adapters of `peft` here, and those trained here in `peft`; compares networks
        /// for images and an encoder-decoder with PyTorch, and saved ResNets in torchvision.
        cmd parity {
            /// gpt, llama, peft, seq2seq or images; all of them if none is named.
            repeated family: String
            /// A Python with torch, transformers and peft, and with torchvision for its ResNets; python3 if not given.
            optional --python path: PathBuf
            /// A GGUF file of SmolLM2-135M-Instruct, for `llama`: its loss on a text, and its folder in transformers.
            optional --gguf path: PathBuf
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
        /// Checks everything on the GPU of this machine: every operation and whole runs against the processor,
        /// compute-sanitizer's tools, rehearsals; measures whole runs, launches one by one, ceilings, PyTorch. Each result is
        /// written as it is known: tables for GPU.md, an object a line, a summary of one page.
        cmd gpu {
            /// Packs the programs instead, for a host with a driver and no Rust, to target/gpu.
            optional --archive
            /// Packs them, and runs what was packed at small sizes on emulated GPUs: as a whole, and cut off in each part.
            optional --check
            /// Prints the kernels of a step of GPT-2 instead, or writes them to `--out`: what NVRTC makes of each, and the time
            /// that a model of an H200 predicts. No GPU is needed.
            optional --table
            /// What the test of the kernels wrote to the file that GPIPE_KERNELS names; without it they are compiled.
            optional --kernels file: PathBuf
            /// The profile of cargo in which programs are built; release if not given.
            optional --profile name: String
            /// A folder with the programs, which are built if none is given.
            optional --programs dir: PathBuf
            /// Takes small models and few steps.
            optional --small
            /// Parts, as a,b: a the first figures, operations and training, b speed, c PyTorch, d rehearsals and sanitizer; all
            /// of them if not given. Parts that are named add to the results that are there.
            optional --only parts: String
            /// Seconds that each part may take; 540 if not given. What still runs then is ended.
            optional --limit seconds: u64
            /// Rows after which the time of each part is up, to try what a limit leaves.
            optional --cut rows: usize
            /// The file of tables; results.md if not given. Those of objects and of the summary lie beside it.
            optional --out file: PathBuf
            /// The Python whose PyTorch is measured; python3 if not given.
            optional --python path: PathBuf
        }
        /// Measures: `ops` by criterion, `schedule` by programs of its own, `training`, `sizes`, `images`
        /// and `plan` by whole runs of the program; `published` predicts published tables, and
        /// `tutorial` draws a ResNet-50 in one piece, naively over two workers and pipelined.
        cmd bench {
            /// ops, schedule, training, sizes (step time against layers, width, length and micro-batches),
            /// images (a ResNet-50 beside PyTorch's), llama (tokens of a Llama beside PyTorch's), plan (every way to train against what is predicted),
            /// published (speed-ups of papers against what is predicted for their balances and
            /// devices) or tutorial (the article's ResNet-50: one piece, naive, pipelined over split sizes;
            /// the picture is target/tutorial.svg); all of these if none is named.
            /// Or ranks (processes over MPI beside threads, replicas beside PyTorch's, messages beside MPI's own), with
            /// launchers in GPIPE_MPIRUN.
            repeated family: String
            /// Prints one JSON object a line on stdout instead of tables.
            optional --json
            /// Prints the tables of schedule, training, sizes, images, published and tutorial as Markdown.
            optional --markdown
            /// What an earlier --json of training printed: slower than that is a failure.
            optional --baseline file: PathBuf
            /// Parts of ranks, as a,b: a processes, b replicas, c messages; all of them if not given.
            optional --parts list: String
            /// How long the stages of schedule sleep; 10 if not given (about a minute and a half in all).
            optional --milliseconds n: u32
            /// Model of training and ranks (bench-a, bench-b or bench-tiny) or plan; bench-a or gpt-mini if not given.
            optional --model name: String
            /// Precision of training, f32 or bf16, for both programs; f32 if not given.
            optional --dtype name: String
            /// Threads in all; 2 if not given, 1 and then 2 for images.
            optional --threads n: usize
            /// Numbers of stages, as 1,2,4.
            optional --stages list: String
            /// Numbers of micro-batches, as 1,4,8.
            optional --micro-batches list: String
            /// Schedules, as gpipe,1f1b.
            optional --schedules list: String
            /// Rematerialization policies, as keep,stage.
            optional --remat list: String
            /// How often every configuration runs, in turns; 3 if not given, 2 for sizes, 5 for images, ranks and plan,
            /// of which all of plan's but the first take only what may be the fastest.
            optional --rounds n: usize
            /// Measured steps a run, after two that warm up; 6 if not given, 4 for sizes and images, 2 after one for plan.
            optional --steps n: usize
            /// The Python whose PyTorch takes its turns in every round. If not given, training measures gpipe alone;
            /// images, llama and ranks take python3.
            optional --python path: PathBuf
        }
    }
}
