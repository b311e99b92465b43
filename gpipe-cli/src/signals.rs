//! Ctrl-C and SIGTERM: the first requests a stop, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::fail::{Fail, Result, STOPPED};

/// The flag set by the first signal.
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// [`Fail::Run`] if a handler cannot be installed.
    pub fn install() -> Result<Self> {
        let received = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, and sets it.
            flag::register_conditional_shutdown(signal, STOPPED.into(), received.clone())
                .map_err(Fail::run)?;
            flag::register(signal, received.clone()).map_err(Fail::run)?;
        }
        Ok(Self(received))
    }

    /// Whether a stop was requested.
    pub fn should_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
