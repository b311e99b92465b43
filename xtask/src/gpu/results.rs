//! The files of results: tables for people, an object a line for programs, and a summary of one page. Each row is in all
//! of them as soon as it is known.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::limit::{self, Ended};
use super::summary::summary;

/// The columns of a table of checks.
const CHECKS: [&str; 3] = ["check", "", "found"];

/// What is known so far, in files that always have all of it: what is ended in the middle is not lost.
pub struct Results {
    page: Log,
    lines: Log,
    summary: PathBuf,
    /// All objects so far.
    objects: Vec<Value>,
    part: char,
    /// The heading of the table that the last row is in.
    columns: Vec<String>,
    /// Rows after which the time of a part is up: to try what a limit leaves.
    pub cut_after: Option<usize>,
}

/// A file that is only added to.
struct Log {
    file: File,
    path: PathBuf,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong,
    /// It could not be tried.
    Left,
    /// It was ended, or not begun, as the time was up.
    Cut,
}

impl Verdict {
    /// As the files have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "WRONG",
            Self::Left => "not tried",
            Self::Cut => "cut off",
        }
    }
}

impl Log {
    fn open(path: PathBuf, goes_on: bool) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let file = match goes_on {
            true => options.append(true).create(true).open(&path),
            false => File::create(&path),
        };
        let file = file.with_context(|| format!("writing {}", path.display()))?;
        Ok(Self { file, path })
    }

    /// Adds text, which is in the file when this returns, and stays there if the machine fails.
    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(text.as_bytes());
        let written = written.and_then(|()| self.file.sync_data());
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

impl Results {
    /// Tables in `path`, objects and the summary beside it, begun with date, hardware and command. With `goes_on`, what
    /// the files have stays, and is in the summary.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn begin(path: &Path, devices: &str, goes_on: bool) -> anyhow::Result<Self> {
        let lines = path.with_extension("jsonl");
        let before = match goes_on {
            true => fs::read_to_string(&lines).unwrap_or_default(),
            false => String::new(),
        };
        let mut results = Self {
            page: Log::open(path.to_owned(), goes_on)?,
            lines: Log::open(lines, goes_on)?,
            summary: path.with_extension("summary.md"),
            // A run that was killed may have left half a line.
            objects: before
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            part: ' ',
            columns: Vec::new(),
            cut_after: None,
        };
        if !before.is_empty() && !before.ends_with('\n') {
            results.lines.write("\n")?;
        }
        let date =
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(|| "date unknown".into());
        let query = "--query-gpu=name,driver_version,memory.total";
        let smi = said("nvidia-smi", &[query, "--format=csv,noheader"]);
        let smi = smi.unwrap_or_else(|| "nvidia-smi says nothing".into());
        let arguments: Vec<String> = env::args().skip(1).collect();
        let is_emulated = devices.contains("Emulated GPU");
        let warning = match is_emulated {
            true => {
                "**These GPUs are emulated: this speaks of logic, and no time here says anything.**\n\n"
            }
            false => "",
        };
        let version = env!("CARGO_PKG_VERSION");
        results.page.write(&format!(
            "# gpipe on a GPU\n\n{warning}{date}, version {version}, `xtask {}`\n\n```text\n{smi}\n{}\n```\n",
            arguments.join(" "),
            devices.trim_end(),
        ))?;
        results.object(json!({
            "kind": "begin", "date": date, "version": version, "device": smi, "is_emulated": is_emulated,
        }))?;
        Ok(results)
    }

    /// Begins a part: its rows name it.
    pub fn begin_part(&mut self, part: char) {
        self.part = part;
    }

    /// Rows of the part that has begun.
    fn rows_of_part(&self) -> usize {
        let own = self.part.to_string();
        let is_own = |object: &&Value| object["part"] == own.as_str();
        self.objects.iter().rev().take_while(is_own).count()
    }

    /// Says that the part has ended, or why it was cut off if something of it was.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn end_part(&mut self) -> anyhow::Result<()> {
        let part = self.part;
        let own = &self.objects[self.objects.len() - self.rows_of_part()..];
        let is_cut = own
            .iter()
            .any(|object| object["verdict"] == Verdict::Cut.word());
        let cut = limit::over().filter(|_| is_cut);
        let how = cut.unwrap_or("it has ended");
        eprintln!("part {part}: {how}");
        self.columns.clear();
        self.page.write(&format!("\nPart {part}: {how}.\n"))?;
        self.object(json!({"kind": "end", "cut": cut}))
    }

    /// Adds an object, and writes the summary anew.
    fn object(&mut self, mut object: Value) -> anyhow::Result<()> {
        if self.part != ' ' {
            object["part"] = self.part.to_string().into();
        }
        self.lines.write(&format!("{object}\n"))?;
        self.objects.push(object);
        if self
            .cut_after
            .is_some_and(|rows| self.rows_of_part() >= rows)
        {
            limit::begin(Duration::ZERO);
        }
        let summary = summary(&self.objects);
        fs::write(&self.summary, summary)
            .with_context(|| format!("writing {}", self.summary.display()))
    }

    /// Adds a row to the table of these columns, which begins with it if the last row was in another one.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn row(&mut self, columns: &[&str], cells: &[String], object: Value) -> anyhow::Result<()> {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        if self.columns != columns {
            let before = if self.columns.is_empty() { "" } else { "\n" };
            self.columns = columns.iter().map(|&column| column.to_owned()).collect();
            let rule = "---|".repeat(columns.len());
            self.page
                .write(&format!("{before}{}|{rule}\n", row(&self.columns)))?;
        }
        self.page.write(&row(cells))?;
        self.object(object)
    }

    /// Notes how a check went, and says so.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn note(&mut self, check: &str, verdict: Verdict, found: &str) -> anyhow::Result<()> {
        let word = verdict.word();
        eprintln!("{check}: {word}: {found}");
        let cells = [check, word, found].map(str::to_owned);
        let object = json!({"kind": "check", "check": check, "verdict": word, "found": found});
        self.row(&CHECKS, &cells, object)
    }

    /// Notes a program that did not end well: with this verdict, unless its time was up.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn failed(&mut self, check: &str, verdict: Verdict, ended: &Ended) -> anyhow::Result<()> {
        let verdict = ended.cut.map_or(verdict, |_| Verdict::Cut);
        self.note(check, verdict, &ended.why())
    }

    /// Begins a section.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn section(&mut self, heading: &str) -> anyhow::Result<()> {
        self.columns.clear();
        self.page.write(&format!("\n## {heading}\n\n"))
    }

    /// Whether all went well since the files were begun or gone on with.
    pub fn verdict(&self) -> anyhow::Result<()> {
        let begun = self
            .objects
            .iter()
            .rposition(|object| object["kind"] == "begin");
        let own = &self.objects[begun.unwrap_or(0)..];
        let wrong = own
            .iter()
            .filter(|object| object["verdict"] == Verdict::Wrong.word());
        let wrong: Vec<&str> = wrong
            .filter_map(|object| object["check"].as_str())
            .collect();
        anyhow::ensure!(wrong.is_empty(), "wrong: {}", wrong.join(", "));
        Ok(())
    }
}

/// What a program prints, if it ends well and prints anything.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_in_the_files_at_once_and_in_the_verdict() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut results = Results::begin(&path, "cuda:0  Emulated GPU 0\n", false).unwrap();
        let text = |extension| fs::read_to_string(path.with_extension(extension)).unwrap();
        results.begin_part('a');
        results.section("Checks").unwrap();
        results.note("one", Verdict::Right, "1e-9").unwrap();
        assert!(text("md").ends_with("| one | right | 1e-9 |\n"));
        assert!(
            text("jsonl").ends_with("\"verdict\":\"right\"}\n"),
            "{}",
            text("jsonl")
        );
        assert!(
            text("summary.md").contains("1 right"),
            "{}",
            text("summary.md")
        );
        results.note("two", Verdict::Left, "not there").unwrap();
        assert!(results.verdict().is_ok());
        let cells = ["copy", "4000"].map(str::to_owned);
        results
            .row(&["ceiling", "GB/s"], &cells, json!({"kind": "ceiling"}))
            .unwrap();
        results.note("three", Verdict::Wrong, "far off").unwrap();
        assert_eq!(results.rows_of_part(), 4);
        results.end_part().unwrap();
        assert_eq!(results.verdict().unwrap_err().to_string(), "wrong: three");
        for words in [
            "are emulated",
            "## Checks\n\n| check |  | found |\n|---|---|---|\n| one",
            "not there |\n\n| ceiling | GB/s |\n|---|---|\n| copy | 4000 |\n\n| check",
            "| three | WRONG | far off |\n\nPart a: it has ended.",
        ] {
            assert!(text("md").contains(words), "{words}: {}", text("md"));
        }
    }

    #[test]
    fn results_are_gone_on_with_behind_half_a_line() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut first = Results::begin(&path, "", false).unwrap();
        first.begin_part('a');
        first.note("one", Verdict::Wrong, "far off").unwrap();
        first.lines.write("{\"kind\":\"che").unwrap();
        let mut second = Results::begin(&path, "", true).unwrap();
        second.begin_part('b');
        second.note("two", Verdict::Right, "near").unwrap();
        let lines = fs::read_to_string(path.with_extension("jsonl")).unwrap();
        let whole = lines
            .lines()
            .filter(|line| serde_json::from_str::<Value>(line).is_ok());
        assert_eq!((whole.count(), lines.lines().count()), (4, 5));
        // What was wrong before is for the summary, not for this run.
        assert!(second.verdict().is_ok());
        let summary = fs::read_to_string(path.with_extension("summary.md")).unwrap();
        assert!(summary.contains("1 right, 1 WRONG"), "{summary}");

        Results::begin(&path, "", false).unwrap();
        assert_eq!(
            fs::read_to_string(path.with_extension("jsonl"))
                .unwrap()
                .lines()
                .count(),
            1
        );
    }
}
