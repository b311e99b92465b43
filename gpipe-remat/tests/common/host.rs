//! Hosts for tests that compare bits.

use gpipe_tensor::Host;

/// Names the instruction set of matrix products, as for the program, so that the exam can try each.
const VARIABLE: &str = "GPIPE_INSTRUCTION_SET";

/// A host with this many threads.
pub fn host(threads: usize) -> Host {
    let host = Host::new(threads).expect("threads");
    match std::env::var(VARIABLE) {
        Ok(level) => {
            let level = level.parse().expect("an instruction set");
            host.with_instruction_set(level)
                .expect("a level for floats")
        }
        Err(_) => host,
    }
}
