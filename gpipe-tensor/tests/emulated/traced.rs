//! Launches that are timed one by one, with the bytes and FLOPs of each.

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DType, Device, DeviceId, Host, LaunchTrace, Tensor, init_uniform};

use crate::host::Host as Emulated;
use crate::run;

fn device() -> Device {
    let host = Host::new(1).expect("one thread").with_traced_launches();
    host.device(DeviceId::Cuda(0)).expect("a device")
}

fn taken(device: &Device) -> LaunchTrace {
    device
        .take_launches()
        .expect("no fault")
        .expect("it is traced")
}

/// Whether the trace says what was asked for, and nothing of a host that was not to be traced.
pub fn program(_: &str) -> bool {
    let device = device();
    let random = |shape: [usize; 2], dtype| {
        let floats = init_uniform(&device, shape, 0.5, 0, "traced").expect("memory");
        floats.to_dtype(dtype).expect("a type of its own")
    };
    let (x, w) = (random([30, 20], DType::BF16), random([20, 50], DType::BF16));
    let mut grad = Tensor::zeros(&device, [20, 50]).expect("memory");
    taken(&device);

    let y = ops::matmul(Layout::Nn, &x, &w, None).expect("a product");
    let z = ops::scale(&y, 2.0).expect("a kernel");
    ops::matmul_accumulate(Layout::Tn, &x, &z, &mut grad).expect("a product");
    grad.fill(0.0).expect("a filling");
    // Views begin in the middle: what lies before them is not read.
    ops::scale(&z.rows(10..30).expect("rows"), 2.0).expect("a kernel");
    let trace = taken(&device);
    let seen: Vec<(&str, u64, f64)> = trace
        .launches
        .iter()
        .map(|launch| (launch.name.as_str(), launch.bytes, launch.flops))
        .collect();
    let flops = 2.0 * 30.0 * 20.0 * 50.0;
    let wanted: [(&str, u64, f64); 5] = [
        (
            "product 30 x 50 x 20 Nn bf16 to bf16",
            2 * (600 + 1000 + 1500),
            flops,
        ),
        ("scale_bf16", 2 * (1500 + 1500), 0.0),
        (
            "product 20 x 50 x 30 Tn bf16 to f32, added",
            2 * (600 + 1500) + 8 * 1000,
            flops,
        ),
        ("filling", 4 * 1000, 0.0),
        ("scale_bf16", 2 * (1000 + 1000), 0.0),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(trace.allocations, 3);
    assert!(trace.launches.iter().all(|launch| launch.seconds >= 0.0));
    assert!(trace.launches.iter().any(|launch| launch.seconds > 0.0));
    assert_eq!(taken(&device), LaunchTrace::default());

    // Memory that another handle made is known to the one that it is handed to.
    let other = device.host().device(DeviceId::Cuda(0)).expect("a device");
    let moved = z
        .send(&device)
        .and_then(|z| z.receive(&other))
        .expect("it is handed over");
    taken(&other);
    ops::scale(&moved, 2.0).expect("a kernel");
    assert_eq!(taken(&other).launches[0].bytes, 2 * (1500 + 1500));

    let plain = Host::new(1).expect("one thread");
    let silent = [DeviceId::Cuda(0), DeviceId::Cpu].map(|id| {
        let device = plain.device(id).expect("a device");
        device.take_launches().expect("no fault").is_none()
    });
    silent == [true, true]
}

#[test]
fn every_launch_has_its_bytes_flops_and_time() {
    let Some(host) = Emulated::get() else { return };
    for seed in 0..5 {
        let outcome = run(host, "traced", "", &format!("seed={seed}"));
        assert!(outcome.is_right(), "{outcome:?}");
    }
}
