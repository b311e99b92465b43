//! Launches that are timed one by one, with the bytes and FLOPs of each.

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{Arithmetic, DType, Device, DeviceId, Host, LaunchTrace, Tensor, init_uniform};

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
        .map(|launch| {
            (
                launch.name.as_str(),
                launch.bytes,
                launch.arithmetic.flops(),
            )
        })
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

/// Operations whose bytes are more than those of each operand once, and those whose arithmetic takes longer than
/// their bytes.
fn work(device: &Device) -> LaunchTrace {
    let random = |shape: &[usize], dtype| {
        let floats = init_uniform(device, shape, 0.5, 0, "work").expect("memory");
        floats.to_dtype(dtype).expect("a type of its own")
    };
    let qkv = random(&[2, 40, 3 * 64], DType::BF16);
    let single = random(&[2, 40, 3 * 64], DType::F32);
    let logits = random(&[30, 50], DType::BF16);
    let targets = Tensor::from_u32(device, [30], vec![7; 30]).expect("memory");
    let mut table = Tensor::zeros(device, [50, 20]).expect("memory");
    let dy = random(&[30, 20], DType::BF16);
    taken(device);
    let (out, lse) = ops::attention(&qkv, 1, None).expect("tensor cores");
    ops::attention_grad(&qkv, &out, &lse, &out, 1, None).expect("tensor cores");
    ops::attention(&single, 1, None).expect("tensor cores");
    ops::attention(&single, 4, None).expect("a plain kernel");
    let (loss, logits) = ops::cross_entropy(logits, &targets, 30.0).expect("a kernel");
    assert!(loss.is_finite());
    ops::embedding_grad(&targets, &dy, &mut table).expect("a kernel");
    ops::matmul(Layout::Tn, &logits, &dy, None).expect("a product");
    ops::sum_of_squares(&table).expect("a kernel");
    taken(device)
}

/// Whether operations on paper are noted as they are on a device, and are as many bytes and FLOPs as they should be.
pub fn on_paper(_: &str) -> bool {
    let trace = work(&device());
    let host = Host::new(1).expect("one thread").on_paper();
    let paper = host.device(DeviceId::Known("H200")).expect("paper");
    let noted = work(&paper);
    let without_times = |trace: &LaunchTrace| {
        let launches = trace.launches.iter();
        let launches = launches.map(|l| (l.name.clone(), l.bytes, l.arithmetic));
        (launches.collect::<Vec<_>>(), trace.allocations)
    };
    assert_eq!(without_times(&noted), without_times(&trace));
    assert!(noted.launches.iter().all(|launch| launch.seconds == 0.0));
    assert_eq!(paper.live_bytes(), 0);

    let find = |name: &str| {
        let found = trace.launches.iter().find(|launch| launch.name == name);
        found.unwrap_or_else(|| panic!("{name} in {trace:?}"))
    };
    // Two samples of 40 positions, of which each sees itself and those before it, in heads of 64 elements together.
    let product = 2.0 * 64.0 * 2.0 * (40.0 * 41.0 / 2.0);
    let [half, single] = [DType::BF16, DType::F32];
    for (name, on_tensor_cores, factors, is_gradient, products) in [
        ("attention_by_warpgroups_64_bf16", true, half, false, 2.0),
        (
            "attention_by_warpgroups_grad_queries_64_bf16",
            true,
            half,
            true,
            3.0,
        ),
        (
            "attention_by_warpgroups_grad_keys_64_bf16",
            true,
            half,
            true,
            4.0,
        ),
        ("attention_tf32x3_64_f32", true, single, false, 2.0),
        ("attention_f32", false, single, false, 2.0),
    ] {
        let wanted = Arithmetic::Attention {
            on_tensor_cores,
            by_warpgroups: factors == half,
            factors,
            is_gradient,
            flops: products * product,
        };
        assert_eq!(find(name).arithmetic, wanted, "{name}");
    }
    // Read for the sum, read again for the gradient, and written; targets and losses.
    assert_eq!(
        find("cross_entropy_bf16").bytes,
        3 * 2 * 1500 + 30 * 4 + 30 * 8
    );
    // Rows that are read and added to rows of the table; the list of 30 positions in at most as many segments.
    assert_eq!(
        find("embedding_grad_bf16").bytes,
        2 * 4 * 1000 + 2 * 600 + 4 * (30 + 3 * 30 + 2)
    );
    let rows = find("product 50 x 20 x 30 Tn bf16 to bf16");
    assert!(matches!(
        rows.arithmetic,
        Arithmetic::Product {
            is_aligned: false,
            ..
        }
    ));
    true
}

#[test]
fn operations_on_paper_are_those_of_a_device() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "on_paper", "", "seed=1");
    assert!(outcome.is_right(), "{outcome:?}");
}
