//! The file of results: tables as GPU.md has them, and whether all went well.

use std::env;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// What was checked so far, in a file that always has all of it: what is ended in the middle is not lost.
pub struct Results {
    file: File,
    path: PathBuf,
    /// Whether the last line is a row of a table of checks.
    in_table: bool,
    failed: Vec<String>,
}

/// How a check went.
pub enum Verdict {
    Right,
    Wrong,
    /// It could not be tried.
    Left,
}

impl Results {
    /// With date, hardware and command.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(path: &Path, devices: &str) -> anyhow::Result<Self> {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            (output.status.success() && !text.is_empty()).then_some(text)
        };
        let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
        let query = "--query-gpu=name,driver_version,memory.total";
        let smi = said("nvidia-smi", &[query, "--format=csv,noheader"]);
        let arguments: Vec<String> = env::args().skip(1).collect();
        let mut text = String::from("# gpipe on a GPU\n\n");
        if devices.contains("Emulated GPU") {
            text += "**These GPUs are emulated: this speaks of logic, and no time here says anything.**\n\n";
        }
        let _ = writeln!(
            text,
            "{}, version {}, `xtask {}`\n\n```text\n{}\n{}\n```",
            date.as_deref().unwrap_or("date unknown"),
            env!("CARGO_PKG_VERSION"),
            arguments.join(" "),
            smi.as_deref().unwrap_or("nvidia-smi says nothing"),
            devices.trim_end(),
        );
        let file = File::create(path).with_context(|| format!("writing {}", path.display()))?;
        let mut results = Self {
            file,
            path: path.to_owned(),
            in_table: false,
            failed: Vec::new(),
        };
        results.write(&text)?;
        Ok(results)
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| format!("writing {}", self.path.display()))
    }

    /// Notes how a check went, and says so.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&mut self, check: &str, verdict: Verdict, found: &str) -> anyhow::Result<()> {
        let word = match verdict {
            Verdict::Right => "right",
            Verdict::Wrong => "WRONG",
            Verdict::Left => "not tried",
        };
        eprintln!("{check}: {word}: {found}");
        if matches!(verdict, Verdict::Wrong) {
            self.failed.push(check.to_owned());
        }
        if !self.in_table {
            self.write("| check | | found |\n|---|---|---|\n")?;
            self.in_table = true;
        }
        self.write(&format!("| {check} | {word} | {found} |\n"))
    }

    /// Begins a section.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn section(&mut self, heading: &str) -> anyhow::Result<()> {
        self.in_table = false;
        self.write(&format!("\n## {heading}\n\n"))
    }

    /// Adds a paragraph or a table.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn text(&mut self, text: &str) -> anyhow::Result<()> {
        let before = if self.in_table { "\n" } else { "" };
        self.in_table = false;
        self.write(&format!("{before}{text}"))
    }

    /// Whether all went well.
    pub fn verdict(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.failed.is_empty(), "wrong: {}", self.failed.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_in_the_file_at_once_and_in_the_verdict() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut results = Results::begin(&path, "cuda:0  Emulated GPU 0\n").unwrap();
        let text = || std::fs::read_to_string(&path).unwrap();
        results.section("Checks").unwrap();
        results.note("one", Verdict::Right, "1e-9").unwrap();
        assert!(text().ends_with("| one | right | 1e-9 |\n"));
        results.note("two", Verdict::Left, "not there").unwrap();
        assert!(results.verdict().is_ok());
        results.note("three", Verdict::Wrong, "far off").unwrap();
        results.text("And more.\n").unwrap();
        assert_eq!(results.verdict().unwrap_err().to_string(), "wrong: three");
        for words in [
            "are emulated",
            "## Checks",
            "not tried",
            "| three | WRONG | far off |\n\nAnd",
        ] {
            assert!(text().contains(words), "{words}: {}", text());
        }
        Results::begin(&path, "cuda:0  NVIDIA H200").unwrap();
        assert!(!text().contains("emulated"));
    }
}
