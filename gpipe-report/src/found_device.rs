//! The object of a device.

use serde::Serialize;

use crate::numbers;

/// A device of this machine; what is unknown or does not apply is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundDevice {
    /// Name, as `--devices` takes it.
    pub device: String,
    /// Whether stages can run on it.
    pub usable: bool,
    /// The maker's name for it.
    pub name: Option<String>,
    /// Cores.
    pub cores: Option<usize>,
    /// Threads that this process may run at once.
    pub threads: Option<usize>,
    /// Vector instructions that operations use.
    pub vectors: Option<String>,
    /// Memory that a process can have on it.
    pub memory_bytes: Option<u64>,
    /// Part of that which is free now.
    pub free_bytes: Option<u64>,
    /// Compute capability of a GPU, such as `9.0`.
    pub capability: Option<String>,
    /// GPUs whose memory a GPU reaches without the host, separated by commas.
    pub peers: Option<String>,
    /// Versions of a GPU's driver and libraries.
    pub libraries: Option<String>,
    /// Why it is not usable, with a mend.
    pub reason: Option<String>,
}

impl FoundDevice {
    /// What is known of it, a line each.
    pub fn facts(&self) -> Vec<String> {
        let count = |number: usize, thing: &str| match number {
            1 => format!("1 {thing}"),
            _ => format!("{number} {thing}s"),
        };
        let free = |bytes| format!(", {} of it free", numbers::bytes(bytes));
        let memory = |bytes| {
            let free = self.free_bytes.map_or(String::new(), free);
            format!("{} of memory{free}", numbers::bytes(bytes))
        };
        let parts = [
            self.cores.map(|cores| count(cores, "core")),
            self.threads.map(|threads| count(threads, "thread")),
            self.vectors
                .as_ref()
                .map(|name| format!("computes with {name}")),
            self.capability
                .as_ref()
                .map(|capability| format!("compute capability {capability}")),
            self.peers.as_ref().map(|peers| match peers.as_str() {
                "" => "reaches no other device's memory".into(),
                peers => format!("reaches the memory of {peers}"),
            }),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let facts = [
            self.name.clone(),
            Some(parts.join(", ")).filter(|parts| !parts.is_empty()),
            self.memory_bytes.map(memory),
            self.libraries.clone(),
            self.reason
                .as_ref()
                .map(|reason| format!("not available: {reason}")),
        ];
        facts.into_iter().flatten().collect()
    }
}
