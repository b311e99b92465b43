//! A time limit for the programs of a part. Each runs in a process group of its own, and what it prints is heard line by
//! line; at the end of the part, or at a signal that asks for a stop, the whole group is ended.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// How long a part may take.
pub const PART: Duration = Duration::from_secs(9 * 60);

/// What ended a program before its end.
pub const TIME: &str = "the time of this part is up";
const SIGNAL: &str = "a signal asked for a stop";

static END: Mutex<Option<Instant>> = Mutex::new(None);

/// What became of a program.
#[derive(Debug, Default)]
pub struct Ended {
    /// Its exit status; none if it was not begun.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// Why it was ended, or not begun, if it was.
    pub cut: Option<&'static str>,
}

impl Ended {
    /// Whether it ended by itself, and well.
    pub fn is_right(&self) -> bool {
        self.cut.is_none() && self.status.is_some_and(|status| status.success())
    }

    /// Why it did not end well: the limit, or its last line.
    pub fn why(&self) -> String {
        if let Some(cut) = self.cut {
            return cut.to_owned();
        }
        let lines = self.stdout.lines().chain(self.stderr.lines());
        let last = lines.rev().find(|line| !line.trim().is_empty());
        let last = last.map_or("it said nothing", str::trim);
        let last = last.trim_start_matches("error: ");
        match self.status {
            Some(status) if !status.success() => format!("{last} ({status})"),
            _ => last.to_owned(),
        }
    }
}

/// Programs that are run from now on end within this time, all together.
pub fn begin(limit: Duration) {
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + limit);
}

/// Why no program may run any more, if so.
pub fn over() -> Option<&'static str> {
    if is_stopped() {
        return Some(SIGNAL);
    }
    let end = *END.lock().unwrap_or_else(PoisonError::into_inner);
    end.is_some_and(|end| Instant::now() >= end).then_some(TIME)
}

/// Whether a signal asked for a stop.
pub fn is_stopped() -> bool {
    stop().load(Ordering::Relaxed)
}

/// Set by a signal. A group of its own hears nothing of a Ctrl-C, so that this process has to end it.
fn stop() -> &'static AtomicBool {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(|| {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Without a handler the signal ends this process, and the program goes on to its end. In this order:
            // the first signal sets the flag, a second one ends at once.
            let _ = flag::register_conditional_shutdown(signal, 1, stop.clone());
            let _ = flag::register(signal, stop.clone());
        }
        stop
    })
}

/// Runs a program to its end or to that of the part.
///
/// # Errors
/// If it cannot be run.
pub fn run(command: &mut Command) -> anyhow::Result<Ended> {
    run_heard(command, &mut |_| Ok(()))
}

/// The same, and passes on each line of its stdout as it is there. A last line without its end is passed on only if
/// the program ended by itself.
///
/// # Errors
/// If it cannot be run, or `hear` fails, which ends it.
pub fn run_heard(
    command: &mut Command,
    hear: &mut dyn FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    if let Some(cut) = over() {
        return Ok(Ended {
            cut: Some(cut),
            ..Ended::default()
        });
    }
    // Files, which take as much as a program says while nobody reads it.
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let [said, complained] = ["stdout", "stderr"].map(|name| folder.path().join(name));
    command.stdout(File::create(&said)?);
    command.stderr(File::create(&complained)?);
    let child = command.process_group(0).spawn();
    let child =
        child.with_context(|| format!("running {}", Path::new(command.get_program()).display()))?;
    let mut group = Group(child);
    let mut stdout = Lines::of(File::open(said)?);
    let mut cut = None;
    let status = loop {
        let status = group.0.try_wait()?;
        stdout.hear(hear)?;
        if let Some(status) = status {
            break status;
        }
        cut = over();
        if cut.is_some() {
            break group.end()?;
        }
        thread::sleep(Duration::from_millis(20));
    };
    // What it printed between the last look and its end.
    stdout.hear(hear)?;
    if cut.is_none() {
        stdout.hear_last(hear)?;
    }
    let mut stderr = Vec::new();
    File::open(complained)?.read_to_end(&mut stderr)?;
    Ok(Ended {
        status: Some(status),
        stdout: String::from_utf8_lossy(&stdout.bytes).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        cut,
    })
}

/// A program that leads a process group.
struct Group(Child);

impl Group {
    /// Ends it and all that it started.
    fn end(&mut self) -> anyhow::Result<ExitStatus> {
        // It has not been waited for: the number is still that of its group.
        kill_process_group(Pid::from_child(&self.0), Signal::KILL)?;
        Ok(self.0.wait()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An error ends the program too.
        if let Ok(None) = self.0.try_wait() {
            let _ = self.end();
        }
    }
}

/// A file that grows line by line.
struct Lines {
    file: File,
    bytes: Vec<u8>,
    heard: usize,
}

impl Lines {
    fn of(file: File) -> Self {
        Self {
            file,
            bytes: Vec::new(),
            heard: 0,
        }
    }

    /// Passes on the lines that have ended since the last call.
    fn hear(&mut self, hear: &mut dyn FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.file.read_to_end(&mut self.bytes)?;
        while let Some(length) = self.bytes[self.heard..]
            .iter()
            .position(|&byte| byte == b'\n')
        {
            let line = &self.bytes[self.heard..self.heard + length];
            self.heard += length + 1;
            hear(&String::from_utf8_lossy(line))?;
        }
        Ok(())
    }

    /// Passes on what stands behind the last end of a line.
    fn hear_last(&self, hear: &mut dyn FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match &self.bytes[self.heard..] {
            [] => Ok(()),
            last => hear(&String::from_utf8_lossy(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is that of the process: one test has it.
    #[test]
    fn what_does_not_end_is_ended_with_all_that_it_started_and_what_it_said_is_kept() {
        let shell = |script: &str| {
            let mut lines = Vec::new();
            let ended = run_heard(Command::new("sh").args(["-c", script]), &mut |line| {
                lines.push(line.to_owned());
                Ok(())
            });
            (ended.unwrap(), lines)
        };
        let (done, lines) = shell("echo one; printf half; echo two >&2");
        assert!(done.is_right());
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("one\nhalf", "two\n")
        );
        assert_eq!(lines, ["one", "half"]);
        let (failed, _) = shell("echo error: no such thing >&2; exit 3");
        assert_eq!(failed.why(), "no such thing (exit status: 3)");

        begin(Duration::from_millis(300));
        let (ended, lines) = shell("sleep 600 & echo $!; printf '{\"half'; wait");
        assert_eq!((ended.is_right(), ended.cut), (false, Some(TIME)));
        assert_eq!(ended.why(), TIME);
        // A line that has not ended is none.
        let [grandchild] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(ended.stdout.ends_with("{\"half"));
        let state = || std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
        // The process that takes in orphans may leave it a zombie, which is dead too.
        let is_alive = || state().is_ok_and(|stat| !stat.contains(") Z "));
        let ends = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !is_alive()
        });
        assert!(ends, "the sleep of process {grandchild} goes on");

        // Nothing is begun any more.
        let (late, lines) = shell("echo late");
        assert_eq!(
            (late.status, late.cut, lines),
            (None, Some(TIME), Vec::new())
        );
    }

    #[test]
    fn an_error_of_the_listener_ends_the_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; exec sleep 600"]);
        let ended = run_heard(&mut command, &mut |line| anyhow::bail!("no {line}"));
        // The other test may have let the time of all programs run out.
        match ended {
            Ok(ended) => assert_eq!(ended.cut, Some(TIME)),
            Err(error) => assert_eq!(error.to_string(), "no one"),
        }
    }
}
