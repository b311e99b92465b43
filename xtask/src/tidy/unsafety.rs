//! `unsafe` lives in two crates, and says why it is sound.

use super::code::{lines_with, without_prose};
use super::problem::Problem;
use crate::tree::Tree;

const HOMES: [&str; 2] = ["gpipe-tensor", "gpipe-mpi"];

/// The modules that hold unsafe code, and how it is tried: row Q2 of the exam interprets what Miri
/// can; it cannot call into other libraries.
const MODULES: &[(&str, &str)] = &[
    ("gpipe-tensor/src/fork_join.rs", "Miri: exam Q2"),
    ("gpipe-tensor/src/floats.rs", "Miri: exam Q2"),
    (
        "gpipe-tensor/src/huge_pages.rs",
        "maps memory, which Miri cannot: buffers beside each other, and pages that go back, in the tests of floats.rs",
    ),
    (
        "gpipe-tensor/src/instruction_set.rs",
        "asks the processor: products against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/matmul/gemm.rs",
        "against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/matmul/gemm/kernel.rs",
        "against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/prefetch.rs",
        "asks for cache lines, which has no other effect",
    ),
    (
        "gpipe-tensor/src/ops/matmul/packed/kernel.rs",
        "against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/matmul/amx/kernel.rs",
        "against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/matmul/amx/pack.rs",
        "against a plain loop in f64",
    ),
    (
        "gpipe-tensor/src/ops/matmul/amx/rectangle.rs",
        "against a plain loop in f64, and the same bits on 1, 2, 5 and 16 threads",
    ),
    (
        "gpipe-tensor/src/cuda/asked.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/compute.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/compute/memory.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/compute/operations.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/graph.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/replays.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/blas.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/blas_lt.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/context.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/gpu.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/linked.rs",
        "foreign: type-checked alone",
    ),
    (
        "gpipe-tensor/src/cuda/memory.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/mixed.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/raw_handle.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/transfer.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/module.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/builtins.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/nccl.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/nccl_comm.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/nccl_channel.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/peer.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/pinned.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/stream.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/src/cuda/probe.rs",
        "foreign: what is missing is said",
    ),
    (
        "gpipe-tensor/src/cuda/status.rs",
        "foreign: what is missing is said",
    ),
    (
        "gpipe-tensor/src/cuda/nvrtc.rs",
        "foreign: compiles every kernel",
    ),
    (
        "gpipe-tensor/src/cuda/emulator/mod.rs",
        "foreign: against the processor",
    ),
    (
        "gpipe-tensor/src/cuda/conformance/mod.rs",
        "foreign: against the processor",
    ),
    (
        "gpipe-tensor/src/tensor/cuda.rs",
        "foreign: on an emulated host",
    ),
    (
        "gpipe-tensor/tests/emulated/driver.rs",
        "foreign: the emulator looks at every address",
    ),
    (
        "gpipe-tensor/tests/emulated/faults.rs",
        "foreign: the emulator looks at every address",
    ),
    ("gpipe-mpi/src/api.rs", "foreign: under real launchers"),
    ("gpipe-mpi/src/library.rs", "foreign: under real launchers"),
    ("gpipe-mpi/src/messages.rs", "foreign: under real launchers"),
    ("gpipe-mpi/src/raw.rs", "foreign: under real launchers"),
    ("gpipe-mpi/src/session.rs", "foreign: under real launchers"),
    (
        "gpipe-mpi/src/traffic/tests.rs",
        "calls of a test that keep no address",
    ),
];

/// The operations whose `cuda.rs` launches kernels, which is unsafe: addresses have no sizes. Tried as the
/// other foreign calls, on an emulated host that looks at every address.
const LAUNCHES: &[&str] = &[
    "adamw",
    "add",
    "attention",
    "binary_cross_entropy",
    "channel_norm",
    "concat",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "glu",
    "key_value_cache",
    "layer_norm",
    "matmul",
    "pad2d",
    "pool2d",
    "relu",
    "rms_norm",
    "rope",
    "rmsprop",
    "scale",
    "segment_attention",
    "sgd",
    "sinusoid",
    "softmax",
    "squared_error",
    "sum",
];

/// Whether a module may hold unsafe code.
fn may(path: &str) -> bool {
    let operation = path.strip_prefix("gpipe-tensor/src/ops/");
    let operation = operation.and_then(|rest| rest.strip_suffix("/cuda.rs"));
    MODULES.iter().any(|(listed, _)| *listed == path)
        || operation.is_some_and(|operation| LAUNCHES.contains(&operation))
}

/// Unsafe code stays in the modules that are listed above, and the list has no others.
pub fn listed(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let home = tree.sources().filter(|(path, _)| is_home(path));
    for (path, text) in home {
        let is_listed = may(path);
        let code = without_prose(text);
        let is_unsafe = lines_with(&code, "unsafe").next().is_some();
        let message = match (is_unsafe, is_listed) {
            (true, false) => {
                "unsafe in another module: list it in tidy/unsafety.rs, and how it is tried"
            }
            (false, true) => "no unsafe code here: take it from the list in tidy/unsafety.rs",
            _ => continue,
        };
        problems.push(Problem::new(path, None, message));
    }
    problems
}

/// Every crate but two forbids unsafe code, and no test or example of them uses it either.
pub fn forbidden(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates().filter(|name| !HOMES.contains(name)) {
        for root in ["lib.rs", "main.rs"].map(|root| format!("{name}/src/{root}")) {
            let code = tree.files.get(&root).map(|text| without_prose(text));
            if code.is_some_and(|code| !code.contains("#![forbid(unsafe_code)]")) {
                let message = "unsafe code is not forbidden: add #![forbid(unsafe_code)]";
                problems.push(Problem::new(&root, None, message));
            }
        }
    }
    for (path, text) in tree.sources().filter(|(path, _)| !is_home(path)) {
        for line in lines_with(&without_prose(text), "unsafe") {
            let message = format!("unsafe outside {}: move it there", HOMES.join(" and "));
            problems.push(Problem::new(path, Some(line), message));
        }
    }
    problems
}

/// Where unsafe code is allowed, a comment above it says why it is sound.
pub fn explained(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.sources().filter(|(path, _)| is_home(path)) {
        let code = without_prose(text);
        for line in lines_with(&code, "unsafe") {
            if !is_explained(text, &code, line) {
                let message = "unsafe without a SAFETY comment: say why it is sound";
                problems.push(Problem::new(path, Some(line), message));
            }
        }
    }
    problems
}

fn is_home(path: &str) -> bool {
    path.split('/')
        .next()
        .is_some_and(|name| HOMES.contains(&name))
}

/// Whether the comment on or above the statement that holds this line (from 1) speaks of safety:
/// `// SAFETY:` before a block, `# Safety` in the docs of a function.
fn is_explained(text: &str, code: &str, line: usize) -> bool {
    let speaks = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    let texts: Vec<&str> = text.lines().take(line).collect();
    let codes: Vec<&str> = code.lines().take(line).collect();
    if texts.last().is_some_and(|line| speaks(line)) {
        return true;
    }
    for (text, code) in texts.iter().zip(&codes).rev().skip(1) {
        if speaks(text) {
            return true;
        }
        let code = code.trim_end();
        let attribute = code.trim_start().starts_with("#[");
        // Another statement ends here, so the comment, if any, was not about this one.
        if !attribute && (code.ends_with([';', '{', '}']) || text.trim().is_empty()) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tree_of;
    use super::*;

    #[test]
    fn unsafe_is_forbidden_elsewhere() {
        let count = |path, text| forbidden(&tree_of(&[(path, text)])).len();
        assert_eq!(
            count("gpipe-sched/src/lib.rs", "#![forbid(unsafe_code)]"),
            0
        );
        assert_eq!(
            count("gpipe-sched/src/lib.rs", "// #![forbid(unsafe_code)]"),
            1
        );
        assert_eq!(count("gpipe-cli/src/main.rs", "fn main() {}"), 1);
        assert_eq!(
            count("gpipe-tensor/src/lib.rs", "fn f() { unsafe { g() } }"),
            0
        );
        assert_eq!(
            count("gpipe-sched/benches/b.rs", "fn f() { unsafe { g() } }"),
            1
        );
        assert_eq!(
            count("gpipe-sched/src/a.rs", "// unsafe would be \"unsafe\"\n"),
            0
        );
    }

    #[test]
    fn unsafe_stays_in_the_listed_modules() {
        let count = |path, text| listed(&tree_of(&[(path, text)])).len();
        let code = "fn f() { unsafe { g() } }";
        assert_eq!(count("gpipe-tensor/src/floats.rs", code), 0);
        assert_eq!(count("gpipe-tensor/src/floats.rs", "fn f() {}"), 1);
        assert_eq!(count("gpipe-tensor/src/ops/relu/cuda.rs", code), 0);
        assert_eq!(count("gpipe-tensor/src/ops/relu/cuda.rs", "fn f() {}"), 1);
        assert_eq!(count("gpipe-tensor/src/ops/relu/cpu.rs", code), 1);
        assert_eq!(count("gpipe-tensor/src/shape.rs", code), 1);
        assert_eq!(count("gpipe-tensor/src/shape.rs", "// unsafe\n"), 0);
    }

    #[test]
    fn unsafe_says_why_it_is_sound() {
        let count = |text| explained(&tree_of(&[("gpipe-tensor/src/a.rs", text)])).len();
        assert_eq!(
            count("fn f() {\n    // SAFETY: in bounds.\n    unsafe { g() }\n}\n"),
            0
        );
        assert_eq!(
            count(
                "fn f() {\n    // SAFETY: in bounds,\n    // see above.\n    let x =\n        unsafe { g() };\n}\n"
            ),
            0
        );
        assert_eq!(
            count("/// # Safety\n/// `n` is in bounds.\n#[inline]\nunsafe fn f() {}\n"),
            0
        );
        assert_eq!(
            count("fn f() {\n    unsafe { g() } // SAFETY: in bounds.\n}\n"),
            0
        );
        assert_eq!(count("fn f() {\n    unsafe { g() }\n}\n"), 1);
        assert_eq!(
            count("fn f() {\n    // In bounds.\n    unsafe { g() }\n}\n"),
            1
        );
        assert_eq!(
            count("// SAFETY: in bounds.\nlet x = y;\nlet z = unsafe { g() };\n"),
            1
        );
        assert_eq!(
            count("// SAFETY: in bounds.\n\nunsafe impl Send for X {}\n"),
            1
        );
    }
}
