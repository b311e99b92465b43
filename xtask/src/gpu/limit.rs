//! A time limit for the programs of a part: what has not ended by then is ended, and says so.

use std::fs::{self, File};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a part may take.
pub const PART: Duration = Duration::from_secs(9 * 60);

static END: Mutex<Option<Instant>> = Mutex::new(None);

/// Programs that are run from now on end within this time, all together.
pub fn begin(limit: Duration) {
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + limit);
}

/// Runs a program to its end or to that of the part.
///
/// # Errors
/// If it cannot be run. One that was ended has no exit code, and its last line says why.
pub fn output(command: &mut Command) -> anyhow::Result<Output> {
    let end = *END.lock().unwrap_or_else(PoisonError::into_inner);
    // Files, which take as much as a program says while nobody reads it.
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let [said, complained] = ["stdout", "stderr"].map(|name| folder.path().join(name));
    let mut child = command
        .stdout(File::create(&said)?)
        .stderr(File::create(&complained)?)
        .spawn()?;
    let mut ended = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !ended && end.is_some_and(|end| Instant::now() >= end) {
            ended = true;
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let mut output = Output {
        status,
        stdout: fs::read(said)?,
        stderr: fs::read(complained)?,
    };
    if ended {
        output
            .stderr
            .extend(b"\nended: the time of this part is up\n");
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_ended_and_what_it_said_is_kept() {
        let shell = |script: &str| output(Command::new("sh").args(["-c", script])).unwrap();
        let done = shell("echo one; echo two >&2");
        assert!(done.status.success());
        assert_eq!(
            (&done.stdout[..], &done.stderr[..]),
            (&b"one\n"[..], &b"two\n"[..])
        );
        begin(Duration::from_millis(300));
        let ended = shell("echo first; exec sleep 60");
        assert!(!ended.status.success());
        assert_eq!(ended.stdout, b"first\n");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(
            said.lines()
                .last()
                .unwrap()
                .contains("time of this part is up")
        );
    }
}
