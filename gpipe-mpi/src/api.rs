//! The functions of MPI that are used, and the constants of each dialect.

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

/// A handle: an `int` in MPICH's dialect, an address in the others.
pub(crate) trait Handle: Copy + Send + Sync + 'static {
    /// The handle in 64 bits.
    fn to_bits(self) -> u64;
    /// The handle of these bits.
    fn from_bits(bits: u64) -> Self;
}

impl Handle for c_int {
    fn to_bits(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    fn from_bits(bits: u64) -> Self {
        (bits as u32).cast_signed()
    }
}

impl Handle for usize {
    fn to_bits(self) -> u64 {
        self as u64
    }

    fn from_bits(bits: u64) -> Self {
        bits as usize
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// Functions of a library whose handles are `H`.
        pub(crate) struct Functions<H: Handle> {
            // SAFETY: the caller keeps to MPI's rules for each.
            $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            /// Looks up every function.
            pub fn load(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the types are those of the standard's C binding, with the handles of the
                        // dialect; the library lives as long as the process.
                        let found = unsafe { library.get($symbol) };
                        // The source names the function.
                        let said = |error: libloading::Error| {
                            let source = error.source().map(ToString::to_string);
                            source.unwrap_or_else(|| error.to_string())
                        };
                        *found.map_err(said)?
                    },)*
                })
            }
        }
    };
}

functions! {
    initialized = b"MPI_Initialized\0" (*mut c_int);
    init_thread = b"MPI_Init_thread\0"
        (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = b"MPI_Finalize\0" ();
    abort = b"MPI_Abort\0" (H, c_int);
    comm_rank = b"MPI_Comm_rank\0" (H, *mut c_int);
    comm_size = b"MPI_Comm_size\0" (H, *mut c_int);
    comm_set_errhandler = b"MPI_Comm_set_errhandler\0" (H, H);
    isend = b"MPI_Isend\0"
        (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = b"MPI_Irecv\0" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    test = b"MPI_Test\0" (*mut H, *mut c_int, *mut c_void);
    cancel = b"MPI_Cancel\0" (*mut H);
    ibarrier = b"MPI_Ibarrier\0" (H, *mut H);
    iallgather = b"MPI_Iallgather\0"
        (*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    error_string = b"MPI_Error_string\0" (c_int, *mut c_char, *mut c_int);
    get_processor_name = b"MPI_Get_processor_name\0" (*mut c_char, *mut c_int);
}

/// The constants of a dialect.
#[derive(Clone, Copy)]
pub(crate) struct Constants<H> {
    pub world: H,
    pub byte: H,
    pub errors_return: H,
    /// `MPI_STATUS_IGNORE`, an address.
    pub status_ignore: usize,
    /// `MPI_THREAD_SERIALIZED`.
    pub serialized: c_int,
}

/// The standard ABI of MPI 5 (chapter "Application Binary Interface"): handles are small addresses.
pub(crate) const STANDARD: Constants<usize> = Constants {
    world: 0x101,
    byte: 0x247,
    errors_return: 0x143,
    status_ignore: 0,
    serialized: 2048,
};

/// MPICH's own, as in its `mpi.h`.
pub(crate) const MPICH: Constants<c_int> = Constants {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    status_ignore: 1,
    serialized: 2,
};

/// Open MPI's own, as in its `mpi.h`: handles are addresses of variables of the library. `None` for a library
/// without them.
pub(crate) fn open_mpi(library: &Library) -> Option<Constants<usize>> {
    let address = |symbol: &[u8]| {
        // SAFETY: only the address of the variable is taken, and the library lives as long as the process.
        let found = unsafe { library.get::<*mut c_void>(symbol).ok()?.try_as_raw_ptr() };
        found.map(|address| address as usize)
    };
    Some(Constants {
        world: address(b"ompi_mpi_comm_world\0")?,
        byte: address(b"ompi_mpi_byte\0")?,
        errors_return: address(b"ompi_mpi_errors_return\0")?,
        status_ignore: 0,
        serialized: 2,
    })
}
