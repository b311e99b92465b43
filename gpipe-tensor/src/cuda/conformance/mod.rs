//! Every kernel against the processor's operation, on the emulator: over edge shapes, in both stored
//! types, with the threads' order drawn from seeds; and with each barrier taken out, which has to
//! show.
//!
//! Where a kernel adds in an order of its own the comparison is to rounding, everywhere else to the
//! bit. For `bf16` the operation gets the rounded operands, and its result is rounded; where the kernel takes the device's own
//! exponentials, the next number is right too.

mod attention;
mod channels;
mod elements;
mod images;
mod key_value_cache;
mod llama;
mod memory;
mod reference;
mod rows;
mod segments;
mod sums;
mod updates;

use std::cell::Cell;
use std::env;

use super::emulator::Emulator;
use super::entry::Launch;
use super::text::Barrier;
use crate::DType;
use memory::Memory;

/// Extents around the sizes of warps, blocks and tiles.
const EDGES: [usize; 12] = [0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257];

/// An emulated device in one of its moods, and what it was asked to do.
struct Gpu<'a> {
    emulator: &'static Emulator,
    seed: u64,
    without: Option<&'a Barrier>,
    launches: Cell<u64>,
}

impl<'a> Gpu<'a> {
    fn new(emulator: &'static Emulator, seed: u64, without: Option<&'a Barrier>) -> Self {
        Self {
            emulator,
            seed,
            without,
            launches: Cell::new(0),
        }
    }

    /// Runs launches whose pointers are those of these memories, and looks for writes around them.
    fn run<'m>(
        &self,
        launches: impl IntoIterator<Item = Launch>,
        memories: impl IntoIterator<Item = &'m Memory>,
    ) -> Outcome {
        let memories: Vec<&Memory> = memories.into_iter().collect();
        for launch in launches {
            for arg in &launch.args {
                memory::check_known(arg, &memories)?;
            }
            let count = self.launches.get() + 1;
            self.launches.set(count);
            let seed = self.seed.wrapping_mul(1 << 20).wrapping_add(count);
            // SAFETY: every pointer was just found to be the start of one of the memories, which
            // are as large as the operation's tensors.
            unsafe { self.emulator.run(&launch, seed, self.without)? };
            for memory in &memories {
                memory
                    .check_surroundings()
                    .map_err(|e| format!("{launch}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// What is wrong, in words.
type Outcome = Result<(), String>;

/// One family of kernels over all of its shapes, in one stored type.
type Check = fn(&Gpu<'_>, DType) -> Outcome;

/// Each with the folder of its kernels, or their file.
const CHECKS: [(&str, Check); 29] = [
    ("add", elements::add),
    ("scale", elements::scale),
    ("relu", elements::relu),
    ("gelu", elements::gelu),
    ("dropout", elements::dropout),
    ("sum", sums::sum),
    ("binary_cross_entropy", sums::binary_cross_entropy),
    ("squared_error", sums::squared_error),
    ("softmax", rows::softmax),
    ("layer_norm", rows::layer_norm),
    ("rms_norm", llama::rms_norm),
    ("rope", llama::rope),
    ("glu", llama::glu),
    ("cross_entropy", rows::cross_entropy),
    ("embedding", rows::embedding),
    ("attention/kernel", attention::plain),
    ("attention/tensor_cores", attention::on_tensor_cores),
    ("segment_attention", segments::segment_attention),
    ("sinusoid", segments::sinusoid),
    ("concat", images::concat),
    ("key_value_cache", key_value_cache::key_value_cache),
    ("conv2d", images::conv2d),
    ("pool2d", images::pool2d),
    ("pad2d", images::pad2d),
    ("channel_norm", channels::channel_norm),
    ("adamw", updates::adamw),
    ("adamw", updates::adamw_rows),
    ("sgd", updates::sgd),
    ("rmsprop", updates::rmsprop),
];

const STORED: [DType; 2] = [DType::BF16, DType::F32];

/// The emulator, or none after saying why.
fn emulator() -> Option<&'static Emulator> {
    Emulator::get()
        .map_err(|why| eprintln!("skipped: no emulator for the CUDA kernels: {why}"))
        .ok()
}

/// Whether all is tried, and not a part.
fn is_exam() -> bool {
    env::var_os("GPIPE_EXAM").is_some()
}

#[test]
fn kernels_equal_the_processors_operations() {
    let Some(emulator) = emulator() else { return };
    let usual = if is_exam() { 4 } else { 1 };
    let seeds = env::var("GPIPE_SEEDS").map_or(usual, |text| text.parse().expect("a number"));
    let mut launches = 0;
    for seed in 0..seeds {
        for (name, check) in CHECKS {
            for stored in STORED {
                let gpu = Gpu::new(emulator, seed, None);
                if let Err(error) = check(&gpu, stored) {
                    panic!("{name} in {stored}, seed {seed}: {error}");
                }
                launches += gpu.launches.get();
            }
        }
    }
    println!("exam G3 {launches}/{launches}");
}

#[test]
fn every_barrier_is_needed_and_missed() {
    let Some(emulator) = emulator() else { return };
    let barriers = emulator.barriers();
    let count = barriers.len();
    assert!(count > 0);
    for barrier in barriers {
        // Those of the prelude are in the sums over blocks.
        let uses = |name: &str| barrier.place.contains(&format!("/{name}"));
        let in_prelude = barrier.place.contains("prelude");
        let mut checks = CHECKS.iter().filter(|(name, _)| {
            uses(name) || in_prelude && ["sum", "cross_entropy"].contains(name)
        });
        let caught = checks.find_map(|(_, check)| {
            let fails = |stored| check(&Gpu::new(emulator, 1, Some(barrier)), stored).err();
            STORED.into_iter().find_map(fails)
        });
        let Some(caught) = caught else {
            panic!("nothing fails without the barrier at {}", barrier.place);
        };
        println!("without the barrier at {}: {caught}", barrier.place);
    }
    println!("exam G3 teeth {count}/{count}");
}
