//! The kernels on a device: compiled for it by NVRTC, or taken from a cache.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_int};
use std::fmt::{self, Write as _};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use cudarc::driver::sys::{self as driver, CUfunction, CUfunction_attribute, CUmodule};
use cudarc::nvrtc::sys::{self, nvrtcProgram};
use sha2::{Digest, Sha256};

use super::entry::Form;
use super::image::is_whole;
use super::probe::compiler_version;
use super::raw_handle::RawHandle;
use super::seal::{opened, sealed};
use super::source::{Part, parts};
use super::status::Status;
use crate::ops::attention::tensor_cores::by_warpgroups;
use crate::ops::cross_entropy::kernels::keeps_rows;
use crate::{DType, Error, KernelCache, Result};

/// Bytes of shared memory that a block may ask for on devices of compute capability 9.0 (CUDA C++ Programming Guide 12.9, table
/// "Technical Specifications per Compute Capability").
pub(super) const MOST_SHARED: u32 = 227 << 10;

/// Bytes of it that a block has without asking on every device.
const SHARED: u32 = 48 << 10;

/// The images of all parts of the kernels, in their order.
type Images = Vec<Vec<u8>>;

/// Images, if a device has them; locked while they are made.
type Slot = Arc<Mutex<Weak<Images>>>;

/// The images of this process, by their keys.
static IMAGES: Mutex<BTreeMap<String, Slot>> = Mutex::new(BTreeMap::new());

/// The loaded kernels and their entry points.
pub(crate) struct Module {
    /// Of each part.
    raw: Vec<RawHandle<CUmodule>>,
    functions: HashMap<(&'static str, DType), RawHandle<CUfunction>>,
    /// What they were loaded from, for other devices.
    images: Arc<Images>,
    /// Whether kernels that multiply by warpgroups do so.
    has_warpgroups: bool,
}

impl Module {
    /// Loads the kernels for a device of this compute capability into the thread's context.
    pub fn load(capability: (u32, u32), cache: Option<&dyn KernelCache>) -> Result<Self> {
        let parts = parts();
        let target = Target::of(capability)?;
        let options = [
            format!("--gpu-architecture={target}"),
            // The processor rounds each product, and so do the kernels.
            "--fmad=false".to_owned(),
        ];
        let key = key(&parts, &options, &compiler_version()?);
        // Devices of one architecture wait for the first that asks; others compile meanwhile.
        let slot = {
            let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
            images.entry(key.clone()).or_default().clone()
        };
        let mut images = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(images) = images.upgrade() {
            return Self::of(&parts, images, target);
        }
        // What cannot be loaded is no module of this driver: it is made again.
        let cached = cache.and_then(|cache| cache.load(&key));
        let cached = cached.as_deref().and_then(|bytes| opened(&key, bytes));
        let cached = cached.and_then(|bytes| unpacked(bytes, parts.len()));
        if let Some(Ok(module)) = cached.map(|images| Self::of(&parts, Arc::new(images), target)) {
            *images = Arc::downgrade(&module.images);
            return Ok(module);
        }
        let compiled = compile_all(&parts, &options, target)?;
        let module = Self::of(&parts, Arc::new(compiled), target)?;
        if let Some(cache) = cache {
            cache.store(&key, &sealed(&key, &packed(&module.images)));
        }
        *images = Arc::downgrade(&module.images);
        Ok(module)
    }

    fn of(parts: &[Part], images: Arc<Images>, target: Target) -> Result<Self> {
        let mut module = Self {
            raw: Vec::new(),
            functions: HashMap::new(),
            images: images.clone(),
            has_warpgroups: target.has_warpgroups(),
        };
        for (part, image) in parts.iter().zip(&*images) {
            module.add(part, image)?;
        }
        Ok(module)
    }

    /// Loads a part.
    fn add(&mut self, part: &Part, image: &[u8]) -> Result<()> {
        if !is_whole(image) {
            return Err(Error::Cuda {
                call: "cuModuleLoadData",
                message: format!("{} bytes are no whole image of kernels", image.len()),
            });
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: all that the driver follows in the image lies within it. It comes from the compiler,
        // or carries the digest that was put on one. The call writes one name.
        unsafe { driver::cuModuleLoadData(&mut raw, image.as_ptr().cast()) }
            .check("cuModuleLoadData")?;
        self.raw.push(RawHandle(raw));
        for form in &part.forms {
            let symbol = text(form.name())?;
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends in a zero; the call writes one name.
            unsafe { driver::cuModuleGetFunction(&mut function, raw, symbol.as_ptr()) }
                .check("cuModuleGetFunction")?;
            let name = form.entry.name;
            if self.has_warpgroups && (by_warpgroups(name) || keeps_rows(name)) {
                let attribute =
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                // SAFETY: the function is the module's.
                unsafe { driver::cuFuncSetAttribute(function, attribute, MOST_SHARED as c_int) }
                    .check("cuFuncSetAttribute")?;
            }
            // A driver that loads kernels late, as is the default since CUDA 12.2, may wait for all that the device does as it launches one for the
            // first time, and holds calls of other threads up meanwhile: a transfer that waits for those would wait for ever.
            // SAFETY: as above.
            unsafe { driver::cuFuncLoad(function) }.check("cuFuncLoad")?;
            let place = (form.entry.name, form.stored);
            self.functions.insert(place, RawHandle(function));
        }
        Ok(())
    }

    /// Whether kernels that multiply by warpgroups do so here.
    pub(super) fn has_warpgroups(&self) -> bool {
        self.has_warpgroups
    }

    /// Bytes of shared memory that a block may ask for, of those kernels that ask for much.
    pub(super) fn most_shared(&self) -> u32 {
        match self.has_warpgroups {
            true => MOST_SHARED,
            false => SHARED,
        }
    }

    /// An entry point.
    pub(super) fn function(&self, form: Form) -> Option<CUfunction> {
        let function = self.functions.get(&(form.entry.name, form.stored));
        function.map(|name| name.0)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        for module in &self.raw {
            // SAFETY: the module is loaded, in the context that its owner has made the thread's.
            let _unloaded = unsafe { driver::cuModuleUnload(module.0) };
        }
    }
}

/// What kernels are compiled for, as 90 for compute capability 9.0.
#[derive(Clone, Copy)]
enum Target {
    /// Machine code for the device's own architecture.
    Device(u32),
    /// PTX for the newest architecture that this NVRTC knows: the driver compiles it for a later device.
    Virtual(u32),
}

impl Target {
    /// Whether it is compute capability 9.0 itself: products of warpgroups are no part of what later devices run.
    fn has_warpgroups(self) -> bool {
        matches!(self, Self::Device(90))
    }

    /// For a device of this compute capability.
    fn of((major, minor): (u32, u32)) -> Result<Self> {
        let own = 10 * major + minor;
        let mut count = 0;
        // SAFETY: the calls write one number, then as many as it says.
        let known = unsafe {
            sys::nvrtcGetNumSupportedArchs(&mut count).check("nvrtcGetNumSupportedArchs")?;
            let mut known = vec![0; count as usize];
            sys::nvrtcGetSupportedArchs(known.as_mut_ptr()).check("nvrtcGetSupportedArchs")?;
            known
        };
        let known = known.into_iter().map(|one| one as u32);
        match known.filter(|&one| one <= own).max() {
            Some(newest) if newest == own => Ok(Self::Device(own)),
            Some(newest) => Ok(Self::Virtual(newest)),
            None => Err(Error::Cuda {
                call: "nvrtcGetSupportedArchs",
                message: format!(
                    "this NVRTC compiles for newer devices than sm_{own} only: install an older one"
                ),
            }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // With what this architecture alone has.
            Self::Device(own) if self.has_warpgroups() => write!(f, "sm_{own}a"),
            Self::Device(own) => write!(f, "sm_{own}"),
            Self::Virtual(newest) => write!(f, "compute_{newest}"),
        }
    }
}

/// Images as one: each behind its length in 8 bytes.
fn packed(images: &Images) -> Vec<u8> {
    let mut bytes = Vec::new();
    for image in images {
        bytes.extend((image.len() as u64).to_le_bytes());
        bytes.extend(image);
    }
    bytes
}

/// As many images as there are parts, of bytes that [`packed`] made of as many.
fn unpacked(mut bytes: &[u8], parts: usize) -> Option<Images> {
    let mut next = || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (image, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some(image.to_vec())
    };
    (0..parts).map(|_| next()).collect()
}

/// The cache key of images: the digest of all that they depend on.
fn key(parts: &[Part], options: &[String], compiler: &str) -> String {
    let texts = options.iter().map(String::as_str).chain([compiler]);
    let texts = texts.chain(parts.iter().map(|part| part.source.as_str()));
    let digest = texts.fold(Sha256::new(), |digest, part| {
        digest.chain_update(part).chain_update([0])
    });
    let mut key = String::new();
    for byte in digest.finalize() {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

fn text(text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Cuda {
        call: "kernels",
        message: "a text has a zero in it".into(),
    })
}

/// A program of NVRTC; destroyed on drop.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created and is destroyed once.
        let _destroyed = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// The images of all parts for a device, compiled at the same time, as far as there are threads.
fn compile_all(parts: &[Part], options: &[String], target: Target) -> Result<Images> {
    let compile = |part: &Part| compile(&part.source, options, target);
    thread::scope(|scope| {
        let threads = parts.iter().map(|part| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || compile(part));
            thread.map_err(|_| part)
        });
        let threads: Vec<_> = threads.collect();
        let compiled = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(part) => compile(part),
        });
        compiled.collect()
    })
}

/// The image of a part for a device.
fn compile(source: &str, options: &[String], target: Target) -> Result<Vec<u8>> {
    let source = text(source)?;
    let options = options.iter().map(|option| text(option.as_str()));
    let options: Vec<CString> = options.collect::<Result<_>>()?;
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = Program(std::ptr::null_mut());
    let none = std::ptr::null();
    // SAFETY: the texts end in zeros and outlive the calls, and the program is created before it is
    // compiled.
    let compiled = unsafe {
        sys::nvrtcCreateProgram(
            &mut program.0,
            source.as_ptr(),
            c"kernels.cu".as_ptr(),
            0,
            none,
            none,
        )
        .check("nvrtcCreateProgram")?;
        sys::nvrtcCompileProgram(program.0, options.len() as c_int, options.as_ptr())
            .check("nvrtcCompileProgram")
    };
    if let Err(Error::Cuda { call, message }) = compiled {
        let log = log(&program).unwrap_or_default();
        let message = format!("{message}: {log}");
        return Err(Error::Cuda { call, message });
    }
    let mut size = 0;
    // SAFETY: the program is compiled, and the second call writes as many bytes as the first says.
    unsafe {
        match target {
            Target::Device(_) => sys::nvrtcGetCUBINSize(program.0, &mut size),
            Target::Virtual(_) => sys::nvrtcGetPTXSize(program.0, &mut size),
        }
        .check("nvrtcGet…Size")?;
        let mut image = vec![0_u8; size];
        match target {
            Target::Device(_) => sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()),
            Target::Virtual(_) => sys::nvrtcGetPTX(program.0, image.as_mut_ptr().cast()),
        }
        .check("nvrtcGet…")?;
        Ok(image)
    }
}

/// The compiler's log of a program.
fn log(program: &Program) -> Result<String> {
    let mut size = 0;
    // SAFETY: the program was created, and the second call writes as many bytes as the first says.
    let mut bytes = unsafe {
        sys::nvrtcGetProgramLogSize(program.0, &mut size).check("nvrtcGetProgramLogSize")?;
        let mut bytes = vec![0_u8; size];
        sys::nvrtcGetProgramLog(program.0, bytes.as_mut_ptr().cast())
            .check("nvrtcGetProgramLog")?;
        bytes
    };
    bytes.retain(|&byte| byte != 0);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_back_from_the_bytes_of_as_many_or_not_at_all() {
        let images = vec![vec![1, 2, 3], Vec::new(), vec![4]];
        let bytes = packed(&images);
        assert_eq!(unpacked(&bytes, images.len()), Some(images));
        assert_eq!(unpacked(&bytes, 4), None);
        for length in 0..bytes.len() {
            assert_eq!(unpacked(&bytes[..length], 3), None, "{length} bytes");
        }
        let endless = u64::MAX.to_le_bytes();
        assert_eq!(unpacked(&endless, 1), None);
    }
}
