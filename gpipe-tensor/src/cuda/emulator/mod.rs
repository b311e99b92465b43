//! Kernels run on the processor, thread by thread in an order drawn from a seed: what is wrong with
//! their logic, their bounds or their barriers shows without a GPU. It says nothing about speed.
//!
//! The unchanged kernels and `machine.cpp` are compiled to a library by g++ and loaded. A barrier is
//! known by where it stands in the source, and any one can be switched off.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{env, fs};

use libloading::Library;

use super::entry::{Launch, THREADS};

/// The emulated device.
pub(super) struct Emulator {
    run: Run,
    barriers: Vec<Barrier>,
    /// One launch at a time: threads, blocks and shared memory are global.
    running: Mutex<()>,
    _library: Library,
}

/// A barrier of the kernels' source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    /// Counted from 1 in the order of the source.
    number: u32,
    /// The file and line of the kernel.
    pub place: String,
}

/// `emulate` of machine.cpp: runs a kernel, and gives what went wrong or null.
///
/// # Safety
/// The name ends in a zero, and there is a pointer to each argument of the kernel.
type Run = unsafe extern "C" fn(
    name: *const c_char,
    blocks: u32,
    threads: u32,
    shared: u32,
    args: *const *const c_void,
    seed: u64,
    without: u32,
) -> *const c_char;

impl Emulator {
    /// The emulator of this process, or why there is none.
    pub fn get() -> Result<&'static Self, String> {
        static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
        EMULATOR
            .get_or_init(Self::build)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn build() -> Result<Self, String> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err("the emulator switches stacks on x86-64 under Linux only".into());
        }
        let (source, barriers) = source();
        let library = compile(&source)?;
        // SAFETY: the library is the one just compiled; loading it runs no code of its own.
        let library = unsafe { Library::new(&library) }.map_err(|e| e.to_string())?;
        // SAFETY: `emulate` in machine.cpp has this signature.
        let run = *unsafe { library.get::<Run>(b"emulate\0") }.map_err(|e| e.to_string())?;
        Ok(Self {
            run,
            barriers,
            running: Mutex::new(()),
            _library: library,
        })
    }

    /// The barriers of all kernels.
    pub fn barriers(&self) -> &[Barrier] {
        &self.barriers
    }

    /// Runs a launch to its end, its threads in an order drawn from `seed`, with all barriers but
    /// one.
    ///
    /// # Errors
    /// What the device would not survive: threads that do not meet at a barrier, shared memory
    /// written beyond what was asked for, an unknown kernel.
    ///
    /// # Safety
    /// The pointers among the arguments are those of memory that the kernel may use.
    pub unsafe fn run(
        &self,
        launch: &Launch,
        seed: u64,
        without: Option<&Barrier>,
    ) -> Result<(), String> {
        let name = format!("{}\0", launch.form.name());
        let args: Vec<_> = launch.args.iter().map(|arg| arg.address()).collect();
        if launch.blocks == 0 {
            return Ok(());
        }
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the name ends in a zero, there is one argument for each parameter (the functions
        // that make launches take all of them), and the caller vouches for the pointers.
        let error = unsafe {
            (self.run)(
                name.as_ptr().cast(),
                launch.blocks,
                THREADS,
                launch.shared,
                args.as_ptr(),
                seed,
                without.map_or(0, |barrier| barrier.number),
            )
        };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: errors are texts that live as long as the library.
        let error = unsafe { CStr::from_ptr(error) };
        Err(format!("{launch}: {}", error.to_string_lossy()))
    }
}

/// The kernels between the two halves of the machine, and their barriers, each with its number.
fn source() -> (String, Vec<Barrier>) {
    let (head, tail) = include_str!("machine.cpp")
        .split_once("// KERNELS\n")
        .expect("machine.cpp says where the kernels go");
    let mut source = String::from(head);
    let mut barriers = Vec::new();
    let (mut file, mut line_number) = (String::new(), 0);
    for line in super::source().lines() {
        line_number += 1;
        if let Some(name) = line.strip_prefix("#line 1 ") {
            file = name.trim_matches('"').to_owned();
            line_number = 0;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("__syncthreads()") {
            barriers.push(Barrier {
                number: barriers.len() as u32 + 1,
                place: format!("{file}:{line_number}"),
            });
            let _ = write!(source, "{before}machine::barrier({})", barriers.len());
            rest = after;
        }
        source.push_str(rest);
        source.push('\n');
    }
    source.push_str("static const Kernel KERNELS[] = {\n");
    for entry in super::entries() {
        for form in entry.forms() {
            let name = form.name();
            let _ = writeln!(
                source,
                "{{\"{name}\", [](void* const* args) {{ call(gpipe::{name}, args); }}}},"
            );
        }
    }
    source.push_str("};\n");
    source.push_str(tail);
    (source, barriers)
}

/// Compiles the source unless an earlier run of the tests has done so.
fn compile(source: &str) -> Result<PathBuf, String> {
    const FLAGS: [&str; 7] = [
        "-std=c++17",
        "-Og",
        "-fPIC",
        "-shared",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-Wall",
    ];
    let mut hash = DefaultHasher::new();
    (source, FLAGS).hash(&mut hash);
    let folder = folder();
    let library = folder.join(format!("kernels-{:016x}.so", hash.finish()));
    if library.is_file() {
        return Ok(library);
    }
    let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(wrong)?;
    let unique = format!("{:016x}-{}", hash.finish(), std::process::id());
    let text = folder.join(format!("{unique}.cpp"));
    let built = folder.join(format!("{unique}.so"));
    fs::write(&text, source).map_err(wrong)?;
    let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
    let output = Command::new(&compiler)
        .args(FLAGS)
        .arg("-o")
        .args([&built, &text])
        .output()
        .map_err(|e| format!("cannot run {compiler}: {e}"))?;
    if !output.status.success() {
        // Not a missing tool but a fault of the kernels: a test that skipped it would hide it.
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&built, &library).map_err(wrong)?;
    let _ = fs::remove_file(&text);
    Ok(library)
}

/// Where compiled kernels are kept: beside the test that runs.
fn folder() -> PathBuf {
    let test = env::current_exe().unwrap_or_default();
    let folder = test.parent().unwrap_or(Path::new("."));
    folder.join("gpipe-emulator")
}
