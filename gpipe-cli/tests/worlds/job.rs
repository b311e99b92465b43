//! A training run over ranks that is disturbed: what it learns, its worlds, processes and checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::launched;
use super::tensors::{ALL, tensors};

pub const STEPS: u64 = 60;

/// What no job may take to end after a fault.
const LIMIT: Duration = Duration::from_secs(60);

/// Seconds after which a silent rank is lost: where ranks are silenced, and where they are not, more than a busy machine
/// keeps one from its processor.
pub const SILENCE: u32 = 3;
pub const NO_SILENCE: u32 = 20;

/// Worlds that change no bit: ranks, and flags.
pub const WORLDS: [(usize, &[&str]); 4] = [
    (4, &["--replicas", "2", "--devices", "cpu"]),
    (2, &["--replicas", "1", "--devices", "cpu*2"]),
    (2, &["--replicas", "2", "--devices", "cpu*2", "--zero", "1"]),
    (3, &["--replicas", "1", "--devices", "cpu"]),
];

const TEXT: &[&str] = &[
    "--set",
    "model.width=32",
    "--set",
    "model.blocks=3",
    "--seq-len",
    "16",
];
const PICTURES: &[&str] = &[
    "--model",
    "convnet:4,4,4",
    "--data",
    "pictures",
    "--image-size",
    "8",
];

/// A source of equal choices.
pub struct Random(usize);

impl Random {
    pub fn new(seed: usize) -> Self {
        Self(seed.wrapping_mul(2_654_435_761) >> 7)
    }

    pub fn choose(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

/// What is learned in a folder, and the model and optimizer states of a run without faults.
pub struct Task {
    flags: &'static [&'static str],
    expected: BTreeMap<String, Vec<u32>>,
}

impl Task {
    pub fn text(folder: &Path) -> Self {
        Self::expected(TEXT, folder)
    }

    /// Pictures in the folder `pictures`, read when they are drawn.
    pub fn pictures(folder: &Path) -> Self {
        for (number, class) in ["pictures/a", "pictures/b"].into_iter().enumerate() {
            fs::create_dir_all(folder.join(class)).expect("a folder");
            for picture in 0..20_u8 {
                let shade = |x, y| image::Rgb([x as u8 * picture, y as u8 * 9, 200 * number as u8]);
                let file = folder.join(format!("{class}/{picture}.png"));
                let picture = image::RgbImage::from_fn(8, 8, shade);
                picture.save(file).expect("a picture");
            }
        }
        Self::expected(PICTURES, folder)
    }

    fn expected(flags: &'static [&'static str], folder: &Path) -> Self {
        let mut task = Self {
            flags,
            expected: BTreeMap::new(),
        };
        let mut whole = Command::new(env!("CARGO_BIN_EXE_gpipe"));
        whole.current_dir(folder).args(task.flags("whole"));
        assert!(
            whole
                .args(["--stages", "2"])
                .status()
                .expect("a run")
                .success()
        );
        task.expected = model(&folder.join("whole"));
        task
    }

    fn flags(&self, out: &str) -> Vec<String> {
        let steps = STEPS.to_string();
        let all = [
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
            "--overwrite",
        ];
        let all = ["train", "-q"].iter().chain(self.flags).chain(&all);
        all.map(|&flag| flag.to_owned()).collect()
    }

    /// Whether a finished run has the bits of one without faults.
    pub fn is_equal(&self, run: &Path) -> bool {
        model(run) == self.expected
    }
}

fn model(run: &Path) -> BTreeMap<String, Vec<u32>> {
    tensors(&run.join(format!("checkpoints/step-{STEPS:08}")), ALL)
}

/// A run over ranks, and where its errors go.
pub struct Job {
    process: Child,
    said: std::path::PathBuf,
}

/// What is started.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    pub launcher: &'a Path,
    /// Options of the launcher.
    pub options: &'a [String],
    /// Where the run `run` is, or begins.
    pub folder: &'a Path,
    /// Where errors go, and shared memory beside them.
    pub said: &'a Path,
    /// Ranks, and flags.
    pub world: (usize, &'a [&'a str]),
    /// A new run; else it goes on.
    pub new: Option<&'a Task>,
    /// A command that starts the program.
    pub before: &'a [String],
    /// Seconds after which a rank that is silent is lost.
    pub silence: u32,
}

impl Start<'_> {
    pub fn job(self) -> Job {
        let (ranks, of_world) = self.world;
        let near = self.said.parent().expect("a folder");
        let mut command = launched(self.launcher, ranks, near, self.options, self.before);
        command.current_dir(self.folder);
        match self.new {
            Some(task) => command.args(task.flags("run")),
            None => command.args(["train", "-q", "--resume", "run"]),
        };
        let silence = self.silence.to_string();
        command.args(of_world).args(["--mpi-timeout", &silence]);
        let errors = fs::File::create(self.said).expect("a file");
        command.stdout(Stdio::null()).stderr(errors);
        Job {
            process: command.spawn().expect("a launcher"),
            said: self.said.to_owned(),
        }
    }
}

impl Job {
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("a job").is_none()
    }

    /// The end: how, after how many seconds, and what was said.
    pub fn end(&mut self, what: &str) -> (ExitStatus, f64, String) {
        let since = Instant::now();
        let code = loop {
            if let Some(code) = self.process.try_wait().expect("a job") {
                break code;
            }
            if since.elapsed() > LIMIT {
                // Killed launchers take their ranks along.
                let _ = self.process.kill();
                panic!("{what}: no end: {}", self.said());
            }
            thread::sleep(Duration::from_millis(5));
        };
        (code, since.elapsed().as_secs_f64(), self.said())
    }

    /// The end of all ranks, where the launcher may not come to its own: seconds, and what was said.
    pub fn end_of_ranks(&mut self, folder: &Path, what: &str) -> (f64, String) {
        let since = Instant::now();
        while !processes(folder).is_empty() {
            assert!(since.elapsed() < LIMIT, "{what}: no end: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
        let seconds = since.elapsed().as_secs_f64();
        // It passes on what they said.
        let ended = Instant::now();
        while self.is_running() && ended.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        (seconds, self.said())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

/// The newest checkpoint of a run that a resume may take.
pub fn saved(run: &Path) -> u64 {
    let steps = checkpoints(run).filter_map(|name| name.strip_prefix("step-")?.parse().ok());
    steps.max().unwrap_or(0)
}

/// Whether a checkpoint is being written.
pub fn is_saving(run: &Path) -> bool {
    checkpoints(run).any(|name| name.starts_with(".partial"))
}

fn checkpoints(run: &Path) -> impl Iterator<Item = String> {
    let folders = fs::read_dir(run.join("checkpoints")).into_iter().flatten();
    folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok())
}

/// The process of a rank.
pub fn process(folder: &Path, wanted: usize) -> Option<u32> {
    let of_rank = processes(folder)
        .into_iter()
        .find(|(rank, _)| *rank == wanted);
    of_rank.map(|(_, process)| process)
}

/// The processes of a job, by rank.
fn processes(folder: &Path) -> Vec<(usize, u32)> {
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
            let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
            names.contains(&name).then(|| value.parse().ok())?
        })?;
        Some((rank, at.file_name()?.to_str()?.parse().ok()?))
    });
    ranks.collect()
}

/// Sends a signal by its name.
pub fn send(signal: &str, process: u32) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &process.to_string()])
        .output();
    assert!(sent.is_ok());
}
