//! NCCL: the library, sought when it is first asked for, and the few calls of it that pass memory of a GPU to the
//! GPU of another process. Sums stay this crate's own: no collective call is made.
//!
//! The bindings of `cudarc` look for `libnccl.so` alone, a name that neither NVIDIA's wheels nor its packages for
//! programs have; hence a table of its own.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::PathBuf;

use cudarc::driver::sys::CUstream;
use libloading::Library;

use super::{builtins, probe};
use crate::{Error, Result};

/// A communicator, which this process never looks into.
pub(super) enum Opaque {}
/// NCCL's name for a communicator.
pub(super) type RawComm = *mut Opaque;

/// `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawId([u8; UNIQUE_ID_BYTES]);

/// Bytes of the name under which the two ends of a channel find each other.
pub const UNIQUE_ID_BYTES: usize = 128;

/// `ncclConfig_t` as of NCCL 2.14, by which later versions know how much of theirs is given.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

const MAGIC: c_uint = 0xcafe_beef;
/// NCCL 2.14, the oldest with calls that do not block: 10000 times major, 100 times minor, patch.
const OLDEST: c_int = 21_400;

/// `ncclUint8`.
const BYTES: c_int = 1;
const SUCCESS: c_int = 0;
/// `ncclInProgress`: the call goes on in a thread of NCCL.
pub(super) const IN_PROGRESS: c_int = 7;

macro_rules! calls {
    ($($field:ident: $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions, of a library that is never closed.
        #[derive(Clone, Copy)]
        struct Calls {
            // SAFETY: each call says what it needs; the types are those of nccl.h since 2.14.
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Calls {
            /// Looks all functions up; the error names the one that is missing.
            fn of(library: &Library) -> std::result::Result<Self, String> {
                Ok(Self {
                    $($field: {
                        let name = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the types are those of nccl.h since 2.14.
                        let found = unsafe { library.get(name) };
                        *found.map_err(|_| format!("it has no {}", $symbol))?
                    },)*
                })
            }
        }
    };
}

calls! {
    get_version: "ncclGetVersion" (*mut c_int) -> c_int;
    get_unique_id: "ncclGetUniqueId" (*mut RawId) -> c_int;
    init: "ncclCommInitRankConfig" (*mut RawComm, c_int, RawId, c_int, *mut Config) -> c_int;
    async_error: "ncclCommGetAsyncError" (RawComm, *mut c_int) -> c_int;
    abort: "ncclCommAbort" (RawComm) -> c_int;
    send: "ncclSend" (*const c_void, usize, c_int, c_int, RawComm, CUstream) -> c_int;
    receive: "ncclRecv" (*mut c_void, usize, c_int, c_int, RawComm, CUstream) -> c_int;
    error_string: "ncclGetErrorString" (c_int) -> *const c_char;
    last_error: "ncclGetLastError" (RawComm) -> *const c_char;
}

/// The NCCL of this process.
#[derive(Clone, Copy)]
pub struct Nccl {
    calls: Calls,
    version: c_int,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Nccl {
    /// Looks for `libnccl.so.2` on the loader's path, and then beside the other libraries of NVIDIA's wheels.
    ///
    /// # Errors
    /// What is missing, in one line.
    pub fn find() -> std::result::Result<Self, String> {
        // NVRTC is found with it.
        probe::find()?;
        let beside = builtins::folder_of_nvrtc();
        let beside = beside.map(|folder| folder.join("../../nccl/lib/libnccl.so.2"));
        let names: [PathBuf; 2] = ["libnccl.so.2".into(), "libnccl.so".into()];
        let mut candidates = names.into_iter().chain(beside);
        // SAFETY: the library is NCCL by its name; its initializers alone run.
        let library = candidates.find_map(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or("no NCCL (libnccl.so.2)")?;
        let calls = Calls::of(&library).map_err(|missing| format!("NCCL is too old: {missing}"))?;
        // Its threads outlive every communicator.
        std::mem::forget(library);
        let mut found = Self { calls, version: 0 };
        let mut version = 0;
        // SAFETY: the call writes one number.
        let status = unsafe { (calls.get_version)(&raw mut version) };
        found
            .check(status, "ncclGetVersion", std::ptr::null_mut())
            .map_err(|error| error.to_string())?;
        found.version = version;
        match version < OLDEST {
            true => Err(format!("NCCL {} is older than 2.14", found.version())),
            false => Ok(found),
        }
    }

    /// Its version, such as `2.27.3`.
    pub fn version(&self) -> String {
        let version = self.version;
        format!(
            "{}.{}.{}",
            version / 10_000,
            version % 10_000 / 100,
            version % 100
        )
    }

    /// A name under which the two ends of one channel find each other. This process answers for it until both have.
    ///
    /// # Errors
    /// [`Error::Cuda`] if NCCL finds no network.
    pub fn unique_id(&self) -> Result<[u8; UNIQUE_ID_BYTES]> {
        let mut id = RawId([0; UNIQUE_ID_BYTES]);
        // SAFETY: the call writes one name.
        let status = unsafe { (self.calls.get_unique_id)(&raw mut id) };
        self.check(status, "ncclGetUniqueId", std::ptr::null_mut())?;
        Ok(id.0)
    }

    /// Begins a communicator of two for the GPU whose context is the thread's; returns at once. It is rank `rank`.
    pub(super) fn begin(&self, id: &[u8; UNIQUE_ID_BYTES], rank: c_int) -> Result<RawComm> {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: OLDEST as c_uint,
            blocking: 0,
        };
        let (mut raw, ranks) = (std::ptr::null_mut(), 2);
        // SAFETY: the call reads the configuration, as large as it says, before it answers, and writes one name.
        let status =
            unsafe { (self.calls.init)(&raw mut raw, ranks, RawId(*id), rank, &raw mut config) };
        match status {
            IN_PROGRESS => Ok(raw),
            status => self
                .check(status, "ncclCommInitRankConfig", raw)
                .map(|()| raw),
        }
    }

    /// The state of a communicator: whether its calls so far are made, or are still being made.
    ///
    /// # Safety
    /// The communicator was begun and not aborted.
    pub(super) unsafe fn is_settled(&self, comm: RawComm) -> Result<bool> {
        let mut status = SUCCESS;
        // SAFETY: the caller vouches for the communicator; the call writes one number.
        let asked = unsafe { (self.calls.async_error)(comm, &raw mut status) };
        self.check(asked, "ncclCommGetAsyncError", comm)?;
        match status {
            IN_PROGRESS => Ok(false),
            status => self
                .check(status, "ncclCommGetAsyncError", comm)
                .map(|()| true),
        }
    }

    /// Asks a communicator to send bytes to its other end, behind the work of a stream.
    ///
    /// # Safety
    /// The communicator is settled and of the thread's context, as the stream is; as many bytes begin at `from`, which
    /// stay as they are until the stream has done this.
    pub(super) unsafe fn send(
        &self,
        comm: RawComm,
        peer: c_int,
        (from, bytes): (u64, usize),
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for all of it.
        let status =
            unsafe { (self.calls.send)(from as *const c_void, bytes, BYTES, peer, comm, stream) };
        self.check_begun(status, "ncclSend", comm)
    }

    /// Asks a communicator to receive bytes of its other end, behind the work of a stream.
    ///
    /// # Safety
    /// As [`send`](Self::send); nothing else uses the memory until the stream has done this.
    pub(super) unsafe fn receive(
        &self,
        comm: RawComm,
        peer: c_int,
        (to, bytes): (u64, usize),
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for all of it.
        let status =
            unsafe { (self.calls.receive)(to as *mut c_void, bytes, BYTES, peer, comm, stream) };
        self.check_begun(status, "ncclRecv", comm)
    }

    /// Ends a communicator: whatever its GPU still does for it ends too.
    ///
    /// # Safety
    /// The communicator was begun; nothing uses it any more.
    pub(super) unsafe fn abort(&self, comm: RawComm) {
        // SAFETY: the caller vouches for the communicator. There is nobody to tell of an error.
        let _ended = unsafe { (self.calls.abort)(comm) };
    }

    fn check_begun(&self, status: c_int, call: &'static str, comm: RawComm) -> Result<()> {
        match status {
            IN_PROGRESS => Ok(()),
            status => self.check(status, call, comm),
        }
    }

    /// `Ok` for success, else the error of `call`, with what NCCL says of it. `comm` may be null.
    fn check(&self, status: c_int, call: &'static str, comm: RawComm) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: NCCL's texts end in zeros, and live until the next error.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .trim()
                .replace('\n', "; "),
        };
        // SAFETY: the calls return texts; the second takes any communicator that is alive, or none.
        let (what, why) = unsafe {
            (
                text((self.calls.error_string)(status)),
                text((self.calls.last_error)(comm)),
            )
        };
        let message = match why.is_empty() {
            true => what,
            false => format!("{what}: {why}"),
        };
        Err(Error::Cuda { call, message })
    }
}
