//! Ranks that fail or are asked to stop at random steps: the job ends, says why, and goes on in another world to the
//! bits of a run without faults.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::job::{NO_SILENCE, Random, SILENCE, STEPS, Start, Task, WORLDS, process, saved, send};

/// What is done to a rank, and what is said of it: nothing where the launcher says it, or nothing is wrong.
const FAULTS: [(&str, Option<&str>); 8] = [
    ("KILL", None),
    ("STOP", Some("silent for")),
    ("TERM", None),
    ("USR1", None),
    // A clock that fails.
    ("panic", Some("panicked")),
    // A picture that cannot be read any more.
    ("error", Some(PICTURE)),
    // The one that rank 0 writes to.
    (
        "full disk",
        Some("was not saved, and none before it was changed"),
    ),
    // The next thread that starts panics, since it gets no stack.
    ("no memory", Some("memory")),
];

const PICTURE: &str = "pictures/b/7.png";

/// Threads of a rank, as patterns: a worker, that of messages, the first.
const THREADS: [&str; 3] = ["gpipe-[0-9]*", "gpipe-mpi", "gpipe"];

/// Where runs are: a small disk of memory, if this process may have one.
struct Place {
    folder: PathBuf,
    /// For what must not be on the full disk.
    outside: PathBuf,
    is_disk: bool,
    /// What panics.
    library: Option<PathBuf>,
}

impl Place {
    fn new(outside: &Path) -> Self {
        let folder = outside.join("disk");
        fs::create_dir(&folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=64m", "gpipe-test"])
            .arg(&folder);
        let library = outside.join("failing_clock.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
        compiler.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/worlds/failing_clock.c"
        ));
        let works =
            |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        Self {
            is_disk: works(&mut mount),
            library: works(&mut compiler).then_some(library),
            folder,
            outside: outside.to_owned(),
        }
    }

    fn fail(&self, kind: &str, process: u32) {
        match kind {
            "panic" => send("URG", process),
            "error" => {
                let whole = self.folder.join(PICTURE);
                fs::copy(&whole, self.outside.join("whole.png")).expect("a copy");
                fs::write(whole, "no picture").expect("a file");
            }
            "full disk" if self.is_disk => {
                let mut rest = fs::File::create(self.folder.join("rest")).expect("a file");
                let zeros = [0; 4096];
                while rest.write_all(&zeros).is_ok() {}
            }
            "full disk" => limit("--fsize=1000", process),
            "no memory" => limit("--as=1000000", process),
            signal => send(signal, process),
        }
    }

    /// Makes good what would fail again.
    fn mend(&self, kind: &str) {
        match kind {
            "error" => {
                let whole = self.outside.join("whole.png");
                fs::copy(whole, self.folder.join(PICTURE)).expect("a copy");
            }
            "full disk" if self.is_disk => {
                fs::remove_file(self.folder.join("rest")).expect("a file")
            }
            _ => {}
        }
    }
}

fn limit(what: &str, process: u32) {
    let mut limited = Command::new("prlimit");
    limited.args(["--pid", &process.to_string(), what]);
    assert!(limited.output().is_ok());
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_disk {
            // Lazily: a process that is left over may have files open.
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

/// A fault, and the seconds until the job has ended; `None` if it was over before.
fn fault(
    launcher: &Path,
    place: &Place,
    attempt: usize,
    [text, pictures]: [&Task; 2],
) -> Option<f64> {
    let run = place.folder.join("run");
    let said_at = place.outside.join("said");
    let (kind, said) = FAULTS[attempt % FAULTS.len()];
    let cause = match kind {
        "full disk" if place.is_disk => "No space left on device",
        "full disk" => "File too large",
        _ => "",
    };
    let task = if kind == "error" { pictures } else { text };
    let mut random = Random::new(attempt);
    let (ranks, of_world) = WORLDS[random.choose(WORLDS.len())];
    let victim = match kind {
        "full disk" => 0,
        _ => random.choose(ranks),
    };
    let at = 1 + random.choose(STEPS as usize / 2) as u64;
    let before = match (&place.library, kind) {
        (None, "panic") => return None,
        (Some(library), "panic") => vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
            format!(
                "GPIPE_CLOCKLESS={}",
                THREADS[attempt / FAULTS.len() % THREADS.len()]
            ),
        ],
        _ => Vec::new(),
    };
    let what = format!("{kind} of rank {victim} of {ranks} after step {at} {before:?}");
    let start = Start {
        launcher,
        options: &[],
        folder: &place.folder,
        said: &said_at,
        world: (ranks, of_world),
        new: Some(task),
        before: &before,
        silence: if kind == "STOP" { SILENCE } else { NO_SILENCE },
    };
    let mut job = start.job();
    while saved(&run) < at && job.is_running() {
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(random.choose(30) as u64));
    let victim = process(&place.folder, victim);
    if let Some(process) = victim {
        place.fail(kind, process);
    }
    let (code, seconds, text) = job.end(&what);
    let is_over = code.success();
    if victim.is_some() {
        place.mend(kind);
    }
    if ["TERM", "USR1"].contains(&kind) && !is_over {
        assert_eq!(code.code(), Some(130), "{what}: {text}");
    }
    if let (Some(said), false) = (said, is_over) {
        assert!(
            text.contains(said) && text.contains(cause) && text.contains("error: "),
            "{what}: {text}"
        );
    }
    assert!(
        is_over || saved(&run) >= at,
        "{what}: a checkpoint is lost: {text}"
    );
    // Another world goes on.
    let world = WORLDS[random.choose(WORLDS.len())];
    let resumed = Start {
        world,
        new: None,
        before: &[],
        silence: NO_SILENCE,
        ..start
    };
    let (code, _, text) = resumed.job().end(&what);
    assert!(code.success(), "{what}, resumed: {text}");
    assert!(task.is_equal(&run), "{what}: other bits");
    fs::remove_dir_all(&run).expect("a run");
    victim.filter(|_| !is_over).map(|_| seconds)
}

#[test]
fn a_rank_that_is_lost_ends_the_job_and_another_world_goes_on() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        println!("no launcher: GPIPE_MPIRUN names none");
        return;
    };
    let each = if env::var_os("GPIPE_EXAM").is_some() {
        20
    } else {
        1
    };
    let outside = tempfile::tempdir().expect("a folder");
    let place = Place::new(&outside.path().canonicalize().expect("a folder"));
    let (text, pictures) = (Task::text(&place.folder), Task::pictures(&place.folder));
    let mut tried = 0;
    for launcher in env::split_paths(&launchers) {
        let mut found = [(0, 0.0_f64); FAULTS.len()];
        for attempt in 0..each * FAULTS.len() {
            if let Some(seconds) = fault(&launcher, &place, attempt, [&text, &pictures]) {
                let (count, longest) = &mut found[attempt % FAULTS.len()];
                (*count, *longest) = (*count + 1, longest.max(seconds));
                tried += 1;
            }
        }
        for ((kind, _), (count, seconds)) in FAULTS.iter().zip(found) {
            println!(
                "{}: {kind}: {count} times, at most {seconds:.1} s",
                launcher.display()
            );
        }
    }
    println!("exam R2 {tried}/{tried}");
}
