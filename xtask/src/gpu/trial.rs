//! The archive, tried on emulated GPUs: unpacked and run as a whole, and with every part cut off in its middle.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use flate2::read::GzDecoder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xshell::{Shell, TempDir, cmd};

use super::archive::Packed;
use super::results::Verdict;

/// Rows of each part after which its time is up when it is cut off.
const CUTS: [(&str, usize); 4] = [("a", 4), ("b", 3), ("c", 1), ("d", 2)];

/// Runs what was packed at small sizes on emulated GPUs.
///
/// # Errors
/// If a program did what it may not, or a result is not there.
pub fn run(shell: &Shell, packed: &Packed) -> anyhow::Result<()> {
    let Some(libraries) = libraries(shell)? else {
        println!("skipped: no GPUs are emulated without g++");
        return Ok(());
    };
    let host = Host::unpacked(shell, packed, &libraries)?;
    let whole = packed.folder.join("emulated.md");
    host.run(&whole, &[])?;
    complete(&whole)?;
    println!("unpacked and run on emulated GPUs");
    for (part, rows) in CUTS {
        let out = packed.folder.join(format!("emulated-{part}.md"));
        let rows = rows.to_string();
        cleared(&out);
        host.run(&out, &["--only", part, "--cut", &rows])?;
        cut_off(&out, &whole, part)
            .with_context(|| format!("part {part}, cut off after {rows} rows"))?;
        println!("part {part}, cut off after {rows} rows: they are there");
    }
    let out = packed.folder.join("emulated-stop.md");
    cleared(&out);
    host.stop(&out)?;
    cut_off(&out, &whole, "a").context("stopped by a signal")?;
    println!("stopped by a signal: what was known by then is there");
    Ok(())
}

/// What an earlier try left is no result of this one.
fn cleared(out: &Path) {
    for file in [out.to_owned(), out.with_extension("jsonl")] {
        let _ = fs::remove_file(file);
    }
}

/// The folder of the emulated libraries, if there is a compiler for them.
fn libraries(shell: &Shell) -> anyhow::Result<Option<PathBuf>> {
    let test =
        "test --quiet --workspace --features emulated --test emulated -- --nocapture --exact";
    let arguments = test.split(' ');
    let said = cmd!(
        shell,
        "cargo {arguments...} the_libraries_are_in_one_folder"
    )
    .read()?;
    let named = said.split_once("libraries: ").map(|(_, rest)| rest);
    Ok(named
        .and_then(|rest| rest.lines().next())
        .map(PathBuf::from))
}

/// A host with emulated GPUs, and the archive in a folder of it.
struct Host<'a> {
    shell: &'a Shell,
    folder: TempDir,
    script: PathBuf,
    /// Folders of libraries, where no Python finds them.
    named: OsString,
}

impl<'a> Host<'a> {
    fn unpacked(shell: &'a Shell, packed: &Packed, libraries: &Path) -> anyhow::Result<Self> {
        let folder = shell.create_temp_dir()?;
        tar::Archive::new(GzDecoder::new(&packed.bytes[..])).unpack(folder.path())?;
        // As wheels lie in a Python's path, where the script looks; without a Python they are named to it.
        let wheels = folder.path().join("site-packages/nvidia/emulated");
        fs::create_dir_all(&wheels)?;
        std::os::unix::fs::symlink(libraries, wheels.join("lib"))?;
        let python = cmd!(shell, "python3 --version")
            .quiet()
            .ignore_stdout()
            .run();
        Ok(Self {
            shell,
            script: folder.path().join(&packed.name).join("run.sh"),
            folder,
            named: match python {
                Ok(()) => OsString::new(),
                Err(_) => libraries.into(),
            },
        })
    }

    /// Where the script finds the emulated GPUs.
    fn environment(&self) -> [(&'static str, OsString); 4] {
        let folder = self.folder.path();
        let settings = format!("seed=7 faults={}", self.faults().display());
        [
            ("LD_LIBRARY_PATH", self.named.clone()),
            ("PYTHONPATH", folder.join("site-packages").into()),
            ("EMULATED_GPU", settings.into()),
            ("XDG_CACHE_HOME", folder.into()),
        ]
    }

    fn faults(&self) -> PathBuf {
        self.folder.path().join("faults")
    }

    /// Runs the script, and looks whether its programs did what they may not.
    fn run(&self, out: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let script = &self.script;
        cmd!(self.shell, "{script} --small --out {out} {flags...}")
            .envs(self.environment())
            .run()?;
        let faults = fs::read_to_string(self.faults()).unwrap_or_default();
        anyhow::ensure!(
            faults.is_empty(),
            "the programs did what they may not:\n{faults}"
        );
        Ok(())
    }

    /// Asks the script to stop by a signal, once it has a row of part a.
    fn stop(&self, out: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(&self.script);
        command.args(["--small", "--only", "a", "--out"]).arg(out);
        let mut script = command.envs(self.environment()).spawn()?;
        let has_row = || objects(out).is_ok_and(|objects| rows(&objects, "a").next().is_some());
        while !has_row() {
            let status = script.try_wait()?;
            anyhow::ensure!(status.is_none(), "the script has ended without a row");
            thread::sleep(Duration::from_millis(20));
        }
        kill_process(Pid::from_child(&script), Signal::TERM)?;
        let status = script.wait()?;
        anyhow::ensure!(status.code() == Some(1), "a stop ends with 1, not {status}");
        Ok(())
    }
}

/// The objects of a run, all lines of which are whole.
fn objects(out: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(out.with_extension("jsonl"))?;
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .context("half a line among the results")
}

fn summary(out: &Path) -> anyhow::Result<String> {
    Ok(fs::read_to_string(out.with_extension("summary.md"))?)
}

/// Whether every part has ended, and everything was measured.
fn complete(out: &Path) -> anyhow::Result<()> {
    let (objects, summary) = (objects(out)?, summary(out)?);
    for kind in [
        "begin", "check", "run", "launch", "step", "ceiling", "product",
    ] {
        let found = objects.iter().any(|object| object["kind"] == kind);
        anyhow::ensure!(found, "{} has no {kind}", out.display());
    }
    let ended = objects
        .iter()
        .filter(|object| object["kind"] == "end" && object["cut"].is_null());
    anyhow::ensure!(
        ended.count() == 4,
        "{}: a part has not ended",
        out.display()
    );
    let page = fs::read_to_string(out)?;
    for words in [
        "\n## Operations",
        "\n## Training",
        "\n## Ceilings",
        "\n## Launches",
        "\n## Beside PyTorch",
        "\n## Rehearsals",
        "\n## compute-sanitizer",
        "\n## CUDA graphs",
        "the same bits in two runs | right",
        "the same bits with CUDA graphs, cuda:0, M = 8 | right",
        "the same bits with CUDA graphs, cuda:0*2, M = 8 | right",
    ] {
        anyhow::ensure!(
            page.contains(words),
            "{} says nothing of {words}",
            out.display()
        );
    }
    for words in [
        "most to gain",
        "Runs of GPT-2",
        "With CUDA graphs",
        "a copy at",
        "allocations",
    ] {
        anyhow::ensure!(
            summary.contains(words),
            "the summary says nothing of {words}: {summary}"
        );
    }
    Ok(())
}

/// Whether a part that was cut off has the first rows of the whole one, and says what is missing.
fn cut_off(out: &Path, whole: &Path, part: &str) -> anyhow::Result<()> {
    let (objects, all) = (objects(out)?, objects(whole)?);
    let is_kept = |object: &&Value| object["verdict"] != Verdict::Cut.word();
    let kept = rows(&objects, part).take_while(is_kept);
    let wanted: Vec<String> = rows(&all, part).map(name).collect();
    let found: Vec<String> = kept.map(name).collect();
    anyhow::ensure!(
        !found.is_empty() && wanted.starts_with(&found) && found.len() < wanted.len(),
        "not the first of {wanted:?}: {found:?}"
    );
    anyhow::ensure!(
        rows(&objects, part).any(|row| !is_kept(&row)),
        "nothing says that the rest was cut off"
    );
    let end = objects.last().filter(|object| object["kind"] == "end");
    anyhow::ensure!(
        end.is_some_and(|end| end["cut"].is_string()),
        "its end is not said to be one"
    );
    let summary = summary(out)?;
    let line = format!("| {part}    | cut off: ");
    anyhow::ensure!(
        summary.contains(&line),
        "the summary does not say so: {summary}"
    );
    Ok(())
}

/// The rows of a part.
fn rows<'a>(objects: &'a [Value], part: &'a str) -> impl Iterator<Item = &'a Value> {
    objects
        .iter()
        .filter(move |object| object["part"] == part && object["kind"] != "end")
}

/// What a row is of: everything of it but what was measured.
fn name(row: &Value) -> String {
    let keys = [
        "kind",
        "check",
        "launch",
        "ceiling",
        "program",
        "precision",
        "devices",
        "micro_batches",
        "graphs",
        "batch",
    ];
    let keys = keys.into_iter().chain(["layout", "m", "n", "k"]);
    let named = keys.filter_map(|key| row.get(key).map(Value::to_string));
    named.collect::<Vec<String>>().join(" ")
}
