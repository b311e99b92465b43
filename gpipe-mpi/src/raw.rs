//! MPI's own calls, without this crate's thread and messages: what those are measured against.

use std::path::Path;
use std::time::Instant;

use crate::error::Error;
use crate::launcher::Launcher;
use crate::library;
use crate::session::{Calls, Request, keep};

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
    if mpi.ranks() < 2 {
        mpi.finalize()?;
        return Err(Error::Call {
            call: "MPI_Comm_size",
            message: "one rank has nobody to send to: start two".to_owned(),
        });
    }
    let mut medians = Vec::with_capacity(sizes.len());
    let has_part = mpi.rank() < 2;
    for &bytes in sizes.iter().filter(|_| has_part) {
        let bytes = bytes.min(1 << 30);
        let mut buffers = (vec![1; bytes], vec![0; bytes]);
        let seconds = ways(mpi.as_mut(), &mut buffers, times(bytes).max(1));
        let (_, mut seconds) = keep(buffers, seconds)?;
        seconds.sort_by(f64::total_cmp);
        medians.push(seconds[seconds.len() / 2]);
    }
    let mut barrier = mpi.barrier()?;
    wait(mpi.as_mut(), &mut barrier)?;
    mpi.finalize()?;
    Ok(medians)
}

/// Seconds of one way of a message. The caller leaks the buffers if this fails.
fn ways(
    mpi: &mut dyn Calls,
    (out, back): &mut (Vec<u8>, Vec<u8>),
    times: usize,
) -> Result<Vec<f64>, Error> {
    let rank = mpi.rank();
    let mut seconds = Vec::new();
    for round in 0..WARM_UP + times {
        let start = Instant::now();
        for turn in 0..2 {
            // SAFETY: both buffers live, unchanged, until the call is over, which is waited for, or are leaked.
            let mut request = unsafe {
                match turn == rank {
                    true => mpi.send(out, 1 - rank, TAG)?,
                    false => mpi.receive(back, 1 - rank, TAG)?,
                }
            };
            wait(mpi, &mut request)?;
        }
        if round >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64() / 2.0);
        }
    }
    Ok(seconds)
}

fn wait(mpi: &mut dyn Calls, request: &mut Request) -> Result<(), Error> {
    while !mpi.test(request)? {
        std::hint::spin_loop();
    }
    Ok(())
}
