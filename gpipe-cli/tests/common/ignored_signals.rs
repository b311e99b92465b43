//! Signals that this process ignores because it was started so, as by nohup or in the background of a script.

use std::fs;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};

/// Lets the programs that are started from now on end by them. What a process ignores, those that it starts ignore; what it
/// handles, they do not. The handlers do nothing, so that this process still ignores what it did.
pub fn are_not_inherited() {
    // Only Linux says which they are.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| {
        u64::from_str_radix(mask.trim(), 16).expect("a mask")
    });
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU] {
        if mask >> (signal - 1) & 1 == 1 {
            signal_hook::flag::register(signal, Arc::default()).expect("a handler");
        }
    }
}
