//! A test of a row, and how cargo is asked for it.

use std::env;

use super::numbers::Numbers;

/// A test binary of a crate, or some of its tests; or an example that is a package of its own.
pub struct Test {
    /// The crate, or the folder of the example.
    pub(super) package: &'static str,
    /// Of `tests/`; empty for the crate's unit tests.
    pub(super) binary: &'static str,
    /// The tests whose path begins or holds this.
    pub(super) filter: &'static str,
    /// Whether the executor's threads are those of the model checker.
    shuttle: bool,
    /// Whether full numbers are worth a build of their own.
    release: bool,
    /// Whether Miri interprets it, which sees undefined behaviour.
    miri: bool,
    /// Whether it is a program with dependencies of its own.
    example: bool,
    /// What is built with it; empty for the default.
    features: &'static str,
}

impl Test {
    /// Tests of a binary whose path holds `filter`.
    pub fn new(package: &'static str, binary: &'static str, filter: &'static str) -> Self {
        Self {
            package,
            binary,
            filter,
            shuttle: false,
            release: false,
            miri: false,
            example: false,
            features: "",
        }
    }

    /// The program in this folder, which has a manifest and a lock file of its own.
    pub fn example(folder: &'static str) -> Self {
        Self {
            example: true,
            ..Self::new(folder, "", "main")
        }
    }

    /// The manifest of an example.
    pub fn manifest(&self) -> Option<String> {
        self.example.then(|| format!("{}/Cargo.toml", self.package))
    }

    /// With these features of its crate.
    pub fn features(self, features: &'static str) -> Self {
        Self { features, ..self }
    }

    /// Interpreted by Miri, of which each test counts as one thing tried.
    pub fn miri(self) -> Self {
        Self { miri: true, ..self }
    }

    /// Whether Miri interprets it.
    pub fn is_miri(&self) -> bool {
        self.miri
    }

    /// Full numbers run optimized.
    pub fn release(self) -> Self {
        Self {
            release: true,
            ..self
        }
    }

    /// Under shuttle, which chooses every interleaving of threads.
    pub fn shuttle(self) -> Self {
        Self {
            shuttle: true,
            release: true,
            ..self
        }
    }

    /// What is run: cargo, through rustup where it is another one.
    pub fn program(&self) -> &'static str {
        if self.miri { "rustup" } else { "cargo" }
    }

    /// The arguments of the program. Small numbers run in the build that `cargo test` has made already.
    pub fn arguments(&self, numbers: Numbers) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let target = || env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
        if let Some(manifest) = self.manifest() {
            arguments.extend(["run", "--quiet", "--locked", "--manifest-path"].map(str::to_owned));
            arguments.extend([
                manifest,
                "--target-dir".into(),
                target() + "/examples-apart",
            ]);
            return arguments;
        }
        if self.miri {
            arguments.extend(["run", "nightly", "cargo", "miri"].map(str::to_owned));
        }
        arguments.extend(["test", "--quiet"].map(str::to_owned));
        let is_apart = self.shuttle || self.miri || !self.features.is_empty();
        if numbers == Numbers::Small && !is_apart {
            // Of one package alone, dependencies would have other features, and be built again.
            arguments.push("--workspace".into());
        } else {
            arguments.extend(["-p", self.package].map(str::to_owned));
        }
        match self.binary {
            "" => arguments.push("--lib".into()),
            binary => arguments.extend(["--test".into(), binary.into()]),
        }
        if !self.features.is_empty() {
            arguments.extend(["--features", self.features].map(str::to_owned));
        }
        let own_folder = match (self.shuttle, self.miri) {
            (true, _) => Some("shuttle"),
            (_, true) => Some("miri"),
            _ => None,
        };
        if let Some(folder) = own_folder {
            arguments.extend(["--target-dir".into(), target() + "/" + folder]);
        }
        if self.release && numbers == Numbers::Full {
            arguments.push("--release".into());
        }
        arguments.extend(["--", self.filter, "--nocapture"].map(str::to_owned));
        arguments
    }

    /// The variables that its build needs.
    pub fn environment(&self) -> &'static [(&'static str, &'static str)] {
        if self.shuttle {
            &[("RUSTFLAGS", "--cfg shuttle")]
        } else if self.miri {
            &[(
                "MIRIFLAGS",
                "-Zmiri-strict-provenance -Zmiri-symbolic-alignment-check",
            )]
        } else {
            &[]
        }
    }
}
