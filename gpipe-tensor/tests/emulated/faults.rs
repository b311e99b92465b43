//! What a program must not do, and what the emulated host says of it; errors that it gives on request.

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::driver::{
    Gpu, N, Pinned, alloc, bytes, call, compile, copy_in, copy_out, free, ok, record, synchronize,
    wait,
};
use crate::{Host, run};

/// What the device's last synchronisation says.
type Said = Result<CUresult, CUresult>;

/// A program that does wrong, and the words that its fault must have; without, it is right.
type Case = (&'static str, fn(&Gpu, CUstream) -> Said, &'static str);

const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

const CASES: [Case; 18] = [
    ("right", right, ""),
    ("read after free", read_after_free, "freed"),
    (
        "kernel before allocation",
        before_allocation,
        "not yet allocated",
    ),
    (
        "kernel beyond the end",
        beyond_the_end,
        "kernel scale_f32 on stream",
    ),
    ("kernel around the end", around_the_end, "wrote around"),
    ("copy beyond the end", copy_beyond, "uses 1204 bytes"),
    ("no device's memory", wild, "memory that is not a device's"),
    ("freed twice", freed_twice, "freed twice"),
    ("never allocated", never_allocated, "freed that is none"),
    (
        "freed elsewhere",
        freed_elsewhere,
        "of one device is freed in a stream of another",
    ),
    ("peer by a kernel", peer_by_kernel, "no access to byte 0"),
    (
        "stream of another context",
        other_context,
        "another context",
    ),
    (
        "pinned memory freed early",
        pinned_freed,
        "before a copy is done",
    ),
    ("event after its end", dead_event, "an event is used"),
    ("stream after its end", dead_stream, "a stream is used"),
    ("pageable memory", pageable, ""),
    ("host touches", host_touches, "the host touches byte 0"),
    (
        "copy of freed pinned memory",
        freed_pinned_copy,
        "the host's pinned memory, freed",
    ),
];

/// Does what the argument says, and prints what came out.
pub fn program(argument: &str) -> bool {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(status) => {
            println!("said {status:?}");
            return false;
        }
    };
    let stream = gpu.stream();
    let case = CASES.iter().find(|(name, ..)| *name == argument);
    let said = case.expect("a case").1(&gpu, stream);
    println!("said {:?}", said.unwrap_or_else(|early| early));
    true
}

fn right(gpu: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let mut numbers = Pinned::new();
    numbers.fill(1.5);
    ok(copy_in(stream, x, numbers.0, N))?;
    ok(gpu.scale(stream, x, x, N as u64, 2.0))?;
    ok(copy_out(stream, numbers.0, x, N))?;
    ok(free(stream, x))?;
    let said = synchronize(stream);
    assert!(said != CUresult::CUDA_SUCCESS || numbers.are_all(3.0));
    Ok(said)
}

/// Scales numbers of which only the first were written.
pub fn unwritten(_: &str) -> bool {
    let reads = || -> Result<(), CUresult> {
        let gpu = Gpu::open(0)?;
        let stream = gpu.stream();
        let x = alloc(stream, bytes(N + 1))?;
        ok(call!(sys::cuMemsetD32Async, x, 7, N, stream))?;
        ok(gpu.scale(stream, x, x, N as u64 + 1, 2.0))?;
        ok(synchronize(stream))
    };
    reads().is_ok()
}

fn read_after_free(gpu: &Gpu, stream: CUstream) -> Said {
    let (x, y) = (alloc(stream, bytes(N))?, alloc(stream, bytes(N))?);
    ok(free(stream, x))?;
    ok(gpu.scale(stream, x, y, N as u64, 2.0))?;
    Ok(synchronize(stream))
}

fn before_allocation(gpu: &Gpu, stream: CUstream) -> Said {
    let other = gpu.stream();
    let x = alloc(other, bytes(N))?;
    ok(gpu.scale(stream, x, x, N as u64, 2.0))?;
    Ok(synchronize(stream))
}

fn beyond_the_end(gpu: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    ok(gpu.scale(stream, x, x, 2000, 2.0))?;
    Ok(synchronize(stream))
}

fn around_the_end(gpu: &Gpu, stream: CUstream) -> Said {
    let (x, y) = (alloc(stream, bytes(N + 1))?, alloc(stream, bytes(N))?);
    ok(call!(sys::cuMemsetD32Async, x, 7, N + 1, stream))?;
    ok(gpu.scale(stream, x, y, N as u64 + 1, 2.0))?;
    Ok(synchronize(stream))
}

fn copy_beyond(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let numbers = vec![0.0; N + 1];
    ok(copy_in(stream, x, numbers.as_ptr(), N + 1))?;
    Ok(synchronize(stream))
}

fn wild(gpu: &Gpu, stream: CUstream) -> Said {
    let mut numbers = vec![0.0_f32; N];
    let x = numbers.as_mut_ptr() as u64;
    ok(gpu.scale(stream, x, x, N as u64, 2.0))?;
    Ok(synchronize(stream))
}

fn freed_twice(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    ok(free(stream, x))?;
    assert_eq!(free(stream, x), CUresult::CUDA_ERROR_INVALID_VALUE);
    Ok(ILLEGAL)
}

fn never_allocated(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let refused = free(stream, x + 256);
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    Ok(ILLEGAL)
}

fn freed_elsewhere(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let other = Gpu::open(1)?.stream();
    assert_eq!(free(other, x), CUresult::CUDA_ERROR_INVALID_VALUE);
    Ok(ILLEGAL)
}

fn peer_by_kernel(gpu: &Gpu, stream: CUstream) -> Said {
    let far = Gpu::open(1)?.stream();
    let x = alloc(far, bytes(N))?;
    ok(synchronize(far))?;
    ok(gpu.scale(stream, x, x, N as u64, 2.0))?;
    Ok(synchronize(stream))
}

fn other_context(gpu: &Gpu, _: CUstream) -> Said {
    let far = Gpu::open(1)?.stream();
    let x = alloc(far, bytes(N))?;
    let launched = gpu.scale(far, x, x, N as u64, 2.0);
    assert_eq!(launched, CUresult::CUDA_ERROR_INVALID_HANDLE);
    Ok(ILLEGAL)
}

fn pinned_freed(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let numbers = Pinned::new();
    ok(copy_in(stream, x, numbers.0, N))?;
    ok(call!(sys::cuMemFreeHost, numbers.0.cast()))?;
    Ok(synchronize(stream))
}

fn dead_event(gpu: &Gpu, stream: CUstream) -> Said {
    let event = record(gpu, stream);
    ok(call!(sys::cuEventDestroy_v2, event))?;
    let waited = wait(stream, event);
    assert_eq!(waited, CUresult::CUDA_ERROR_INVALID_HANDLE);
    Ok(ILLEGAL)
}

fn dead_stream(_: &Gpu, stream: CUstream) -> Said {
    ok(call!(sys::cuStreamDestroy_v2, stream))?;
    let asked = alloc(stream, 4);
    assert_eq!(asked, Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    Ok(ILLEGAL)
}

/// What is not pinned is read before the call returns, and written before it does.
fn pageable(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let mut numbers = vec![2.5_f32; N];
    ok(copy_in(stream, x, numbers.as_ptr(), N))?;
    numbers.fill(0.0);
    ok(copy_out(stream, numbers.as_mut_ptr(), x, N))?;
    assert!(numbers.iter().all(|&v| v == 2.5));
    Ok(synchronize(stream))
}

fn host_touches(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    // SAFETY: none: the address is a device's, and the process ends here.
    let value = unsafe { (x as *const f32).read_volatile() };
    println!("{value}");
    Ok(ILLEGAL)
}

fn freed_pinned_copy(_: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let numbers = Pinned::new();
    ok(call!(sys::cuMemFreeHost, numbers.0.cast()))?;
    ok(copy_out(stream, numbers.0, x, N))?;
    Ok(synchronize(stream))
}

#[test]
fn every_fault_is_found_and_the_device_says_so_later() {
    let Some(host) = Host::get() else { return };
    for (name, _, words) in CASES {
        let outcome = run(host, "fault", name, "order=lazy");
        let said = format!(
            "said {}",
            if words.is_empty() {
                "CUDA_SUCCESS"
            } else {
                "CUDA_ERROR"
            }
        );
        if words.is_empty() {
            assert!(outcome.is_right(), "{name}: {outcome:?}");
        } else {
            let found = outcome.faults.iter().any(|fault| fault.contains(words));
            assert!(found, "{name}: {outcome:?}");
        }
        // The host that touches a device's memory says nothing any more, but for a fault.
        let ended = name == "host touches" && outcome.code.is_none();
        assert!(
            ended || outcome.stdout.contains(&said),
            "{name}: {outcome:?}"
        );
    }
    println!(
        "{} faults found",
        CASES.iter().filter(|case| !case.2.is_empty()).count()
    );
}

#[test]
fn errors_come_when_they_are_asked_for() {
    let Some(host) = Host::get() else { return };
    for (settings, words) in [
        ("devices=0", "CUDA_ERROR_NO_DEVICE"),
        ("memory=1000", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("capability=80", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("fail=cuMemAllocAsync:1:2", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("fail=cuLaunchKernel:1:719", "CUDA_ERROR_LAUNCH_FAILED"),
        ("break=3:214", "CUDA_ERROR_ECC_UNCORRECTABLE"),
    ] {
        let outcome = run(host, "fault", "right", &format!("{settings} order=lazy"));
        assert!(outcome.stdout.contains(words), "{settings}: {outcome:?}");
        assert!(outcome.faults.is_empty(), "{settings}: {outcome:?}");
    }
    let wrong = run(host, "fault", "right", "colour=red");
    assert!(wrong.stderr.contains("colour=red is not understood"));
}

#[test]
fn the_compiler_takes_its_options_and_one_source() {
    let Some(host) = Host::get() else { return };
    let outcome = run(host, "compiler", "", "");
    assert!(outcome.is_right(), "{outcome:?}");
}

/// The compiler's part of the test above.
pub fn compiler(_: &str) -> bool {
    let kernels = &gpipe_tensor::emulated::kernels()[0];
    let answer = |source: &str, options: &[&str]| compile(source, options);
    let unknown = answer(kernels, &["--gpu-architecture=sm_90", "--faster"]);
    assert!(unknown.is_err_and(|log| log.contains("--faster")));
    assert!(answer(kernels, &["--gpu-architecture=hopper"]).is_err());
    let other = answer("void f() {}", &["--gpu-architecture=sm_90"]);
    assert!(other.is_err_and(|log| log.contains("not the source")));
    // Without a real architecture there is no image, as with the real one.
    assert_eq!(answer(kernels, &[]).map(|image| image.len()), Ok(1));
    true
}
