//! Ranks that are killed, stopped, asked to stop, or that cannot write or get no memory any more, at random steps: the job
//! ends, says why, and goes on in another world to the bits of a run without faults.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::launched;

pub const STEPS: u64 = 60;
/// What no job may take to end after a fault.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Worlds that change no bit: ranks, and flags.
const WORLDS: [(usize, &[&str]); 4] = [
    (4, &["--replicas", "2", "--devices", "cpu"]),
    (2, &["--replicas", "1", "--devices", "cpu*2"]),
    (2, &["--replicas", "2", "--devices", "cpu*2", "--zero", "1"]),
    (3, &["--replicas", "1", "--devices", "cpu"]),
];

/// What is done to a rank.
struct Fault {
    name: &'static str,
    act: Act,
    /// What is said of it: nothing where the launcher says it, or nothing is wrong.
    said: Option<&'static str>,
    /// Times that it is done with each launcher, in full.
    times: usize,
}

enum Act {
    Signal(&'static str),
    /// A limit of `prlimit`, of rank 0 if that alone feels it.
    Limit(&'static str, Option<usize>),
}

/// A step is saved while the next one is made, so most faults come while a checkpoint is written.
const FAULTS: [Fault; 6] = [
    Fault {
        name: "killed",
        act: Act::Signal("KILL"),
        said: None,
        times: 100,
    },
    Fault {
        name: "stopped",
        act: Act::Signal("STOP"),
        said: Some("silent for"),
        times: 20,
    },
    Fault {
        name: "asked to stop by SIGTERM",
        act: Act::Signal("TERM"),
        said: None,
        times: 20,
    },
    Fault {
        name: "asked to stop by SIGUSR1",
        act: Act::Signal("USR1"),
        said: None,
        times: 20,
    },
    Fault {
        name: "error: no room for files on rank 0",
        act: Act::Limit("--fsize=1000", Some(0)),
        said: Some("was not saved; those before it stand"),
        times: 20,
    },
    // The next thread that starts panics, since it gets no stack.
    Fault {
        name: "panic: no memory",
        act: Act::Limit("--as=1000000", None),
        said: Some("memory"),
        times: 20,
    },
];

pub fn flags(out: &str) -> Vec<String> {
    let steps = STEPS.to_string();
    let flags = [
        "--set",
        "model.width=32",
        "--set",
        "model.blocks=3",
        "--seq-len",
        "16",
        "--batch-size",
        "8",
        "--micro-batches",
        "4",
        "--groups",
        "2",
        "--threads",
        "1",
        "--lr-schedule",
        "constant",
        "--save-every",
        "1",
        "--steps",
        &steps,
        "--out",
        out,
    ];
    flags.map(str::to_owned).into()
}

/// The newest checkpoint of a run that a resume may take.
pub fn saved(run: &Path) -> u64 {
    let folders = fs::read_dir(run.join("checkpoints")).into_iter().flatten();
    let steps = folders.filter_map(|folder| {
        let name = folder.ok()?.file_name().into_string().ok()?;
        name.strip_prefix("step-")?.parse().ok()
    });
    steps.max().unwrap_or(0)
}

/// The processes of a job, by rank.
pub fn processes(folder: &Path) -> Vec<(usize, u32)> {
    let all = fs::read_dir("/proc").into_iter().flatten();
    let ranks = all.filter_map(|entry| {
        let at = entry.ok()?.path();
        let is_here = fs::read_link(at.join("cwd")).ok()? == folder;
        let program = fs::read_link(at.join("exe")).ok()?;
        if !is_here || program != Path::new(env!("CARGO_BIN_EXE_gpipe")) {
            return None;
        }
        let variables = fs::read(at.join("environ")).ok()?;
        let rank = variables.split(|&byte| byte == 0).find_map(|variable| {
            let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
            ["OMPI_COMM_WORLD_RANK", "PMI_RANK"]
                .contains(&name)
                .then(|| value.parse().ok())?
        })?;
        Some((rank, at.file_name()?.to_str()?.parse().ok()?))
    });
    ranks.collect()
}

pub fn model(run: &Path) -> Vec<u8> {
    fs::read(run.join(format!(
        "checkpoints/step-{STEPS:08}/model/model.safetensors"
    )))
    .expect("a model")
}

/// A fault, and the seconds until the job has ended; `None` if it was over before.
fn fails(
    launcher: &Path,
    folder: &Path,
    fault: &Fault,
    attempt: usize,
    expected: &[u8],
) -> Option<f64> {
    let run: PathBuf = folder.join("run");
    let name = fault.name;
    let mut random = (attempt + 1_000 * name.len()).wrapping_mul(2_654_435_761) >> 7;
    let mut choose = |count: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % count
    };
    let (ranks, of_world) = WORLDS[choose(WORLDS.len())];
    let victim = choose(ranks);
    let victim = match fault.act {
        Act::Limit(_, Some(victim)) => victim,
        _ => victim,
    };
    let at = 1 + choose(STEPS as usize / 2) as u64;
    let mut command = launched(launcher, ranks, &[]);
    command
        .current_dir(folder)
        .arg("train")
        .args(flags("run"))
        .args(of_world);
    command.args(["--overwrite", "--mpi-timeout", "3", "-q"]);
    let errors = fs::File::create(folder.join("said")).expect("a file");
    command.stdout(Stdio::null()).stderr(errors);
    let mut job = command.spawn().expect("a launcher");
    while saved(&run) < at && job.try_wait().expect("a job").is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(choose(30) as u64));
    let processes = processes(folder);
    let victim = processes.iter().find(|(rank, _)| *rank == victim);
    if let Some((_, process)) = victim {
        let process = process.to_string();
        let mut command = match fault.act {
            Act::Signal(signal) => {
                let mut kill = Command::new("kill");
                kill.arg(format!("-{signal}")).arg(process);
                kill
            }
            Act::Limit(limit, _) => {
                let mut limited = Command::new("prlimit");
                limited.args(["--pid", &process, limit]);
                limited
            }
        };
        assert!(command.stderr(Stdio::null()).status().is_ok(), "{name}");
    }
    let since = Instant::now();
    let code = loop {
        if let Some(code) = job.try_wait().expect("a job") {
            break code;
        }
        assert!(
            since.elapsed() < LIMIT,
            "{name} of {victim:?} in {ranks} ranks: no end"
        );
        thread::sleep(Duration::from_millis(5));
    };
    let seconds = since.elapsed().as_secs_f64();
    let text = fs::read_to_string(folder.join("said")).unwrap_or_default();
    let is_over = code.success();
    if let (Some(said), false) = (fault.said, is_over) {
        assert!(text.contains(said), "{name} of {victim:?}: {text}");
    }
    assert!(
        is_over || saved(&run) >= at,
        "{name}: a checkpoint is lost: {text}"
    );
    // Another world goes on.
    let (ranks, of_world) = WORLDS[choose(WORLDS.len())];
    let mut command = launched(launcher, ranks, &[]);
    command
        .current_dir(folder)
        .args(["train", "--resume", "run", "-q"])
        .args(of_world);
    let output = command.output().expect("a launcher");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}, resumed: {text}");
    assert!(model(&run) == expected, "{name}: other bits");
    fs::remove_dir_all(&run).expect("a run");
    victim.filter(|_| !is_over).map(|_| seconds)
}

#[test]
fn a_rank_that_is_lost_ends_the_job_and_another_world_goes_on() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        println!("no launcher: GPIPE_MPIRUN names none");
        return;
    };
    let is_exam = env::var_os("GPIPE_EXAM").is_some();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let mut whole = Command::new(env!("CARGO_BIN_EXE_gpipe"));
    whole
        .current_dir(&folder)
        .arg("train")
        .args(flags("whole"))
        .args(["--stages", "2", "-q"]);
    assert!(whole.status().expect("a run").success());
    let expected = model(&folder.join("whole"));
    let mut tried = 0;
    for launcher in env::split_paths(&launchers) {
        for fault in &FAULTS {
            let times = if is_exam { fault.times } else { 1 };
            let made = (0..times)
                .filter_map(|attempt| fails(&launcher, &folder, fault, attempt, &expected));
            let made: Vec<f64> = made.collect();
            let longest = made.iter().copied().fold(0.0, f64::max);
            tried += made.len();
            println!(
                "{}: {}: {} times, over after at most {longest:.1} s",
                launcher.display(),
                fault.name,
                made.len()
            );
        }
    }
    println!("exam R2 {tried}/{tried}");
}
