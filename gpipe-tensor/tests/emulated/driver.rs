//! The driver's calls, as the tests' small programs make them.

use std::ffi::{CString, c_void};

use cudarc::driver::sys::{self, CUcontext, CUevent, CUfunction, CUresult, CUstream};
use cudarc::nvrtc::sys as nvrtc;

/// A call into the emulated libraries; one that it answers wrongly is a fault of the emulator's, one
/// that does wrong is what the test is about.
macro_rules! call {
    ($function:path, $($argument:expr),*) => {{
        // SAFETY: the library is the emulator, which looks at what it is given and at every address
        // before it is used; what a call writes is alive here.
        unsafe { $function($($argument),*) }
    }};
}
pub(crate) use call;

/// An address in a device's memory.
pub type Address = u64;

/// Numbers that each matrix and buffer of these programs holds.
pub const N: usize = 300;

/// An error unless the call was one.
pub fn ok(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

/// A device with its kernels.
pub struct Gpu {
    pub context: CUcontext,
    module: sys::CUmodule,
}

impl Gpu {
    pub fn open(ordinal: i32) -> Result<Self, CUresult> {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        ok(call!(sys::cuInit, 0))?;
        ok(call!(sys::cuDeviceGet, &mut device, ordinal))?;
        ok(call!(sys::cuDevicePrimaryCtxRetain, &mut context, device))?;
        let mut gpu = Self {
            context,
            module: std::ptr::null_mut(),
        };
        gpu.enter();
        let mut parts = gpipe_tensor::emulated::kernels().into_iter();
        let kernels = parts.find(|source| source.contains(" scale_f32("));
        let image = compile(
            &kernels.expect("a part with the kernel of the tests"),
            &["--gpu-architecture=sm_90"],
        );
        let image = image.expect("the kernels are compiled");
        ok(call!(
            sys::cuModuleLoadData,
            &mut gpu.module,
            image.as_ptr().cast()
        ))?;
        Ok(gpu)
    }

    /// Makes its context the thread's.
    pub fn enter(&self) {
        ok(call!(sys::cuCtxSetCurrent, self.context)).expect("the context is one");
    }

    pub fn stream(&self) -> CUstream {
        self.enter();
        let mut stream = std::ptr::null_mut();
        ok(call!(sys::cuStreamCreate, &mut stream, 1)).expect("a stream");
        stream
    }

    pub fn kernel(&self, name: &str) -> CUfunction {
        let name = CString::new(name).expect("no zeros in a name");
        let mut function = std::ptr::null_mut();
        let status = call!(
            sys::cuModuleGetFunction,
            &mut function,
            self.module,
            name.as_ptr()
        );
        ok(status).expect("the kernel is there");
        function
    }

    /// y = x · by, over `n` numbers.
    pub fn scale(&self, stream: CUstream, x: Address, y: Address, n: u64, by: f32) -> CUresult {
        self.enter();
        let mut arguments: [*mut c_void; 4] = [
            (&raw const x).cast_mut().cast(),
            (&raw const y).cast_mut().cast(),
            (&raw const n).cast_mut().cast(),
            (&raw const by).cast_mut().cast(),
        ];
        call!(
            sys::cuLaunchKernel,
            self.kernel("scale_f32"),
            2,
            1,
            1,
            256,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            std::ptr::null_mut()
        )
    }
}

/// Commands to the emulator in the middle of a program.
///
/// # Safety
/// It takes any number.
type Tell = unsafe extern "C" fn(u64);

/// Another order from now on.
pub fn reseed(seed: u64) {
    // SAFETY: the emulator exports it with this signature.
    let tell = unsafe { sys::culib().get::<Tell>(b"emulated_seed\0") };
    let tell = *tell.expect("the emulator");
    // SAFETY: as above.
    unsafe { tell(seed) };
}

/// Ranges of an arena, in the order of a stream.
///
/// # Safety
/// It takes any numbers, and a stream that is alive.
type TellRange = unsafe extern "C" fn(u64, u64, i32, CUstream);

/// Takes a range of an arena in the order of a stream, or gives it back.
pub fn range(stream: CUstream, at: Address, bytes: usize, is_taken: bool) {
    // SAFETY: the emulator exports it with this signature.
    let tell = unsafe { sys::culib().get::<TellRange>(b"emulated_range\0") };
    let tell = *tell.expect("the emulator");
    // SAFETY: as above.
    unsafe { tell(at, bytes as u64, i32::from(is_taken), stream) };
}

/// The first of the nodes that the emulator counted.
pub fn first_of(nodes: *const sys::CUgraphNode) -> sys::CUgraphNode {
    assert!(!nodes.is_null());
    // SAFETY: one name lies there, as the caller has asked.
    unsafe { *nodes }
}

/// Bytes that numbers take.
pub fn bytes(n: usize) -> usize {
    4 * n
}

pub fn alloc(stream: CUstream, bytes: usize) -> Result<Address, CUresult> {
    let mut address = 0;
    ok(call!(sys::cuMemAllocAsync, &mut address, bytes, stream))?;
    Ok(address)
}

pub fn free(stream: CUstream, address: Address) -> CUresult {
    call!(sys::cuMemFreeAsync, address, stream)
}

/// A new event at the stream's end.
pub fn record(gpu: &Gpu, stream: CUstream) -> CUevent {
    gpu.enter();
    let mut event = std::ptr::null_mut();
    ok(call!(sys::cuEventCreate, &mut event, 0)).expect("an event");
    ok(call!(sys::cuEventRecord, event, stream)).expect("a record");
    event
}

pub fn wait(stream: CUstream, event: CUevent) -> CUresult {
    call!(sys::cuStreamWaitEvent, stream, event, 0)
}

pub fn synchronize(stream: CUstream) -> CUresult {
    call!(sys::cuStreamSynchronize, stream)
}

/// Pinned memory of the host.
pub struct Pinned(pub *mut f32);

impl Pinned {
    pub fn new() -> Self {
        let mut address: *mut c_void = std::ptr::null_mut();
        ok(call!(sys::cuMemHostAlloc, &mut address, bytes(N), 1)).expect("pinned memory");
        Self(address.cast())
    }

    pub fn fill(&mut self, value: f32) {
        for i in 0..N {
            // SAFETY: there are N numbers.
            unsafe { self.0.add(i).write(value) };
        }
    }

    pub fn are_all(&self, value: f32) -> bool {
        // SAFETY: there are N numbers, and all bits are numbers or NaN.
        (0..N).all(|i| unsafe { self.0.add(i).read_volatile() } == value)
    }
}

pub fn copy_in(stream: CUstream, to: Address, from: *const f32, n: usize) -> CUresult {
    call!(sys::cuMemcpyHtoDAsync_v2, to, from.cast(), bytes(n), stream)
}

pub fn copy_out(stream: CUstream, to: *mut f32, from: Address, n: usize) -> CUresult {
    call!(sys::cuMemcpyDtoHAsync_v2, to.cast(), from, bytes(n), stream)
}

/// The image that the emulated compiler makes, or what it says.
pub fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let source = CString::new(source).expect("no zeros in the source");
    let options = options.iter().map(|text| CString::new(*text));
    let options: Vec<CString> = options.collect::<Result<_, _>>().expect("no zeros");
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    let none = std::ptr::null();
    let name = c"kernels.cu".as_ptr();
    let created = call!(
        nvrtc::nvrtcCreateProgram,
        &mut program,
        source.as_ptr(),
        name,
        0,
        none,
        none
    );
    assert_eq!(created, nvrtc::nvrtcResult::NVRTC_SUCCESS);
    let count = options.len() as i32;
    let status = call!(nvrtc::nvrtcCompileProgram, program, count, options.as_ptr());
    let mut size = 0;
    if status != nvrtc::nvrtcResult::NVRTC_SUCCESS {
        call!(nvrtc::nvrtcGetProgramLogSize, program, &mut size);
        let mut log = vec![0; size];
        call!(nvrtc::nvrtcGetProgramLog, program, log.as_mut_ptr().cast());
        return Err(String::from_utf8_lossy(&log).into_owned());
    }
    call!(nvrtc::nvrtcGetCUBINSize, program, &mut size);
    let mut image = vec![0; size];
    call!(nvrtc::nvrtcGetCUBIN, program, image.as_mut_ptr().cast());
    Ok(image)
}
