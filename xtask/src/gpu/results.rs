//! The file of results: tables as GPU.md has them, and whether all went well.

use std::env;
use std::fmt::Write as _;
use std::process::Command;

use crate::bench::table::table;

/// What was checked so far.
pub struct Results {
    text: String,
    rows: Vec<[String; 3]>,
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
    pub fn begin(devices: &str) -> Self {
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
        Self {
            text,
            rows: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Notes how a check went, and says so.
    pub fn note(&mut self, check: &str, verdict: Verdict, found: String) {
        let word = match verdict {
            Verdict::Right => "right",
            Verdict::Wrong => "WRONG",
            Verdict::Left => "not tried",
        };
        eprintln!("{check}: {word}: {found}");
        if matches!(verdict, Verdict::Wrong) {
            self.failed.push(check.to_owned());
        }
        self.rows.push([check.to_owned(), word.to_owned(), found]);
    }

    /// Closes the table of checks under a heading.
    pub fn section(&mut self, heading: &str) {
        let mut rows = vec![["check", "", "found"].map(str::to_owned)];
        rows.append(&mut self.rows);
        let table = table(&rows, true);
        self.text(heading, &table);
    }

    /// Adds a section of its own.
    pub fn text(&mut self, heading: &str, text: &str) {
        let _ = write!(self.text, "\n## {heading}\n\n{text}");
    }

    /// The file.
    pub fn written(&self) -> &str {
        &self.text
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
    fn what_is_wrong_is_in_the_table_and_in_the_verdict() {
        let mut results = Results::begin("cuda:0  Emulated GPU 0\n");
        results.note("one", Verdict::Right, "1e-9".into());
        results.note("two", Verdict::Left, "not there".into());
        results.section("Checks");
        assert!(results.verdict().is_ok());
        results.note("three", Verdict::Wrong, "far off".into());
        results.section("More");
        assert_eq!(results.verdict().unwrap_err().to_string(), "wrong: three");
        let text = results.written();
        for words in [
            "are emulated",
            "## Checks",
            "| one ",
            "not tried",
            "| three | WRONG | far off |",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            !Results::begin("cuda:0  NVIDIA H200")
                .written()
                .contains("emulated")
        );
    }
}
