//! One process of a run: it is started, it speaks, it is killed, stopped or starved, or ends.

#[path = "../common/ignored_signals.rs"]
mod ignored_signals;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;

/// The arguments of a resume.
pub const RESUME: &[&str] = &["train", "--json", "-q", "--resume", "run"];

/// The arguments with which a run begins: a model whose steps take a millisecond, saved after each.
pub fn first(steps: u64) -> Vec<&'static str> {
    assert_eq!(steps, 40, "the number below");
    vec![
        "train",
        "--json",
        "-q",
        "--out",
        "run",
        "--steps",
        "40",
        "--save-every",
        "1",
        "--keep",
        "2",
        "--set",
        "model.width=16",
        "--set",
        "model.blocks=1",
        "--set",
        "model.heads=2",
        "--seq-len",
        "8",
        "--batch-size",
        "4",
        "--micro-batches",
        "4",
        "--dropout",
        "0.1",
        "--threads",
        "1",
    ]
}

/// Bytes of the largest file on a full disk: there is room for an error message, none for a checkpoint.
const ROOM: u64 = 4096;

/// From when on a life may be killed.
#[derive(Clone, Copy)]
pub enum Until {
    /// At once.
    Started,
    /// When it has said something of this kind.
    Said(&'static str),
}

/// How a life is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL: nothing is said, nothing is finished.
    Kill,
    /// A signal that asks for a stop: the step is finished and saved.
    Signal(Signal),
    /// The reader of stdout goes away: the step is finished and saved.
    Deaf,
    /// No file can grow any more, as on a full disk: the next save fails.
    Full,
}

impl End {
    /// Every end.
    pub const ALL: [Self; 6] = [
        Self::Kill,
        Self::Signal(Signal::HUP),
        Self::Signal(Signal::TERM),
        Self::Signal(Signal::USR1),
        Self::Deaf,
        Self::Full,
    ];

    /// The exit code of a run that it ends; `None` without one.
    fn code(self) -> Option<i32> {
        match self {
            Self::Kill => None,
            Self::Signal(_) => Some(130),
            Self::Deaf | Self::Full => Some(1),
        }
    }
}

/// A process.
pub struct Life {
    child: Child,
    /// Its stdout, until nobody reads it.
    lines: Option<BufReader<ChildStdout>>,
    errors: PathBuf,
    /// Its output on stdout.
    pub said: Vec<Value>,
}

impl Life {
    /// Starts the program.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        ignored_signals::are_not_inherited();
        let errors = folder.join("errors");
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpipe"))
            .current_dir(folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("a file"))
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            lines: Some(lines),
            errors,
            said: Vec::new(),
        }
    }

    /// Reads a line; `false` at the end. A line that was cut off was never said.
    fn listen(&mut self) -> bool {
        let mut line = String::new();
        let lines = self.lines.as_mut();
        match lines.map_or(Ok(0), |lines| lines.read_line(&mut line)) {
            Ok(n) if n > 0 && line.ends_with('\n') => {
                self.said
                    .push(serde_json::from_str(&line).expect("an object a line"));
                true
            }
            _ => false,
        }
    }

    /// Ends it so long after that moment, and hears what it had said. `false` if it had ended before.
    ///
    /// # Errors
    /// Another exit code than that of such an end, and what it said on stderr.
    pub fn end(&mut self, until: Until, after: Duration, end: End) -> Result<bool, String> {
        if let Until::Said(kind) = until {
            while self.said.last().is_none_or(|said| said["kind"] != kind) {
                if !self.listen() {
                    return Ok(false);
                }
            }
        }
        thread::sleep(after);
        if self.child.try_wait().expect("a child").is_some() {
            while self.listen() {}
            return Ok(false);
        }
        let pid = Pid::from_child(&self.child);
        match end {
            End::Kill => kill_process(pid, Signal::KILL).expect("a child that runs"),
            End::Signal(signal) => kill_process(pid, signal).expect("a child that runs"),
            End::Deaf => drop(self.lines.take()),
            End::Full => {
                let limit = Rlimit {
                    current: Some(ROOM),
                    maximum: Some(ROOM),
                };
                prlimit(Some(pid), Resource::Fsize, limit).expect("a child that runs");
            }
        }
        match self.wait() {
            code if code == end.code() => Ok(true),
            // It made its last step meanwhile.
            Some(0) => Ok(false),
            code => Err(format!("{end:?}: exit code {code:?}: {}", self.errors())),
        }
    }

    /// Waits for its end and hears all that it says; its exit code, if it was not killed.
    pub fn wait(&mut self) -> Option<i32> {
        while self.listen() {}
        self.child.wait().expect("a child").code()
    }

    /// Its output on stderr.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // One that has ended cannot be killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
