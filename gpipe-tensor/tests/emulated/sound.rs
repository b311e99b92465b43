//! What could go wrong around unsafe code: caches that lie, contexts that others change, copies that fail
//! half-way, operands that live for one call.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs};

use cudarc::driver::sys;
use gpipe_tensor::ops::{self, AdamW, AdamWUpdate};
use gpipe_tensor::{Device, DeviceId, Host, KernelCache, Result, Tensor};

use crate::driver::{Gpu, call, compile, ok};
use crate::host::Host as Emulated;
use crate::{run, waits};

const N: usize = 500;

fn open(host: &Host) -> Device {
    host.device(DeviceId::Cuda(0)).expect("a device")
}

fn ones(device: &Device) -> Tensor {
    Tensor::from_f32(device, [N], vec![1.0; N]).expect("memory")
}

/// Whether a device doubles numbers.
fn doubles(device: &Device) -> bool {
    let doubled = ops::scale(&ones(device), 2.0).and_then(|x| x.to_f32s());
    doubled.is_ok_and(|values| values == [2.0; N])
}

/// What a cache makes of the bytes that it was given.
type Lie = fn(&[u8]) -> Vec<u8>;

const LIES: [Lie; 8] = [
    |_| Vec::new(),
    |_| vec![0],
    |_| b"\x7fELF\x02\x01".to_vec(),
    |_| vec![0xff; 4096],
    // An image without its seal.
    |_| {
        compile(
            &gpipe_tensor::emulated::kernels()[0],
            &["--gpu-architecture=sm_90"],
        )
        .expect("an image")
    },
    |bytes| bytes[..bytes.len() - 2].to_vec(),
    |bytes| bytes[..40].to_vec(),
    |bytes| {
        let mut flipped = bytes.to_vec();
        flipped[40] ^= 1;
        flipped
    },
];

/// A cache of one image, which may lie.
#[derive(Clone, Default)]
struct Cache {
    kept: Arc<Mutex<Vec<u8>>>,
    stored: Arc<Mutex<usize>>,
    lie: Option<Lie>,
}

impl KernelCache for Cache {
    fn load(&self, _: &str) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match self.lie {
            Some(lie) => Some(lie(&kept)),
            None => (!kept.is_empty()).then(|| kept.clone()),
        }
    }

    fn store(&self, _: &str, bytes: &[u8]) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

/// Whether kernels of a cache that lies are compiled again, and those of an honest one are not.
pub fn caches(_: &str) -> bool {
    let mut cache = Cache::default();
    let mut stored_with = |lie| {
        cache.lie = lie;
        let host = Host::new(1).expect("one thread");
        let device = open(&host.with_kernel_cache(Box::new(cache.clone())));
        assert!(doubles(&device));
        *cache.stored.lock().unwrap_or_else(PoisonError::into_inner)
    };
    assert_eq!((stored_with(None), stored_with(None)), (1, 1));
    LIES.iter()
        .enumerate()
        .all(|(i, lie)| stored_with(Some(*lie)) == i + 2)
}

/// A cache that has nothing, and notes whether two devices ask it at the same time. It gives up after a while.
#[derive(Clone, Default)]
struct Meeting(Arc<(Mutex<usize>, Condvar)>);

impl KernelCache for Meeting {
    fn load(&self, _: &str) -> Option<Vec<u8>> {
        let (asking, changed) = &*self.0;
        let mut asking = asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking += 1;
        changed.notify_all();
        let _met =
            changed.wait_timeout_while(asking, Duration::from_secs(20), |asking| *asking < 2);
        None
    }

    fn store(&self, _: &str, _: &[u8]) {}
}

/// Whether devices of two architectures are compiled for at the same time.
pub fn together(_: &str) -> bool {
    let (host, cache) = (Host::new(1).expect("one thread"), Meeting::default());
    let host = host.with_kernel_cache(Box::new(cache.clone()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for ordinal in [0, 1] {
            let host = &host;
            scope.spawn(move || host.device(DeviceId::Cuda(ordinal)).expect("a device"));
        }
    });
    let asked = *cache.0.0.lock().unwrap_or_else(PoisonError::into_inner);
    asked == 2 && start.elapsed() < Duration::from_secs(20)
}

/// Whether four devices that are opened at once, as workers do, all work.
pub fn compiled(_: &str) -> bool {
    let host = &Host::new(1).expect("one thread");
    let devices: Vec<Device> = std::thread::scope(|scope| {
        let open = |ordinal| host.device(DeviceId::Cuda(ordinal)).expect("a device");
        let opened = [0, 1, 2, 3].map(|ordinal| scope.spawn(move || open(ordinal)));
        opened
            .into_iter()
            .filter_map(|one| one.join().ok())
            .collect()
    });
    devices.len() == 4 && devices.iter().all(doubles)
}

/// Whether a device is used in its own context when other code of the thread has made another one
/// current, or none.
pub fn contexts(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let device = open(&host);
    assert!(doubles(&device));
    Gpu::open(1).expect("two devices").enter();
    let beside_another = doubles(&device);
    ok(call!(sys::cuCtxSetCurrent, std::ptr::null_mut())).expect("no context is current");
    beside_another && doubles(&device) && device.finish().is_ok()
}

/// Moves tensors about; whether that fails does not matter, but how it ends.
pub fn failing(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let _ = waits::moves(&host);
    true
}

/// Whether an update takes a gradient from the host.
pub fn gradient(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let cpu = host.device(DeviceId::Cpu).expect("the processor");
    let settings = AdamW {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-8,
        weight_decay: 0.0,
    };
    let updated = |device: &Device| -> Result<Vec<f32>> {
        let [mut value, mut first, mut second] = [ones(device), ones(device), ones(device)];
        let update = AdamWUpdate {
            value: &mut value,
            copy: None,
            grad: &ones(&cpu),
            first: &mut first,
            second: &mut second,
            step: 3,
            grad_scale: 1.0,
        };
        ops::adamw(update, &settings)?;
        value.to_f32s()
    };
    let values = updated(&open(&host)).expect("an update");
    values == updated(&cpu).expect("an update")
}

/// Whether rows without classes have no loss, and nothing is read for them.
pub fn classless(_: &str) -> bool {
    let device = open(&Host::new(1).expect("one thread"));
    let targets = Tensor::from_u32(&device, [3], vec![ops::IGNORE; 3]).expect("memory");
    let logits = Tensor::zeros(&device, [3, 0]).expect("memory");
    let loss = ops::cross_entropy_loss(&logits, &targets, 1.0).expect("a loss");
    let (same, gradient) = ops::cross_entropy(logits, &targets, 1.0).expect("a gradient");
    let correct = ops::correct(&gradient, &targets).expect("a count");
    (loss, same, correct) == (0.0, 0.0, 0) && device.finish().is_ok()
}

#[test]
fn rows_without_classes_read_no_memory() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "classless", "", "order=lazy");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn a_cache_that_lies_costs_a_compilation_and_nothing_else() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "caches", "", "order=lazy");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn devices_of_one_architecture_share_a_compilation() {
    let Some(host) = Emulated::get() else { return };
    let calls = env::temp_dir().join(format!("gpipe-compiled-{}", std::process::id()));
    for (odd, compilations) in [(90, 1), (80, 2)] {
        let settings = format!("odd={odd} calls={}", calls.display());
        let outcome = run(host, "compiled", "", &settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
        let text = fs::read_to_string(&calls).expect("the calls");
        let _ = fs::remove_file(&calls);
        let parts = gpipe_tensor::emulated::kernels().len();
        for line in [
            format!("nvrtcCompileProgram {}", compilations * parts),
            format!("cuModuleLoadData {}", 4 * parts),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }
}

#[test]
fn devices_of_two_architectures_do_not_wait_for_each_other() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "together", "", "odd=80");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn a_context_that_other_code_made_current_is_not_worked_in() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "contexts", "", "order=lazy");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn a_gradient_on_the_host_lives_until_it_is_used() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "gradient", "", "order=lazy");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn pinned_memory_is_not_freed_while_a_copy_uses_it() {
    let Some(host) = Emulated::get() else { return };
    for call in [
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuStreamWaitEvent",
    ] {
        for moment in 1..13 {
            let settings = format!("order=lazy peers=0 fail={call}:{moment}:1");
            let outcome = run(host, "failing", "", &settings);
            assert!(outcome.is_right(), "{settings}: {outcome:?}");
        }
    }
}
