//! What real hosts do and a well-behaved emulation would not: libraries that do not find each other, peer
//! copies that are dropped, compilers older than the device, contexts that die.

use std::ffi::c_int;
use std::path::PathBuf;
use std::{fs, io};

use cudarc::driver::sys::{self, CUmemPool_attribute, CUmemoryPool};
use gpipe_tensor::{DeviceId, Error, Host, Tensor, ops};

use crate::driver::{Gpu, call, ok};
use crate::host::{Host as Emulated, LIBRARIES};
use crate::{command, run};

/// Whether a device that is lost says so, to handles that are opened afterwards too.
pub fn lost(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let work = || {
        let device = host.device(DeviceId::Cuda(0))?;
        ops::scale(&Tensor::from_f32(&device, [100], vec![1.0; 100])?, 2.0)?.to_f32s()
    };
    let said = [work(), work()].map(|said| said.expect_err("the device is lost"));
    said.iter().all(|said| {
        matches!(said, Error::GpuLost { .. }) && said.to_string().contains("last checkpoint")
    })
}

/// Whether the pool of an open device adds no waits between streams, and says how much it took.
pub fn pool(_: &str) -> bool {
    let mut pool: CUmemoryPool = std::ptr::null_mut();
    let mut waits: c_int = -1;
    let hidden = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
    let mut read = || {
        let at = (&raw mut waits).cast();
        ok(call!(sys::cuDeviceGetDefaultMemPool, &mut pool, 0)).expect("a pool");
        ok(call!(sys::cuMemPoolGetAttribute, pool, hidden, at)).expect("an attribute");
        waits
    };
    Gpu::open(0).expect("a device");
    let before = read();
    let host = Host::new(1).expect("one thread");
    let device = host.device(DeviceId::Cuda(0)).expect("a device");
    let kept = Tensor::zeros(&device, [1 << 20]).expect("memory");
    let taken = device.most_reserved_bytes().expect("it says").unwrap_or(0);
    drop(kept);
    (before, read()) == (1, 0) && taken >= 4 << 20
}

/// Whether a device has its memory back once nobody here has a handle to it, though other code of the process has its context.
pub fn closed(_: &str) -> bool {
    let other = Gpu::open(0).expect("a device");
    let free = || {
        other.enter();
        let (mut free, mut total) = (0, 0);
        ok(call!(sys::cuMemGetInfo_v2, &mut free, &mut total)).expect("it says");
        free
    };
    let before = free();
    let host = Host::new(1).expect("one thread");
    let device = host.device(DeviceId::Cuda(0)).expect("a device");
    drop(Tensor::zeros(&device, [1 << 20]).expect("memory"));
    let kept = free();
    drop(device);
    kept < before && free() == before
}

#[test]
fn peer_copies_that_do_not_arrive_are_staged() {
    let Some(host) = Emulated::get() else { return };
    for trouble in [
        "drop=1",
        "fail=cuMemPoolSetAccess:1:1",
        "fail=cuMemPoolSetAccess:2:801",
        "fail=cuCtxEnablePeerAccess:1:217",
        "fail=cuMemcpyPeerAsync:1:1",
    ] {
        for order in ["lazy", "random"] {
            let settings = format!("{trouble} order={order} peers=1");
            let outcome = run(host, "moves", "", &settings);
            assert!(outcome.is_right(), "{settings}: {outcome:?}");
        }
    }
}

#[test]
fn a_device_that_the_compiler_does_not_know_runs_its_ptx() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "moves", "", "capability=121 archs=90");
    assert!(outcome.is_right(), "{outcome:?}");
    let outcome = run(host, "moves", "", "capability=75");
    assert!(outcome.stderr.contains("need 8.0 or newer"), "{outcome:?}");
}

#[test]
fn a_lost_device_is_named_as_lost() {
    let Some(host) = Emulated::get() else { return };
    for error in [214, 226, 700, 719, 721, 810, 911] {
        let outcome = run(host, "lost", "", &format!("order=lazy break=2:{error}"));
        assert!(outcome.is_right(), "{error}: {outcome:?}");
    }
}

#[test]
fn pools_do_not_wait_in_secret() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "pool", "", "");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn memory_goes_back_with_the_last_handle() {
    let Some(host) = Emulated::get() else { return };
    for order in ["lazy", "eager"] {
        let outcome = run(host, "closed", "", &format!("order={order}"));
        assert!(outcome.is_right(), "{order}: {outcome:?}");
    }
}

/// A folder as a wheel of NVRTC has it: the compiler's two libraries are files of their own.
fn wheels(host: &Emulated) -> io::Result<PathBuf> {
    let links = host.links(&LIBRARIES[..2])?;
    let folder = links.with_extension("wheels");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let compiler = ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"];
    for name in LIBRARIES[..2].iter().flatten().chain(&compiler) {
        fs::copy(links.join(LIBRARIES[0][0]), folder.join(name))?;
    }
    Ok(folder)
}

#[test]
fn the_compilers_second_library_is_found_beside_the_first() {
    let Some(host) = Emulated::get() else { return };
    let folder = wheels(host).expect("a folder");
    let outcome = host.run_in(&folder, &mut command("moves", ""), "builtins=1");
    assert!(outcome.is_right(), "{outcome:?}");
    // Without it in the folder the compiler says what is missing.
    let outcome = run(host, "moves", "", "builtins=1");
    assert!(outcome.stderr.contains("libnvrtc-builtins"), "{outcome:?}");
}
