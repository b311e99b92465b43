//! The objects of an MPI library and of the ranks that a launcher started.

use serde::Serialize;

/// The MPI library of this process; what is unknown is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundMpi {
    /// Whether there is one.
    pub usable: bool,
    /// What started this process as one of several.
    pub launcher: Option<String>,
    /// The ranks that it started, or 1.
    pub ranks: usize,
    /// The library's file.
    pub library: Option<String>,
    /// The rule by which it was found.
    pub rule: Option<String>,
    /// The binary interface that is used of it.
    pub dialect: Option<String>,
    /// Its name and version, by itself.
    pub version: Option<String>,
    /// Why there is none, with a mend.
    pub reason: Option<String>,
}

impl FoundMpi {
    /// What is known of it, a line each.
    pub fn facts(&self) -> Vec<String> {
        let started = self
            .launcher
            .as_ref()
            .map(|name| format!("{} ranks started by {name}", self.ranks));
        let library = self.library.as_ref().zip(self.rule.as_ref());
        let facts = [
            self.version.clone(),
            library.map(|(library, rule)| format!("{library}, {rule}")),
            self.dialect
                .as_ref()
                .map(|dialect| format!("binary interface: {dialect}")),
            started,
            self.reason
                .as_ref()
                .map(|reason| format!("not available: {reason}")),
        ];
        facts.into_iter().flatten().collect()
    }
}

/// A rank and where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundRank {
    /// Its number, from 0.
    pub rank: usize,
    /// The name of its host.
    pub host: String,
    /// The number of its process there.
    pub process: u32,
    /// The processors of the host on which it may run, as in `0-3,8`; `null` where the system does not tell.
    pub cores: Option<String>,
    /// Threads that it may run in parallel.
    pub threads: usize,
    /// Threads that the host runs in parallel.
    pub host_threads: usize,
    /// The devices on which its stages could run.
    pub devices: Vec<String>,
}
