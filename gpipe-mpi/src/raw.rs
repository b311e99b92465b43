//! MPI's own calls, without this crate's thread and messages: what those are measured against.

use std::path::Path;
use std::time::Instant;

use crate::error::Error;
use crate::launcher::Launcher;
use crate::library;
use crate::session::{Calls, Request};

const TAG: i32 = 3;
/// Times that do not count.
const WARM_UP: usize = 3;

/// Sends messages of each size from rank 0 to rank 1 and back, as often as `times` says, on this thread, which polls
/// without pause: the median seconds of one way, by size, on both ranks. Opens MPI as
/// [`MpiTransport::start`](crate::MpiTransport::start) does, and ends it. Sizes are at most 1 GiB.
///
/// # Errors
/// If there is no MPI, or no other rank, or a call fails.
pub fn ping_pong(
    named: Option<&Path>,
    launcher: Option<&Launcher>,
    sizes: &[usize],
    times: impl Fn(usize) -> usize,
) -> Result<Vec<f64>, Error> {
    let (mut mpi, _) = library::start(named, launcher)?;
    let rank = mpi.rank();
    if mpi.ranks() < 2 {
        return Err(Error::Call {
            call: "MPI_Comm_size",
            message: "one rank has nobody to send to: start two".to_owned(),
        });
    }
    let mut medians = Vec::with_capacity(sizes.len());
    // Those after the first two have no part.
    for &bytes in sizes.iter().filter(|_| rank < 2) {
        let bytes = bytes.min(1 << 30);
        let (out, mut back) = (vec![1; bytes], vec![0; bytes]);
        let mut seconds = Vec::new();
        for round in 0..WARM_UP + times(bytes).max(1) {
            let start = Instant::now();
            for turn in 0..2 {
                // SAFETY: both buffers live, unchanged, until the call is over, which is waited for.
                let mut request = unsafe {
                    match turn == rank {
                        true => mpi.send(&out, 1 - rank, TAG)?,
                        false => mpi.receive(&mut back, 1 - rank, TAG)?,
                    }
                };
                wait(mpi.as_mut(), &mut request)?;
            }
            if round >= WARM_UP {
                seconds.push(start.elapsed().as_secs_f64() / 2.0);
            }
        }
        seconds.sort_by(f64::total_cmp);
        medians.push(seconds[seconds.len() / 2]);
    }
    let mut barrier = mpi.barrier()?;
    wait(mpi.as_mut(), &mut barrier)?;
    mpi.finalize()?;
    Ok(medians)
}

fn wait(mpi: &mut dyn Calls, request: &mut Request) -> Result<(), Error> {
    while !mpi.test(request)? {
        std::hint::spin_loop();
    }
    Ok(())
}
