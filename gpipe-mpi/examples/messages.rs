//! Messages between two ranks, there and back, by size: a JSON line each, with the seconds of one way.
//!
//! `mpirun -np 2 cargo run --release -p gpipe-mpi --example messages -- gpipe` passes them as a run does, between threads
//! that sleep and the thread that calls MPI; `-- mpi` by MPI's own calls on a thread that polls.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpipe_mpi::{Launcher, MpiTransport, raw};
use gpipe_sched::{Label, Parcel, World};

/// From 8 bytes to 64 MiB.
const SIZES: [usize; 9] = [
    8,
    64,
    1 << 10,
    8 << 10,
    64 << 10,
    512 << 10,
    4 << 20,
    16 << 20,
    64 << 20,
];
const WARM_UP: usize = 3;

/// How often a message of a size goes to and fro.
fn times(bytes: usize) -> usize {
    match bytes {
        0..=65_536 => 201,
        65_537..=4_194_304 => 41,
        _ => 9,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(launcher) = Launcher::of_environment() else {
        println!("start two ranks: mpirun -np 2 ... messages gpipe, or messages mpi");
        return Ok(());
    };
    let seconds = match std::env::args().nth(1).as_deref() {
        Some("mpi") => raw::ping_pong(None, Some(&launcher), &SIZES, times)?,
        _ => passed(&launcher)?,
    };
    if launcher.rank == 0 {
        for (bytes, seconds) in SIZES.into_iter().zip(seconds) {
            println!("{{\"bytes\": {bytes}, \"seconds\": {seconds:e}}}");
        }
    }
    Ok(())
}

/// The median seconds of one way, by size.
fn passed(launcher: &Launcher) -> Result<Vec<f64>, Box<dyn Error>> {
    let silence = Duration::from_secs(60);
    let world: Arc<World> = World::new(MpiTransport::start(None, Some(launcher), silence)?);
    let (leads, other) = (world.rank() == 0, 1_usize.saturating_sub(world.rank()));
    let mut medians = Vec::new();
    for (place, bytes) in SIZES.into_iter().enumerate() {
        let mut message = Parcel {
            head: Vec::new(),
            bodies: vec![vec![1; bytes]],
        };
        let mut seconds = Vec::new();
        for part in 0..WARM_UP + times(bytes) {
            let call = world.call();
            let label = Label { call, place, part };
            let start = Instant::now();
            if leads {
                world.post(other, label, message)?;
            }
            message = world.take_posted(other, label)?;
            if !leads {
                world.post(other, label, message)?;
                message = Parcel::default();
            }
            if part >= WARM_UP {
                seconds.push(start.elapsed().as_secs_f64() / 2.0);
            }
        }
        seconds.sort_by(f64::total_cmp);
        medians.push(seconds[seconds.len() / 2]);
    }
    world.close()?;
    Ok(medians)
}
