//! The programs that work on a GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

/// There is no GPU to work on, or no compiler for one.
#[derive(Debug)]
pub struct Missing(String);

impl Missing {
    /// Why NVIDIA's compiler cannot be loaded.
    pub fn nvrtc(what: &str) -> Self {
        Self(format!(
            "{what}: `pip install nvidia-cuda-nvrtc-cu12`, and let GPIPE_NVRTC name the libnvrtc.so.12 in it"
        ))
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Arguments of cargo with which programs take the libraries that the tests on emulated GPUs have been built with.
pub const EMULATED: [&str; 3] = ["--workspace", "--features", "emulated"];

/// Where they are.
pub struct Programs {
    /// The program itself.
    pub gpipe: PathBuf,
    /// Compares every operation with the processor's.
    pub operations: PathBuf,
    /// Measures products of matrices.
    pub products: PathBuf,
    /// Measures the launches of a step.
    pub launches: PathBuf,
}

impl Programs {
    /// Those that were packed.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            gpipe: folder.join("gpipe"),
            operations: folder.join("operations"),
            products: folder.join("products"),
            launches: folder.join("launches"),
        }
    }

    /// Their names in the archive.
    pub fn named(&self) -> [(&'static str, &Path); 4] {
        [
            ("gpipe", &self.gpipe),
            ("operations", &self.operations),
            ("products", &self.products),
            ("launches", &self.launches),
        ]
    }

    /// Builds them in a profile of cargo, or in that of releases; to be tried on emulated GPUs, with the
    /// [libraries of the tests there](EMULATED).
    pub fn build(shell: &Shell, profile: Option<&str>, emulated: bool) -> anyhow::Result<Self> {
        let profile = ["--profile", profile.unwrap_or("release")];
        let features: &[&str] = match emulated {
            true => &EMULATED,
            false => &["--features", "cuda"],
        };
        // At once: what tests depend on switches on features, with which everything would be built a second time.
        let targets = ["--bin", "gpipe", "--test", "cuda"];
        let benches = ["--bench", "products", "--bench", "launches"];
        let arguments = [&profile, features, &targets, &benches].concat();
        let built = build_messages(shell, &arguments)?;
        Ok(Self {
            gpipe: executable(&built, "gpipe")?,
            operations: executable(&built, "cuda")?,
            products: executable(&built, "products")?,
            launches: executable(&built, "launches")?,
        })
    }

    /// What `gpipe devices` says.
    ///
    /// # Errors
    /// [`Missing`] if there is no GPU among them.
    pub fn devices(&self) -> anyhow::Result<String> {
        let said = |flags: &[&str]| -> anyhow::Result<String> {
            let mut command = Command::new(&self.gpipe);
            let output = command.arg("devices").args(flags).output();
            let output = output.with_context(|| format!("running {}", self.gpipe.display()))?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        match reason(&said(&["--json"])?)? {
            Some(reason) => Err(Missing(format!("no GPU to work on: {reason}")).into()),
            None => said(&[]),
        }
    }
}

/// Why the first GPU cannot be used, if it cannot.
fn reason(lines: &str) -> anyhow::Result<Option<String>> {
    for line in lines.lines() {
        let device: Value = serde_json::from_str(line).context("what `gpipe devices` says")?;
        if device["device"] == "cuda:0" {
            let reason = device["reason"].as_str().unwrap_or("it does not say why");
            let usable = device["usable"] == true;
            return Ok((!usable).then(|| reason.to_owned()));
        }
    }
    Ok(Some("`gpipe devices` lists none".into()))
}

/// What `cargo build` says of what it has made.
pub fn build_messages(shell: &Shell, arguments: &[&str]) -> anyhow::Result<String> {
    let format = ["--message-format", "json-render-diagnostics"];
    Ok(cmd!(shell, "cargo build {arguments...} {format...}").read()?)
}

/// The file that cargo says it has made of a target.
pub fn executable(messages: &str, target: &str) -> anyhow::Result<PathBuf> {
    let mut made = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == target;
        let path = message["executable"].as_str()?;
        is_it.then(|| path.into())
    });
    made.next()
        .with_context(|| format!("cargo made no {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"cuda\"},\"executable\":null}\n",
            "noise\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"cuda\"},\"executable\":\"/a/cuda-1\"}\n",
        );
        assert_eq!(
            executable(messages, "cuda").unwrap(),
            Path::new("/a/cuda-1")
        );
        assert!(executable(messages, "products").is_err());
    }

    #[test]
    fn a_gpu_that_cannot_be_used_says_why() {
        let cpu = "{\"device\":\"cpu\",\"usable\":true}\n";
        let line = |usable| {
            format!("{cpu}{{\"device\":\"cuda:0\",\"usable\":{usable},\"reason\":\"no driver\"}}\n")
        };
        assert_eq!(reason(&line(true)).unwrap(), None);
        assert_eq!(reason(&line(false)).unwrap().as_deref(), Some("no driver"));
        assert!(reason(cpu).unwrap().is_some());
        assert!(reason("no json").is_err());
    }
}
