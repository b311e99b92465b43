//! NVRTC's second library, `libnvrtc-builtins`, opened by its full path.
//!
//! NVRTC looks for it by name when it compiles first, and wheels of NVRTC 13 have no RUNPATH: where the
//! first library was found by its path alone, the second is not found unless it is there already.

use std::sync::Once;

/// Opens the library that lies beside NVRTC, of this version, once; where it cannot be opened, NVRTC looks
/// for it itself.
pub(super) fn open(version: &str) {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        #[cfg(target_os = "linux")]
        if let Some(folder) = linux::folder() {
            let path = folder.join(format!("libnvrtc-builtins.so.{version}"));
            // SAFETY: it is the part of NVRTC that would be loaded by its first compilation.
            if let Ok(library) = unsafe { libloading::Library::new(path) } {
                // It stays loaded for as long as NVRTC does: to the end of the process.
                std::mem::forget(library);
            }
        }
        let _ = version;
    });
}

/// The folder that NVRTC was loaded from, where the system tells it. NVRTC was found before.
pub(super) fn folder_of_nvrtc() -> Option<std::path::PathBuf> {
    #[cfg(target_os = "linux")]
    return linux::folder();
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};

    use cudarc::nvrtc::sys as nvrtc;

    /// `Dl_info` of dlfcn.h.
    #[repr(C)]
    struct Info {
        file: *const c_char,
        base: *mut c_void,
        name: *const c_char,
        address: *mut c_void,
    }

    // SAFETY: the declaration is that of dlfcn.h, in the C library that Rust links.
    unsafe extern "C" {
        /// Which library an address lies in; 0 if in none.
        ///
        /// # Safety
        /// There is room for an `Info`.
        fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }

    /// The folder that NVRTC was loaded from.
    pub(super) fn folder() -> Option<PathBuf> {
        // SAFETY: the library has a function of this name, which is not called here.
        let found = unsafe { nvrtc::culib().get::<unsafe extern "C" fn()>(b"nvrtcVersion\0") };
        let address = *found.ok()? as *const c_void;
        let mut info = Info {
            file: std::ptr::null(),
            base: std::ptr::null_mut(),
            name: std::ptr::null(),
            address: std::ptr::null_mut(),
        };
        // SAFETY: the call writes one structure; the name of a loaded library ends in a zero.
        let file = unsafe {
            if dladdr(address, &mut info) == 0 || info.file.is_null() {
                return None;
            }
            CStr::from_ptr(info.file)
        };
        let path = Path::new(OsStr::from_bytes(file.to_bytes()));
        path.parent().map(Path::to_owned)
    }
}
