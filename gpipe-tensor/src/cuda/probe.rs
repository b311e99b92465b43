//! The search for CUDA. It checks that each library can be loaded before it is called: a call into a missing
//! library would panic.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use cudarc::cublas::sys as cublas;
use cudarc::cublaslt::sys as cublas_lt;
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUresult};
use cudarc::nvrtc::sys as nvrtc;

use super::builtins;
use super::status::Status;
use crate::{CudaDevice, CudaInfo, DeviceId, Result};

/// The libraries and devices. A success is remembered; after a failure the next call searches again.
pub(crate) fn find() -> std::result::Result<CudaInfo, String> {
    static FOUND: OnceLock<CudaInfo> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let found = look()?;
    Ok(FOUND.get_or_init(|| found).clone())
}

fn look() -> std::result::Result<CudaInfo, String> {
    let missing = |what: &str, mend: &str| Err(format!("{what}: {mend}, or use --devices cpu"));
    // SAFETY: it loads the library, whose start-up code alone runs; so do the two below.
    if !unsafe { sys::is_culib_present() } {
        return missing(
            "no CUDA driver (libcuda.so.1)",
            "install NVIDIA's driver, 570 or newer",
        );
    }
    // SAFETY: the library is there; the call takes no pointer.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => {}
        CUresult::CUDA_ERROR_NO_DEVICE => {
            return missing(
                "the driver finds no CUDA device",
                "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES",
            );
        }
        status => {
            let said = match status.check("cuInit") {
                Err(error) => error.to_string(),
                Ok(()) => String::new(),
            };
            return missing(&said, "look at `nvidia-smi`");
        }
    }
    match known() {
        Ok(known) if known < OLDEST => {
            return missing(
                &format!("the driver knows CUDA {} only", version(known)),
                "install NVIDIA's driver, 570 or newer",
            );
        }
        Ok(_) => {}
        Err(error) => return missing(&error.to_string(), "look at `nvidia-smi`"),
    }
    // SAFETY: as above.
    if !unsafe { cublas::is_culib_present() } {
        return missing(
            "no cuBLAS (libcublas.so.13 or .12)",
            "install it, such as by `pip install nvidia-cublas`, and name its folder in LD_LIBRARY_PATH",
        );
    }
    // SAFETY: as above.
    if !unsafe { nvrtc::is_culib_present() } {
        return missing(
            "no NVRTC (libnvrtc.so.13 or .12)",
            "install it, such as by `pip install nvidia-cuda-nvrtc`, and name its folder in LD_LIBRARY_PATH",
        );
    }
    let found = described().map_err(|error| error.to_string())?;
    for (library, version) in [("cuBLAS", &found.cublas), ("NVRTC", &found.nvrtc)] {
        if let Some((what, mend)) = misfit(library, version, &found.driver) {
            return missing(&what, &mend);
        }
    }
    // NVRTC itself is loaded since its version was asked for.
    builtins::open(&found.nvrtc);
    if found.devices.is_empty() {
        return missing(
            "the driver finds no CUDA device",
            "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        );
    }
    Ok(found)
}

/// What keeps a library of this version from this driver, and a mend. A driver runs libraries of its own major version of CUDA and of earlier
/// ones (CUDA Compatibility, "Minor Version Compatibility"), and here none before 12 has all calls.
fn misfit(library: &str, version: &str, driver: &str) -> Option<(String, String)> {
    let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
    let (own, most) = (major(version)?, major(driver)?);
    if own < 12 {
        let mend = format!("install {library} 12 or newer in its place");
        return Some((format!("{library} {version} is older than 12"), mend));
    }
    let what = || {
        format!("{library} {version} is of a newer CUDA than the driver, which knows {driver} only")
    };
    let mend =
        || format!("install a newer driver (580 for CUDA 13), or {library} {most} in its place");
    (own > most).then(|| (what(), mend()))
}

/// CUDA 12.8, of drivers 570: the oldest that has every call made here.
const OLDEST: c_int = 12_080;

/// The newest CUDA version that the driver supports, as a number: 12080 is 12.8.
fn known() -> Result<c_int> {
    let mut version = 0;
    // SAFETY: the driver is there and was initialised; the call writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.check("cuDriverGetVersion")?;
    Ok(version)
}

fn version(number: c_int) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Versions and devices, given that all libraries are present.
fn described() -> Result<CudaInfo> {
    let mut devices = 0;
    // SAFETY: the driver is there and was initialised; the call writes one number.
    unsafe { sys::cuDeviceGetCount(&mut devices) }.check("cuDeviceGetCount")?;
    let devices = (0..devices).map(|ordinal| device(ordinal, devices));
    Ok(CudaInfo {
        driver: version(known()?),
        cublas: cublas_version(),
        nvrtc: compiler_version()?,
        devices: devices.collect::<Result<_>>()?,
    })
}

/// The version of cuBLAS, queried without a handle, which would need a context.
fn cublas_version() -> String {
    let mut version = 0;
    // SAFETY: the library is there; the call writes one number, or answers that it wants a handle.
    let status = unsafe { cublas::cublasGetVersion_v2(std::ptr::null_mut(), &mut version) };
    let text = match status.check("cublasGetVersion_v2") {
        Ok(()) if version > 0 => format!("{}.{}", version / 10_000, version % 10_000 / 100),
        _ => "of unknown version".into(),
    };
    match blas_lt_version() {
        Some(_) => text,
        None => {
            format!("{text} (without libcublasLt.so.13 or .12: biases take launches of their own)")
        }
    }
}

/// The oldest cuBLASLt that products are left to: that of CUDA 12, as the other libraries are at the least.
const OLDEST_LT: usize = 120_000;

/// The version of cuBLASLt; none where it is missing or older than CUDA 12.
pub(super) fn blas_lt_version() -> Option<usize> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the first call loads the library, whose start-up code alone runs; the second takes nothing.
        let version =
            unsafe { cublas_lt::is_culib_present().then(|| cublas_lt::cublasLtGetVersion()) };
        version.filter(|&version| version >= OLDEST_LT)
    })
}

/// The version of NVRTC.
pub(super) fn compiler_version() -> Result<String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; the call writes two numbers.
    unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) }.check("nvrtcVersion")?;
    Ok(format!("{major}.{minor}"))
}

/// The driver's handle to the device of this ordinal.
pub(super) fn handle(ordinal: c_int) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: the driver was initialised; the call writes one handle.
    unsafe { sys::cuDeviceGet(&mut device, ordinal) }.check("cuDeviceGet")?;
    Ok(device)
}

/// Major and minor compute capability.
pub(super) fn capability(device: CUdevice) -> Result<(u32, u32)> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: the device is one that the driver gave; the call writes one number.
        unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }
            .check("cuDeviceGetAttribute")?;
        Ok(value as u32)
    };
    Ok((attribute(MAJOR)?, attribute(MINOR)?))
}

/// The name of a physical device, or of a part of one that stands for a device, which no other in the world has.
pub(super) fn uuid(device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the device is one that the driver gave; the call writes one name.
    unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }.check("cuDeviceGetUuid_v2")?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Whether a device has peer access to the memory of another.
pub(super) fn reaches(device: CUdevice, peer: CUdevice) -> Result<bool> {
    let mut reaches = 0;
    // SAFETY: both devices are ones that the driver gave; the call writes one number.
    unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, device, peer) }
        .check("cuDeviceCanAccessPeer")?;
    Ok(reaches != 0)
}

fn device(ordinal: c_int, count: c_int) -> Result<CudaDevice> {
    let device = handle(ordinal)?;
    let mut name = [0; 256];
    let mut memory = 0;
    // SAFETY: the device is one that the driver gave; the name ends in a zero within the room for it.
    let name = unsafe {
        sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device)
            .check("cuDeviceGetName")?;
        sys::cuDeviceTotalMem_v2(&mut memory, device).check("cuDeviceTotalMem_v2")?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let id = |ordinal: c_int| DeviceId::Cuda(ordinal as u32);
    let mut peers = Vec::new();
    for peer in (0..count).filter(|&peer| peer != ordinal) {
        if reaches(device, handle(peer)?)? {
            peers.push(id(peer));
        }
    }
    Ok(CudaDevice {
        id: id(ordinal),
        name,
        memory_bytes: memory as u64,
        capability: capability(device)?,
        peers,
    })
}
