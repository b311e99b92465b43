//! Actions that come again are launched as graphs, with the bits of operations that are asked for one by one.

use std::time::Duration;

use gpipe_tensor::ops::{self, Dropout, Layout};
use gpipe_tensor::{
    DType, Device, DeviceId, GraphCounts, Host, Result, Tensor, init_uniform, philox,
};

use crate::host::Host as Emulated;
use crate::run;

/// Rows of a micro-batch, and columns.
const SIZES: [usize; 2] = [12, 40];

/// Steps, of which the first makes the arena, the second its addresses, and the third the graphs.
const STEPS: u64 = 6;

/// A stage on a handle: parameters, and what it holds for each micro-batch.
struct Part {
    device: Device,
    w: Tensor,
    grad: Tensor,
    held: Vec<(Tensor, Tensor)>,
}

impl Part {
    fn new(host: &Host, ordinal: u32, dtype: DType) -> Result<Self> {
        let device = host.device(DeviceId::Cuda(ordinal))?;
        let [_, width] = SIZES;
        let w = init_uniform(&device, [width, width], 0.2, 3, "w")?.to_dtype(dtype)?;
        let grad = Tensor::zeros(&device, [width, width])?;
        Ok(Self {
            device,
            w,
            grad,
            held: Vec::new(),
        })
    }

    /// An action: what arrives, what is made of it and dropped, and what is held for the way back.
    fn forward(&mut self, x: Tensor, step: u64, m: u64, transit: &Device) -> Result<Tensor> {
        self.device.begin_action();
        let x = x.receive(&self.device)?;
        let y = ops::matmul(Layout::Nn, &x, &self.w, None)?;
        let key = philox::Key::new(5, "part", step);
        let first = m * SIZES[0] as u64;
        let dropout = Dropout {
            rate: 0.3,
            key,
            samples: first..first + SIZES[0] as u64,
        };
        let y = ops::dropout(y, &dropout)?;
        let y = ops::add(&y, &ops::scale(&x, 0.5)?)?;
        let positive = ops::relu(&y)?;
        self.held.push((x, y));
        let sent = positive.send(transit)?;
        self.device.end_action()?;
        Ok(sent)
    }

    /// Its way back, which adds to the gradient.
    fn backward(&mut self, dy: Tensor, transit: &Device) -> Result<Tensor> {
        self.device.begin_action();
        let dy = dy.receive(&self.device)?;
        let (x, y) = self.held.remove(0);
        let dy = ops::relu_grad(&y, &dy)?;
        drop(y);
        ops::matmul_accumulate(Layout::Tn, &x, &dy, &mut self.grad)?;
        let mut copied = Tensor::zeros_of(&self.device, SIZES, dy.dtype())?;
        copied.copy_from(&dy)?;
        let dx = ops::matmul(Layout::Nt, &copied, &self.w, None)?;
        let sent = dx.send(transit)?;
        self.device.end_action()?;
        Ok(sent)
    }
}

/// What the steps came to, to the bit, and what became of the operations.
pub fn steps(host: &Host, ordinals: &[u32], dtype: DType) -> Result<(Vec<f32>, Vec<GraphCounts>)> {
    let transit = host.device(DeviceId::Cpu)?;
    let parts = ordinals
        .iter()
        .map(|&ordinal| Part::new(host, ordinal, dtype));
    let mut parts = parts.collect::<Result<Vec<_>>>()?;
    let mut seen = Vec::new();
    for step in 0..STEPS {
        for part in &mut parts {
            part.device.begin_step()?;
            part.grad.fill(0.0)?;
        }
        let mut outputs = Vec::new();
        for m in 0..3_u64 {
            let x = init_uniform(&transit, SIZES, 1.0, step, &m.to_string())?;
            let mut flow = match dtype {
                DType::F32 => x,
                dtype => x
                    .copy_to(&parts[0].device)?
                    .to_dtype(dtype)?
                    .send(&transit)?,
            };
            for part in &mut parts {
                flow = part.forward(flow, step, m, &transit)?;
            }
            outputs.push(flow);
        }
        for dy in outputs {
            let mut flow = dy;
            for part in parts.iter_mut().rev() {
                flow = part.backward(flow, &transit)?;
            }
            seen.extend(flow.to_f32s()?);
        }
        // An update between steps, out of all actions.
        for part in &mut parts {
            seen.extend(part.grad.to_f32s()?);
            let update = ops::scale(&part.grad, -0.01)?.to_dtype(dtype)?;
            ops::add_assign(&mut part.w, &update)?;
        }
    }
    let counts = parts.iter().filter_map(|part| part.device.graph_counts());
    Ok((seen, counts.collect()))
}

/// Whether handles that end leave the captures of another handle alone.
pub fn beside(_: &str) -> bool {
    let host = Host::new(1).expect("one thread").with_cuda_graphs();
    let multiplies = || -> Result<Device> {
        let device = host.device(DeviceId::Cuda(0))?;
        let x = Tensor::zeros(&device, [2, 2])?;
        ops::matmul(Layout::Nn, &x, &x, None).map(|_| device)
    };
    let ending: Result<Vec<Device>> = (0..16).map(|_| multiplies()).collect();
    let ending = ending.expect("products");
    let captures = || -> Result<GraphCounts> { Ok(steps(&host, &[0], DType::F32)?.1[0]) };
    std::thread::scope(|scope| {
        let counts = scope.spawn(|| [captures(), captures()]);
        for device in ending {
            drop(device);
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts = counts.join().expect("no panic");
        counts.into_iter().all(|counts| {
            let counts = counts.expect("no fault");
            (counts.captured, counts.refused) == (6, 0)
        })
    })
}

/// Whether graphs do what operations do one by one, and most operations are in graphs.
pub fn program(argument: &str) -> bool {
    let dtype = match argument {
        "bf16" => DType::BF16,
        _ => DType::F32,
    };
    for ordinals in [&[0, 0][..], &[0, 1], &[0, 1, 1]] {
        let plain = Host::new(1).expect("one thread");
        let (wanted, none) = steps(&plain, ordinals, dtype).expect("no fault");
        assert!(none.is_empty());
        let graphs = Host::new(1).expect("one thread").with_cuda_graphs();
        let (got, counts) = steps(&graphs, ordinals, dtype).expect("no fault");
        assert_eq!(counts.len(), ordinals.len());
        for counts in &counts {
            println!("{ordinals:?} {argument}: {counts:?}");
            // Two actions of three micro-batches, from the third step on.
            assert_eq!(
                (counts.captured, counts.launches),
                (6, 6 * (STEPS - 2)),
                "{counts:?}"
            );
            assert_eq!(
                (counts.refused, counts.full, counts.few),
                (0, 0, 0),
                "{counts:?}"
            );
            assert_eq!(
                counts.in_graphs,
                (STEPS - 2) * counts.first / 2,
                "{counts:?}"
            );
            assert!(
                counts.arguments_set > 0 && counts.arena_bytes > 0,
                "{counts:?}"
            );
        }
        let same = got
            .iter()
            .zip(&wanted)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        if !same || got.len() != wanted.len() {
            println!("{ordinals:?}: other bits");
            return false;
        }
    }
    true
}

/// Whether what is copied to other handles from an arena is as it was, though its range has other users by then.
pub fn copies(_: &str) -> bool {
    let work = || -> Result<bool> {
        let host = Host::new(1)?.with_cuda_graphs();
        let (near, far) = (
            host.device(DeviceId::Cuda(0))?,
            host.device(DeviceId::Cuda(1))?,
        );
        let transit = host.device(DeviceId::Cpu)?;
        let is = |tensor: &Tensor, value: f32| Ok(tensor.to_f32s()?.iter().all(|&v| v == value));
        let full = |value: f32| Tensor::from_f32(&near, SIZES, vec![value; SIZES[0] * SIZES[1]]);
        let mut right = true;
        for step in 1..7 {
            let value = step as f32;
            near.begin_step()?;
            near.begin_action();
            let one = full(value)?;
            // Copied and dropped; copied and sent.
            let x = ops::scale(&one, 2.0)?;
            let dropped = x.copy_to(&far)?;
            drop(x);
            let mut after = Vec::new();
            for _ in 0..4 {
                after.push(ops::scale(&one, 5.0)?);
            }
            let y = ops::scale(&one, 3.0)?;
            let copied = y.copy_to(&far)?;
            let sent = y.send(&transit)?;
            for _ in 0..4 {
                after.push(ops::scale(&one, 7.0)?);
            }
            near.end_action()?;
            right &= is(&dropped, 2.0 * value)? && is(&copied, 3.0 * value)?;
            right &= is(&sent.receive(&far)?, 3.0 * value)?;
            right &= is(&after[3], 5.0 * value)? && is(&after[7], 7.0 * value)?;
        }
        Ok(right)
    };
    work().expect("no fault")
}

#[test]
fn graphs_have_the_bits_of_single_operations_in_every_order() {
    let Some(host) = Emulated::get() else { return };
    for seed in 0..20 {
        let dtype = ["f32", "bf16"][seed % 2];
        let settings = format!("seed={seed} peers={}", seed / 2 % 2);
        let outcome = run(host, "graphs", dtype, &settings);
        assert!(outcome.is_right(), "{settings} {dtype}: {outcome:?}");
        if seed < 2 {
            println!("{}", outcome.stdout);
        }
    }
}

/// Arguments that a graph would not have been given.
#[test]
fn a_change_that_is_forgotten_is_missed() {
    let Some(host) = Emulated::get() else { return };
    for change in [1, 5, 20] {
        let outcome = run(host, "graphs", "f32", &format!("seed=1 forget={change}"));
        assert!(!outcome.is_right(), "{change}: {outcome:?}");
    }
}

/// A handle of cuBLAS waits for the whole device as it ends, which no stream may be captured for.
#[test]
fn handles_that_end_break_no_capture() {
    let Some(host) = Emulated::get() else { return };
    let outcome = run(host, "beside-graphs", "", "seed=4 delay=100");
    assert!(outcome.is_right(), "{outcome:?}");
}

/// Each call about graphs fails, at its first time and later: the operations are done all the same, or the fault is an error.
#[test]
fn every_call_about_graphs_may_fail() {
    let Some(host) = Emulated::get() else { return };
    for name in [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuStreamGetCaptureInfo_v3",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams_v2",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
        "cuGraphDestroy",
    ] {
        for moment in [1, 4] {
            let settings = format!("seed={moment} fail={name}:{moment}:999");
            let outcome = run(host, "failing-graphs", name, &settings);
            // With a launch that fails goes what the emulated host would have been told of ranges.
            let is_right = match name {
                "cuGraphLaunch" => outcome.code == Some(0),
                _ => outcome.is_right(),
            };
            assert!(is_right, "{settings}: {outcome:?}");
        }
    }
}

/// Whether the bits are those of single operations although a call about graphs fails, or the failure is an error.
pub fn failing(name: &str) -> bool {
    let plain = Host::new(1).expect("one thread");
    let (wanted, _) = steps(&plain, &[0], DType::F32).expect("no fault");
    let graphs = Host::new(1).expect("one thread").with_cuda_graphs();
    match steps(&graphs, &[0], DType::F32) {
        Ok((got, counts)) => {
            let is_end = name.ends_with("Destroy");
            got == wanted && (counts[0].refused > 0 || is_end)
        }
        // What a launch does cannot be done in another way: it may have begun.
        Err(_) => name == "cuGraphLaunch",
    }
}
