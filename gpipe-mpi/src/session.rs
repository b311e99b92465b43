//! A started MPI: its calls, the same for every dialect. All calls come from one thread.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::path::Path;
use std::ptr::null_mut;

use libloading::Library;

use crate::api::{Constants, Functions, Handle};
use crate::error::Error;

/// A call under way. The caller keeps its buffer until [`Calls::test`] says that it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request(pub(crate) u64);

/// Bytes of the name of a host.
pub(crate) const NAME: usize = 256;

/// The part of MPI that is used. Counts are at most `c_int::MAX`.
pub(crate) trait Calls {
    fn rank(&self) -> usize;
    fn ranks(&self) -> usize;
    /// # Safety
    /// The bytes stay where they are, unchanged, until the request is over.
    unsafe fn send(&mut self, bytes: &[u8], to: usize, tag: i32) -> Result<Request, Error>;
    /// # Safety
    /// The bytes stay where they are, and nobody else touches them, until the request is over.
    unsafe fn receive(&mut self, bytes: &mut [u8], from: usize, tag: i32)
    -> Result<Request, Error>;
    /// Whether a call is over.
    fn test(&mut self, request: &mut Request) -> Result<bool, Error>;
    fn barrier(&mut self) -> Result<Request, Error>;
    /// Gives up a receive.
    fn cancel(&mut self, request: &mut Request) -> Result<(), Error>;
    /// The host of every rank.
    fn hosts(&mut self) -> Result<Vec<String>, Error>;
    fn finalize(&mut self) -> Result<(), Error>;
    /// Ends all ranks; may return.
    fn abort(&mut self, code: i32);
}

/// A started library.
pub(crate) struct Session<H: Handle> {
    functions: Functions<H>,
    constants: Constants<H>,
    rank: usize,
    ranks: usize,
    /// The functions are in it. It is never closed: threads of it, and what it does when the process ends, would be in
    /// memory that is gone.
    _library: ManuallyDrop<Library>,
}

impl<H: Handle> Session<H> {
    /// Starts MPI on this thread.
    pub fn start(library: Library, constants: Constants<H>, path: &Path) -> Result<Self, Error> {
        let functions = Functions::load(&library).map_err(|message| {
            let library = path.display().to_string();
            // The loader names the file too.
            let own = message.strip_prefix(&format!("{library}: "));
            Error::Unfit {
                message: own.unwrap_or(&message).to_owned(),
                library,
            }
        })?;
        let mut this = Self {
            functions,
            constants,
            rank: 0,
            ranks: 1,
            _library: ManuallyDrop::new(library),
        };
        let (mut begun, mut level, mut rank, mut ranks) = (0, 0, 0, 0);
        let Constants {
            world,
            errors_return,
            serialized,
            ..
        } = constants;
        // SAFETY: MPI takes no arguments since version 2, and writes to the places it is given, which live
        // until the calls return.
        unsafe {
            let code = (this.functions.initialized)(&raw mut begun);
            this.check("MPI_Initialized", code)?;
            if begun != 0 {
                return Err(Error::Call {
                    call: "MPI_Init_thread",
                    message: "MPI starts once in a process: keep what was started first".to_owned(),
                });
            }
            let code =
                (this.functions.init_thread)(null_mut(), null_mut(), serialized, &raw mut level);
            this.check("MPI_Init_thread", code)?;
            // Errors come back instead of ending the process.
            let code = (this.functions.comm_set_errhandler)(world, errors_return);
            this.check("MPI_Comm_set_errhandler", code)?;
            let code = (this.functions.comm_rank)(world, &raw mut rank);
            this.check("MPI_Comm_rank", code)?;
            let code = (this.functions.comm_size)(world, &raw mut ranks);
            this.check("MPI_Comm_size", code)?;
        }
        this.rank = usize::try_from(rank).unwrap_or(0);
        this.ranks = usize::try_from(ranks).unwrap_or(1);
        Ok(this)
    }

    /// Waits until a call is over.
    fn wait(&mut self, request: &mut Request) -> Result<(), Error> {
        while !self.test(request)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // More than MPI_MAX_ERROR_STRING of every dialect.
        let (mut text, mut length) = (vec![0_u8; 8192], 0);
        // SAFETY: the text has room for the longest message, and both live until the call returns.
        unsafe {
            (self.functions.error_string)(code, text.as_mut_ptr().cast(), &raw mut length);
        }
        text.truncate(usize::try_from(length).unwrap_or(0));
        Err(Error::of_call(call, &text))
    }
}

/// Leaks a buffer if some call of it could not be begun or looked at: others may be under way in it.
pub(crate) fn keep<B, T>(buffer: B, calls: Result<T, Error>) -> Result<(B, T), Error> {
    match calls {
        Ok(calls) => Ok((buffer, calls)),
        Err(error) => {
            mem::forget(buffer);
            Err(error)
        }
    }
}

/// A request's place before MPI fills it in.
fn no_request<H: Handle>() -> H {
    H::from_bits(0)
}

impl<H: Handle> Calls for Session<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    // SAFETY: as in the trait.
    unsafe fn send(&mut self, bytes: &[u8], to: usize, tag: i32) -> Result<Request, Error> {
        let (count, to) = (bytes.len() as c_int, to as c_int);
        let Constants { world, byte, .. } = self.constants;
        let mut request = no_request();
        // SAFETY: the caller keeps the bytes.
        let code = unsafe {
            let bytes = bytes.as_ptr().cast();
            (self.functions.isend)(bytes, count, byte, to, tag, world, &raw mut request)
        };
        self.check("MPI_Isend", code)?;
        Ok(Request(request.to_bits()))
    }

    // SAFETY: as in the trait.
    unsafe fn receive(
        &mut self,
        bytes: &mut [u8],
        from: usize,
        tag: i32,
    ) -> Result<Request, Error> {
        let (count, from) = (bytes.len() as c_int, from as c_int);
        let Constants { world, byte, .. } = self.constants;
        let mut request = no_request();
        // SAFETY: the caller keeps the bytes for MPI alone.
        let code = unsafe {
            let bytes = bytes.as_mut_ptr().cast();
            (self.functions.irecv)(bytes, count, byte, from, tag, world, &raw mut request)
        };
        self.check("MPI_Irecv", code)?;
        Ok(Request(request.to_bits()))
    }

    fn test(&mut self, request: &mut Request) -> Result<bool, Error> {
        let (mut handle, mut is_over) = (H::from_bits(request.0), 0);
        let ignore = self.constants.status_ignore as *mut c_void;
        // SAFETY: the request is one of this library, or its null request after it was over.
        let code = unsafe { (self.functions.test)(&raw mut handle, &raw mut is_over, ignore) };
        self.check("MPI_Test", code)?;
        request.0 = handle.to_bits();
        Ok(is_over != 0)
    }

    fn barrier(&mut self) -> Result<Request, Error> {
        let mut request = no_request();
        // SAFETY: the place lives until the call returns.
        let code = unsafe { (self.functions.ibarrier)(self.constants.world, &raw mut request) };
        self.check("MPI_Ibarrier", code)?;
        Ok(Request(request.to_bits()))
    }

    fn cancel(&mut self, request: &mut Request) -> Result<(), Error> {
        let mut handle = H::from_bits(request.0);
        // SAFETY: the request is a receive of this library that is not over.
        let code = unsafe { (self.functions.cancel)(&raw mut handle) };
        self.check("MPI_Cancel", code)?;
        request.0 = handle.to_bits();
        self.wait(request)
    }

    fn hosts(&mut self) -> Result<Vec<String>, Error> {
        // The standard's longest name has 256 bytes.
        let (mut name, mut length) = (vec![0_u8; NAME], 0);
        // SAFETY: the name has room for the longest, and both live until the call returns.
        let code = unsafe {
            let name = name.as_mut_ptr().cast::<c_char>();
            (self.functions.get_processor_name)(name, &raw mut length)
        };
        self.check("MPI_Get_processor_name", code)?;
        let mut names = vec![0_u8; NAME * self.ranks];
        let Constants { world, byte, .. } = self.constants;
        let (count, mut request) = (NAME as c_int, no_request::<H>());
        // SAFETY: `names` has room for every rank's, and both live until the request is over, below.
        let code = unsafe {
            let (own, all) = (name.as_ptr().cast(), names.as_mut_ptr().cast());
            let request = &raw mut request;
            (self.functions.iallgather)(own, count, byte, all, count, byte, world, request)
        };
        self.check("MPI_Iallgather", code)?;
        let over = self.wait(&mut Request(request.to_bits()));
        let ((_, names), ()) = keep((name, names), over)?;
        let text = |name: &[u8]| {
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        Ok(names.chunks(NAME).map(text).collect())
    }

    fn finalize(&mut self) -> Result<(), Error> {
        // SAFETY: every request is over; this is the thread that started MPI.
        let code = unsafe { (self.functions.finalize)() };
        self.check("MPI_Finalize", code)
    }

    fn abort(&mut self, code: i32) {
        // SAFETY: MPI was started.
        unsafe {
            (self.functions.abort)(self.constants.world, code);
        }
    }
}
