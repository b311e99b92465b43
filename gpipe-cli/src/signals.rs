//! Signals that ask for a stop, and the one that reports a file at its limit.
//!
//! | signal | sent by | effect |
//! |---|---|---|
//! | SIGINT, SIGTERM | Ctrl-C, `kill`, schedulers | stop; another of them, half a second later, ends the program at once |
//! | SIGHUP, SIGUSR1, SIGUSR2 | a terminal that closes, schedulers | stop; ignored where `nohup` said so |
//! | SIGXCPU | `ulimit -t` | stop |
//! | SIGXFSZ | a file larger than `ulimit -f` | none: the write fails with an error |

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code of a run stopped by a signal, whichever: 128 plus the number of SIGINT, as in shells.
pub const STOPPED: u8 = 130;

/// Signals that come so soon after the first are part of it: `timeout` sends two, to the program and to its group.
const TOGETHER: Duration = Duration::from_millis(500);

/// Set by the first signal, once there are handlers.
static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a stop was requested.
pub fn stop() -> &'static AtomicBool {
    &STOP
}

/// Installs the signal handlers. Where the program goes on for [`TOGETHER`] after a stop was requested, `say` is called on a
/// thread of its own.
///
/// # Errors
/// That of the system if a handler cannot be installed.
pub fn install(say: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Terminals and schedulers may send several hang-ups, and one before SIGTERM: only a second
    // SIGINT or SIGTERM is a user who will not wait.
    let [was_asked, will_not_wait] = [0; 2].map(|_| Arc::new(AtomicBool::new(false)));
    let flags = (was_asked.clone(), will_not_wait.clone());
    let watch = move || {
        let (was_asked, will_not_wait) = flags;
        wait_for(&STOP);
        thread::sleep(TOGETHER);
        will_not_wait.store(was_asked.load(Ordering::Relaxed), Ordering::Relaxed);
        say();
        // If a hang-up came first.
        wait_for(&was_asked);
        thread::sleep(TOGETHER);
        will_not_wait.store(true, Ordering::Relaxed);
    };
    let watches = thread::Builder::new().spawn(watch).is_ok();
    for signal in [SIGINT, SIGTERM] {
        // In this order: without a thread, the first signal finds its own flag unset.
        flag::register_conditional_shutdown(signal, STOPPED.into(), will_not_wait.clone())?;
        let asks = if watches { &was_asked } else { &will_not_wait };
        flag::register(signal, asks.clone())?;
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

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
    }
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
