//! What `gpipe train` would refuse of a plan.

use crate::fail::with_flags;
use crate::output::warn;

/// Warns of what `train` would refuse, and returns the sentences.
pub fn told(faults: impl IntoIterator<Item = String>) -> Vec<String> {
    let faults: Vec<String> = faults.into_iter().map(|fault| with_flags(&fault)).collect();
    for fault in &faults {
        warn(&format!("train would refuse this: {fault}"));
    }
    faults
}
