//! How many blocks of each kernel a multiprocessor holds at a time, and the fewest that there have to be.

use super::cubin::Usage;
use super::entry::{Form, Launch, Pointer, THREADS, WARP};
use crate::DType;
use crate::ops::attention::kernels::{Gradient, Sizes};
use crate::ops::attention::launches;
use crate::ops::attention::tensor_cores::TensorCores;
use crate::ops::dropout::kernels::Numbers;

/// What a multiprocessor of a generation of devices has: CUDA C++ Programming Guide 12.9, table "Technical
/// Specifications per Compute Capability". All have 65,536 registers in four parts, given out by 256 a warp, and keep 1 KiB
/// of shared memory a block for themselves, which images of some count with what a kernel takes.
pub(super) struct Generation {
    /// As the compiler knows it.
    pub name: &'static str,
    threads: u32,
    blocks: u32,
    shared: u32,
}

/// A100, H100 and H200, B100 and B200, RTX 50.
pub(super) const GENERATIONS: [Generation; 4] = [
    Generation {
        name: "sm_80",
        threads: 2048,
        blocks: 32,
        shared: 164 << 10,
    },
    Generation {
        name: "sm_90a",
        threads: 2048,
        blocks: 32,
        shared: 228 << 10,
    },
    Generation {
        name: "sm_100",
        threads: 2048,
        blocks: 32,
        shared: 228 << 10,
    },
    Generation {
        name: "sm_120",
        threads: 1536,
        blocks: 24,
        shared: 100 << 10,
    },
];

impl Generation {
    /// Blocks of a kernel that a multiprocessor holds, where a launch asks for `dynamic` bytes of shared memory.
    pub fn blocks(&self, usage: &Usage, dynamic: u32) -> u32 {
        const PARTS: u32 = 4;
        let warps = THREADS / WARP;
        let registers = (usage.registers as u32 * WARP)
            .next_multiple_of(256)
            .max(256);
        let by_registers = (65_536 / PARTS / registers) * PARTS / warps;
        let shared = (dynamic + (usage.shared as u32).max(1024)).next_multiple_of(128);
        [
            by_registers,
            self.shared / shared,
            self.threads / THREADS,
            self.blocks,
        ]
        .into_iter()
        .fold(u32::MAX, u32::min)
    }
}

/// The fewest blocks of the kernels on tensor cores, by generation. Fewer hide less of the time in which a block waits for
/// memory.
const FEWEST: [(&str, [u32; 4]); 25] = [
    ("attention_32", [3, 3, 2, 2]),
    ("attention_64", [2, 2, 2, 2]),
    ("attention_80", [1, 1, 1, 1]),
    ("attention_96", [2, 2, 1, 1]),
    ("attention_128", [1, 1, 1, 1]),
    ("attention_grad_queries_32", [2, 2, 2, 2]),
    ("attention_grad_queries_64", [2, 2, 2, 2]),
    ("attention_grad_queries_80", [1, 1, 1, 1]),
    ("attention_grad_queries_96", [1, 1, 1, 1]),
    ("attention_grad_queries_128", [1, 1, 1, 1]),
    ("attention_grad_keys_32", [2, 2, 2, 2]),
    ("attention_grad_keys_64", [1, 1, 1, 1]),
    ("attention_grad_keys_80", [1, 1, 1, 1]),
    ("attention_grad_keys_96", [1, 1, 1, 1]),
    ("attention_grad_keys_128", [1, 1, 1, 1]),
    // Empty but on the second one.
    ("attention_by_warpgroups_64", [2, 2, 2, 1]),
    ("attention_by_warpgroups_grad_queries_64", [2, 2, 2, 1]),
    ("attention_by_warpgroups_grad_keys_64", [1, 1, 1, 1]),
    ("attention_by_warpgroups_128", [1, 1, 1, 0]),
    ("attention_by_warpgroups_grad_queries_128", [1, 1, 1, 0]),
    ("attention_by_warpgroups_grad_keys_128", [1, 1, 1, 0]),
    ("attention_tf32_32", [2, 2, 2, 2]),
    ("attention_tf32_grad_queries_32", [2, 2, 2, 2]),
    ("attention_tf32x3_32", [2, 2, 2, 2]),
    ("attention_tf32x3_grad_queries_32", [2, 2, 2, 2]),
];

/// The same of every other kernel: half of the threads that the smallest generation holds.
const FEWEST_OTHERS: u32 = 3;

/// The fewest blocks that a multiprocessor of a generation may hold of a kernel.
pub(super) fn fewest(form: Form, generation: usize) -> u32 {
    let listed = FEWEST.iter().find(|(name, _)| *name == form.entry.name);
    match listed {
        Some((_, blocks)) => blocks[generation],
        // Tiles of f32 fill the shared memory, or rows of it the registers.
        None if attention_of_f32(form) => 1,
        None => FEWEST_OTHERS,
    }
}

/// Whether it is attention without tensor cores, or of factors in f32.
fn attention_of_f32(form: Form) -> bool {
    let plain = ["attention", "attention_grad_queries", "attention_grad_keys"];
    plain.contains(&form.entry.name) || form.entry.name.starts_with("attention_tf32")
}

/// Bytes of shared memory that a launch asks for: attention of GPT-2's positions with heads of the kernel's size, of 48 for the
/// plain ones; of all others the most that they do at such widths.
pub(super) fn dynamic_shared(form: Form) -> u32 {
    const OTHERS: u32 = 8192;
    let size = form.entry.name.rsplit('_').next();
    let size = size.and_then(|size| size.parse().ok()).unwrap_or(48);
    let sizes = Sizes {
        samples: 1,
        len: 1024,
        heads: 12,
        groups: 12,
        window: 1024,
        size,
        dropout: Numbers::NONE,
    };
    let (none, single) = (Pointer::NULL, DType::F32);
    let at = Gradient {
        qkv: none,
        out: none,
        lse: none,
        means: none,
        d_out: none,
        dqkv: none,
    };
    let [tf32, warpgroups] = [true, false].map(|tf32| TensorCores {
        tf32,
        warpgroups: !tf32,
    });
    let ways = [
        (form.stored, TensorCores::default()),
        (form.stored, warpgroups),
        (single, tf32),
        (single, warpgroups),
    ];
    let launches = ways.into_iter().flat_map(|(stored, cores)| {
        let forward = launches::forward(stored, cores, none, none, none, sizes);
        let backward = launches::backward(stored, cores, at, sizes);
        forward.into_iter().chain(backward.into_iter().flatten())
    });
    let is_it = |launch: &Launch| launch.form.entry.name == form.entry.name;
    let found = launches.into_iter().find(is_it);
    found.map_or(OTHERS, |launch| launch.shared)
}

/// As NVIDIA's occupancy calculator has it.
#[test]
fn registers_shared_memory_and_threads_bound_the_blocks() {
    let blocks = |registers: u64, dynamic: u32, generation: usize| {
        let usage = Usage {
            registers,
            ..Usage::default()
        };
        GENERATIONS[generation].blocks(&usage, dynamic)
    };
    assert_eq!([128, 129, 168, 255].map(|n| blocks(n, 0, 1)), [2, 1, 1, 1]);
    assert_eq!([32, 40, 64, 80].map(|n| blocks(n, 0, 0)), [8, 6, 4, 3]);
    assert_eq!([0, 3].map(|generation| blocks(24, 0, generation)), [8, 6]);
    assert_eq!(
        [0, 1, 3].map(|generation| blocks(64, 48 << 10, generation)),
        [3, 4, 2]
    );
}
