//! The emulated host: its libraries under the names that the program looks for, and programs that run
//! on it.

use crate::compile;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Names of each library: what a toolkit installs, and what a driver or a wheel does.
pub const LIBRARIES: [[&str; 2]; 4] = [
    ["libcuda.so", "libcuda.so.1"],
    ["libcublas.so", "libcublas.so.13"],
    ["libnvrtc.so", "libnvrtc.so.13"],
    ["libcublasLt.so", "libcublasLt.so.13"],
];

/// What a host with NCCL has beside [`LIBRARIES`]: the names of NVIDIA's wheels and packages.
pub const NCCL: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// How long a program may take: one that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(300);

/// A host whose GPUs are emulated.
pub struct Host {
    library: PathBuf,
}

/// What became of a program.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code, unless a signal ended it, or it hung.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// What it did that no program may.
    pub faults: Vec<String>,
}

impl Outcome {
    /// Whether it ended well, and did nothing that it may not.
    pub fn is_right(&self) -> bool {
        self.code == Some(0) && self.faults.is_empty()
    }
}

/// The emulated host's C++, its parts each before those that use it.
fn source() -> String {
    macro_rules! parts {
        ($($name:literal),*) => {
            [$(($name, include_str!(concat!("../../src/cuda/emulator/host/", $name)))),*]
        };
    }
    let parts = parts![
        "settings.cpp",
        "written.cpp",
        "memory.cpp",
        "queue.cpp",
        "devices.cpp",
        "allocation.cpp",
        "streams.cpp",
        "nccl.cpp",
        "kernels.cpp",
        "graphs.cpp",
        "blas.cpp",
        "blas_lt.cpp"
    ];
    let machine = include_str!("../../src/cuda/emulator/machine.cpp");
    gpipe_tensor::emulated::source(machine, &parts)
}

impl Host {
    /// The host, or none after saying why.
    pub fn get() -> Option<&'static Self> {
        static HOST: OnceLock<Option<Host>> = OnceLock::new();
        Self::compiled(&HOST, "host", &["-O2"])
    }

    /// The same, where kernels and products that read what nobody wrote are faults: every access calls a function. The library of
    /// the sanitizer is not linked, since those functions are the host's.
    pub fn with_watched_reads() -> Option<&'static Self> {
        static HOST: OnceLock<Option<Host>> = OnceLock::new();
        let flags = ["-O1", "-g1", "-fsanitize=thread", "-nodefaultlibs"];
        let libraries = ["-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lc"];
        Self::compiled(&HOST, "watched-host", &[&flags[..], &libraries].concat())
    }

    fn compiled(
        host: &'static OnceLock<Option<Self>>,
        name: &str,
        flags: &[&str],
    ) -> Option<&'static Self> {
        host.get_or_init(|| {
            if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
                println!("no emulated GPUs: they are for x86-64 under Linux only");
                return None;
            }
            match compile::library(name, &source(), flags) {
                Ok(library) => Some(Host { library }),
                Err(why) => {
                    println!("no emulated GPUs: {why}");
                    None
                }
            }
        })
        .as_ref()
    }

    /// A folder that holds these libraries.
    pub fn links(&self, libraries: &[[&str; 2]]) -> io::Result<PathBuf> {
        let names: Vec<&str> = libraries.iter().map(|names| names[0]).collect();
        let mut folder = self.library.clone();
        folder.set_extension(format!("with-{}", names.join("-")));
        fs::create_dir_all(&folder)?;
        // Relative, so that the target folder may be moved.
        let library = Path::new("..").join(self.library.file_name().unwrap_or_default());
        for name in libraries.iter().flatten() {
            match std::os::unix::fs::symlink(&library, folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(folder)
    }

    /// Runs a program to its end, with settings as in settings.cpp.
    pub fn run(&self, program: &mut Command, settings: &str) -> Outcome {
        self.run_with(&LIBRARIES, program, settings)
    }

    /// The same on a host with NCCL.
    pub fn run_with_nccl(&self, program: &mut Command, settings: &str) -> Outcome {
        let [cuda, blas, nvrtc, lt] = LIBRARIES;
        self.run_with(&[cuda, blas, nvrtc, lt, NCCL], program, settings)
    }

    /// The same where only some of the libraries are there.
    pub fn run_with(
        &self,
        libraries: &[[&str; 2]],
        program: &mut Command,
        settings: &str,
    ) -> Outcome {
        let links = self.links(libraries).expect("links beside the library");
        self.run_in(&links, program, settings)
    }

    /// The same with the libraries of a folder.
    pub fn run_in(&self, links: &Path, program: &mut Command, settings: &str) -> Outcome {
        let logs = self.logs();
        let settings = format!("{settings} faults={}", logs.join("faults").display());
        let file = |name: &str| fs::File::create(logs.join(name)).expect("a file of its own");
        let child = program
            .env("LD_LIBRARY_PATH", links)
            .env("EMULATED_GPU", settings)
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn();
        let status = end_of(child.expect("the program can be run"));
        let text = |name: &str| {
            let bytes = fs::read(logs.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let outcome = Outcome {
            code: status.code(),
            stdout: text("stdout"),
            stderr: text("stderr"),
            faults: text("faults").lines().map(str::to_owned).collect(),
        };
        let _ = fs::remove_dir_all(logs);
        outcome
    }

    /// A new folder for what one program says.
    fn logs(&self) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut folder = self.library.clone();
        folder.set_extension(format!("logs-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder beside the library");
        folder
    }
}

/// Waits for a program, and ends one that hangs.
fn end_of(mut child: Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the program was started") {
            return status;
        }
        if start.elapsed() > LONGEST {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
}
