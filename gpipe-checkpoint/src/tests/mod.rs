//! The checkpoints' exam on a disk of their own: power loss, faults at every call, damage of every
//! kind, and buffers that change while they are saved.

mod crashes;
mod damage;
mod disk;
mod faults;
mod finding;
mod meanwhile;
mod pipeline;
mod ranks;
mod runs;
mod saving;
mod whose;

use std::cell::RefCell;
use std::path::Path;

use gpipe_tensor::safetensors::FileContents;

use crate::checkpoint::Checkpoint;
use crate::failure::Failure;
use crate::files::{Order, Placed, Ranks, Shared, write_part};
use crate::fs::Fs;
use crate::manifest::Listed;
use crate::names;
use crate::ranks::has_probe;
use crate::search::newest_on;
use crate::shards::part_name;
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

/// [`files`] as two ranks save them, of which the second has a part of the model's and all of the optimizer's.
fn placed(step: u64) -> Vec<Placed> {
    let placed = files(step).into_iter().flat_map(|(name, bytes)| {
        let middle = bytes.len() / 3;
        let (rank, parts) = match &*name {
            names::OPTIMIZER => (1, vec![bytes]),
            "model/model.safetensors" => (0, vec![bytes[..middle].into(), bytes[middle..].into()]),
            _ => (0, vec![bytes]),
        };
        let count = parts.len();
        let parts = parts.into_iter().enumerate();
        parts.map(move |(part, bytes)| Placed {
            rank: rank + part,
            name: match count {
                1 => name.clone(),
                _ => part_name(&name, part + 1, count),
            },
            whole: name.clone(),
            contents: bytes.into(),
        })
    });
    placed.collect()
}

/// A second rank on a disk, the same or another.
struct Second<'a, F> {
    disk: RefCell<F>,
    files: &'a [Placed],
    /// Whether it writes before the first rank.
    hurries: bool,
}

impl<F: Fs> Ranks for Second<'_, F> {
    fn find(&self, ranks: &[usize], folder: &Path, text: &str) -> bool {
        assert_eq!(ranks, [1]);
        has_probe(&*self.disk.borrow(), folder, text)
    }

    fn write(
        &self,
        folder: &Path,
        orders: &[Order],
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Result<Vec<Listed>, String>> {
        if !self.hurries {
            meanwhile();
        }
        let answers = orders.iter().map(|order| {
            let files = self.files.iter().filter(|file| file.rank == order.rank);
            let files = files.map(|file| (&*file.name, &file.contents));
            let files: Vec<_> = files.collect();
            assert!(
                files
                    .iter()
                    .map(|file| file.0)
                    .eq(order.files.iter().map(|file| &*file.0))
            );
            let written = write_part(&mut *self.disk.borrow_mut(), folder, &files);
            written.map_err(|failure| format!("rank 1 (b): {failure}"))
        });
        let answers = answers.collect();
        if self.hurries {
            meanwhile();
        }
        answers
    }
}

/// [`commit`] by two ranks.
fn commit_placed<F: Fs, G: Fs>(
    fs: &mut F,
    second: G,
    step: u64,
    hurries: bool,
) -> Result<u64, Failure> {
    let files = placed(step);
    let shared = Shared {
        files: &files,
        ranks: &Second {
            disk: RefCell::new(second),
            files: &files,
            hurries,
        },
        token: "a0b1",
    };
    commit(fs, home(), step, &contents(step), Some(&shared))
}

/// A disk on which these steps were saved and everything has reached the platter.
fn disk(steps: &[u64]) -> MemoryDisk {
    let mut disk = MemoryDisk::new(&["/run"]);
    for &step in steps {
        commit(&mut disk, home(), step, &contents(step), None).expect("no fault was planted");
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
        let parts = whole
            .manifest()
            .parts(&name)
            .expect("it was verified")
            .into_iter();
        let read = parts.map(|part| whole.read_on(disk, &part).expect("it was verified"));
        assert!(
            read.collect::<Vec<_>>().concat() == bytes,
            "{name} of step {} is mixed",
            whole.step()
        );
    }
}
