//! Kernels run on the processor, thread by thread in an order drawn from a seed: what is wrong with
//! their logic, their bounds or their barriers shows without a GPU. It says nothing about speed.
//!
//! The unchanged kernels and `machine.cpp` are compiled to a library by g++ and loaded. A barrier is
//! known by where it stands in the source, and any one can be switched off.

#[path = "../../../tests/emulated/compile.rs"]
mod compile;

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

use super::entry::{Launch, THREADS};
use super::text::{self, Barrier};

/// The emulated device.
pub(super) struct Emulator {
    run: Run,
    barriers: Vec<Barrier>,
    /// One launch at a time: threads, blocks and shared memory are global.
    running: Mutex<()>,
    _library: Library,
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
        let (source, barriers) = text::machine(include_str!("machine.cpp"));
        let library = compile::library("kernels", &source, &["-O2"])?;
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
