//! The checkpoints' exam on a disk of their own: power loss, faults at every call, damage of every
//! kind, and buffers that change while they are saved.

mod crashes;
mod damage;
mod disk;
mod faults;
mod finding;
mod pipeline;
mod saving;
mod whose;

use std::path::Path;

use gpipe_tensor::safetensors::FileContents;

use crate::checkpoint::Checkpoint;
use crate::names;
use crate::search::newest_on;
use crate::write::commit;
use disk::MemoryDisk;

/// Where checkpoints lie in these tests.
const HOME: &str = "/run/checkpoints";

/// More memory than any of them needs.
const MEMORY: u64 = 1 << 30;

/// Whether `cargo xtask exam` asks, which has more time.
fn exam() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}

fn home() -> &'static Path {
    Path::new(HOME)
}

/// The files of a small checkpoint, different for every step.
fn files(step: u64) -> Vec<(String, Vec<u8>)> {
    let bytes = |length: u64, salt: u64| -> Vec<u8> {
        let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9).wrapping_add(step * 31 + salt) >> 3) as u8;
        (0..length).map(byte).collect()
    };
    vec![
        (names::CONFIG.to_owned(), bytes(300, 1)),
        (names::STATE.to_owned(), bytes(200, 2)),
        (names::OPTIMIZER.to_owned(), bytes(900, 3)),
        ("model/config.json".to_owned(), bytes(150, 4)),
        ("model/model.safetensors".to_owned(), bytes(500, 5)),
    ]
}

/// [`files`] as they are saved.
fn contents(step: u64) -> Vec<(String, FileContents)> {
    let files = files(step).into_iter();
    files.map(|(name, bytes)| (name, bytes.into())).collect()
}

/// A disk on which these steps were saved and everything has reached the platter.
fn disk(steps: &[u64]) -> MemoryDisk {
    let mut disk = MemoryDisk::new(&["/run"]);
    for &step in steps {
        commit(&mut disk, home(), step, &contents(step)).expect("no fault was planted");
    }
    disk.settle();
    disk
}

/// The newest whole checkpoint's step, after a look at all its bytes.
fn newest_step(disk: &MemoryDisk) -> Option<u64> {
    let search = newest_on(disk, home(), MEMORY).expect("the folder can be read");
    search.checkpoint.map(|whole| {
        assert_same(disk, &whole);
        whole.step()
    })
}

/// Fails unless every file holds what was saved at that step.
fn assert_same(disk: &MemoryDisk, whole: &Checkpoint) {
    for (name, bytes) in files(whole.step()) {
        let read = whole.read_on(disk, &name).expect("it was verified");
        assert!(read == bytes, "{name} of step {} is mixed", whole.step());
    }
}
