//! Signs of life between ranks, and whether the launcher still lives.

use std::time::{Duration, Instant};

use gpipe_sched::Deliver;

use crate::error::text;
use crate::messages::{Arriving, Leaving};
use crate::session::Calls;

/// The time between two signs of life.
pub const PULSE: Duration = Duration::from_secs(1);
/// How long the end waits for MPI, and at least for the other ranks.
pub const GRACE: Duration = Duration::from_secs(10);
/// Why a rank ends whose launcher is gone.
pub const ORPHANED: &str = "the launcher of this process has ended";

/// Signs of life: sent, and waited for.
pub struct Pulse {
    /// How long a rank may be silent.
    silence: Duration,
    /// When the last signs were sent.
    sent: Instant,
    /// The process that started this one.
    parent: Option<u32>,
    /// Ranks that were silent for too long.
    lost: Vec<usize>,
}

impl Pulse {
    pub fn new(silence: Duration) -> Self {
        Self {
            silence,
            sent: Instant::now(),
            parent: parent(),
            lost: Vec::new(),
        }
    }

    /// How long the end waits for the other ranks: a lost one takes nothing any more, and does not end.
    pub fn grace(&self) -> Duration {
        match self.lost.is_empty() {
            true => grace(self.silence),
            false => PULSE,
        }
    }

    /// Sends a sign of life when the time has come, and looks for ranks without one.
    pub fn beat(
        &mut self,
        mpi: &mut dyn Calls,
        arriving: &mut [Arriving],
        leaving: &mut Vec<Leaving>,
        deliver: &Deliver,
    ) -> Result<(), String> {
        let since = self.sent.elapsed();
        if since < PULSE {
            return Ok(());
        }
        self.sent = Instant::now();
        if parent() != self.parent {
            return Err(ORPHANED.to_owned());
        }
        for arriving in arriving {
            // While this process was stopped itself, it heard nobody.
            arriving.heard += since.saturating_sub(2 * PULSE);
            let from = arriving.from;
            let silent = arriving.heard.elapsed();
            if self.lost.contains(&from) {
                continue;
            }
            if silent > self.silence {
                self.lost.push(from);
                deliver(from, Err(format!("silent for {} s", silent.as_secs())));
                continue;
            }
            let alive = Leaving::alive(mpi, from);
            leaving.push(alive.map_err(text)?);
        }
        Ok(())
    }
}

/// How long the end waits for ranks of which none is lost: a busy host may keep them from its processors for 10 s.
pub fn grace(silence: Duration) -> Duration {
    silence.max(GRACE)
}

/// The process that started this one, where the system says it.
pub fn parent() -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::process::parent_id());
    #[cfg(not(unix))]
    None
}
