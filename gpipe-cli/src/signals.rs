//! Ctrl-C and SIGTERM: the first asks to stop, a second ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::fail::{Fail, Result, STOPPED};

/// Whether a signal has come.
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// From here on a first signal is only noted.
    pub fn note() -> Result<Self> {
        let noted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, and sets it.
            flag::register_conditional_shutdown(signal, STOPPED.into(), noted.clone())
                .map_err(Fail::run)?;
            flag::register(signal, noted.clone()).map_err(Fail::run)?;
        }
        Ok(Self(noted))
    }

    /// Whether the run was asked to stop.
    pub fn asked_to_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
