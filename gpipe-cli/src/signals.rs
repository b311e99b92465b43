//! Signals that ask for a stop, and the one that reports a file at its limit.
//!
//! | signal | sent by | effect |
//! |---|---|---|
//! | SIGINT, SIGTERM | Ctrl-C, `kill`, schedulers | stop; the second of them ends the program at once |
//! | SIGHUP, SIGUSR1, SIGUSR2 | a terminal that closes, schedulers | stop; ignored where `nohup` said so |
//! | SIGXCPU | `ulimit -t` | stop |
//! | SIGXFSZ | a file larger than `ulimit -f` | none: the write fails with an error |

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code of a run stopped by a signal, whichever: 128 plus the number of SIGINT, as in shells.
pub const STOPPED: u8 = 130;

/// Set by the first signal, once there are handlers.
static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a stop was requested.
pub fn stop() -> &'static AtomicBool {
    &STOP
}

/// Installs the signal handlers.
///
/// # Errors
/// That of the system if a handler cannot be installed.
pub fn install() -> io::Result<()> {
    // Terminals and schedulers may send several hang-ups, and one before SIGTERM: only a second
    // SIGINT or SIGTERM is a user who will not wait.
    let was_asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset, and sets it.
        flag::register_conditional_shutdown(signal, STOPPED.into(), was_asked.clone())?;
        flag::register(signal, was_asked.clone())?;
        flag::register(signal, STOP.clone())?;
    }
    #[cfg(unix)]
    for signal in [SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU] {
        if ignored() >> (signal - 1) & 1 == 0 {
            flag::register(signal, STOP.clone())?;
        }
    }
    Ok(())
}

/// Makes a write beyond `ulimit -f` an error, where the signal would end the program. Without a handler
/// everything else works.
pub fn outlive_file_limit() {
    #[cfg(unix)]
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// The signals that this process was started to ignore: signal N is bit N - 1. None where the system
/// does not say.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
