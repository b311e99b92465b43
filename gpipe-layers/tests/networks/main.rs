//! Networks against PyTorch: losses, gradients, running statistics and logits, recorded by `reference.py` in double
//! precision, with the same numbers of micro-batches on both sides. `cargo xtask parity` records them anew.

use std::ops::Range;

use gpipe_layers::models::{ImageConfig, image};
use gpipe_layers::{Flow, Init, Kind, Layer, Loss, Param, PassContext, Saved, make};
use gpipe_tensor::{Device, DeviceId, Host, Shape, Tensor, Tensors};
use serde_json::Value;

/// How far running statistics may be, as a share of their norm.
const STATISTICS: f64 = 1e-3;

/// The same of logits, as a share of the largest.
const LOGITS: f64 = 1e-4;

/// A number from -1 to below 1 for each element: a hash of its index and the name.
fn noise(name: &str) -> impl Fn(usize) -> f32 + use<> {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811C_9DC5, fnv);
    move |index| {
        let mut hash = (index as u32)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(seed);
        hash ^= hash >> 16;
        hash = hash.wrapping_mul(0x045D_9F3B);
        hash ^= hash >> 16;
        (f64::from(hash) / f64::from(1_u32 << 31) - 1.0) as f32
    }
}

/// The index that PyTorch has for an element of a parameter: convolutions are (outputs, inputs, height, width).
fn index_in_pytorch(shape: &Shape, index: usize) -> usize {
    let &[_, height, width, inputs] = shape.dims() else {
        return index;
    };
    let (pixel, input) = (index / inputs, index % inputs);
    let (output, pixel) = (pixel / (height * width), pixel % (height * width));
    (output * inputs + input) * height * width + pixel
}

/// The value that a parameter begins with.
fn begin(param: &mut Param) {
    if param.kind == Kind::Statistic {
        return;
    }
    let (name, shape) = (&param.name, param.shape.clone());
    let noise = noise(name);
    let (scale, base) = match shape.dims() {
        [_, inner @ ..] if inner.len() == 3 => {
            let fan_in: usize = inner.iter().product();
            ((2.0 / fan_in as f64).sqrt(), 0.0)
        }
        [_] if name.ends_with("weight") => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    param.init = Init::from_fn(move |index| {
        let noise = f64::from(noise(index_in_pytorch(&shape, index)));
        (base + scale * noise) as f32
    });
}

/// A network, and the images on which it is compared.
struct Case {
    network: &'static str,
    size: usize,
    batch: usize,
    classes: usize,
    loss: Loss,
    /// How far gradients may be, as a share of the norm of what is summed: in single precision a value near 0 may end
    /// on the other side of a ReLU, and another of four may be the largest.
    tolerance: f64,
}

impl Case {
    fn layers(&self, device: &Device) -> Vec<Box<dyn Layer>> {
        let config = ImageConfig {
            network: self.network.parse().unwrap(),
            channels: 3,
            classes: self.classes,
            dropout: 0.0,
        };
        let mut layers = image(&config).unwrap();
        for layer in &mut layers {
            layer.params(&mut begin);
            make(layer.as_mut(), device, 0).unwrap();
        }
        layers
    }

    fn images(
        &self,
        device: &Device,
        samples: Range<usize>,
        name: &str,
        channels: usize,
    ) -> Tensor {
        let shape = [samples.len(), self.size, self.size, channels];
        let values: usize = shape[1..].iter().product();
        let indices = samples.start * values..samples.end * values;
        let values: Vec<f32> = indices.map(noise(name)).collect();
        Tensor::from_f32(device, shape, values).unwrap()
    }

    fn targets(&self, device: &Device, samples: Range<usize>) -> Tensor {
        if self.loss == Loss::CrossEntropy {
            let labels = samples.clone().map(|i| (i * 3 % self.classes) as u32);
            return Tensor::from_u32(device, [samples.len()], labels.collect()).unwrap();
        }
        let mut masks = self.images(device, samples, "masks", 1);
        for value in masks.f32s_mut().unwrap() {
            *value = f32::from(*value > 0.0);
        }
        masks
    }

    /// A training step without its update: the loss.
    fn step(&self, layers: &mut [Box<dyn Layer>], device: &Device, micro_batches: usize) -> f64 {
        for layer in &mut *layers {
            layer.begin_mini_batch().unwrap();
        }
        let whole = self.targets(device, 0..self.batch);
        let divisor = self.loss.terms(&whole).unwrap();
        let rows = self.batch / micro_batches;
        let mut total = 0.0;
        for part in 0..micro_batches {
            let samples = part * rows..(part + 1) * rows;
            let cx = PassContext::training(0, 0, samples.start as u64..samples.end as u64);
            let mut left = Vec::new();
            let x = self.images(device, samples.clone(), "x", 3);
            let y = forward(layers, &cx, x, |saved, outputs| left.push((saved, outputs)));
            let targets = self.targets(device, samples);
            let (loss, dy) = self.loss.gradient(y, &targets, divisor).unwrap();
            total += loss;
            let mut flow = Tensors::from_iter([dy]);
            for (layer, (saved, outputs)) in layers.iter_mut().zip(left).rev() {
                let (dy, passing) = cut(flow, outputs);
                let mut dx = layer.backward(saved, dy).unwrap();
                dx.extend(passing);
                flow = dx;
            }
        }
        for layer in layers {
            layer.commit_mini_batch().unwrap();
        }
        total
    }

    /// Compares all that was recorded; how many parameters and statistics there were.
    fn compare(&self, micro_batches: usize) -> [usize; 2] {
        let recorded = match std::env::var_os("GPIPE_NETWORKS") {
            Some(file) => std::fs::read_to_string(file).unwrap(),
            None => include_str!("expected.json").to_owned(),
        };
        let expected: Value = serde_json::from_str(&recorded).unwrap();
        let expected = &expected[self.network][micro_batches.to_string()];
        let device = Host::new(2).unwrap().device(DeviceId::Cpu).unwrap();
        let mut layers = self.layers(&device);
        let loss = self.step(&mut layers, &device, micro_batches);
        let wanted = expected["loss"].as_f64().unwrap();
        assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} {wanted}");
        let what = format!("{}, M = {micro_batches}", self.network);
        let mut compared = [0; 2];
        for layer in &mut layers {
            layer.params(&mut |param| {
                let statistic = param.kind == Kind::Statistic;
                let (kind, tolerance, tensor) = match statistic {
                    true => ("statistics", STATISTICS, param.value().unwrap()),
                    false => ("gradients", self.tolerance, param.grad().unwrap()),
                };
                near(
                    &expected[kind][&param.name],
                    &summary(tensor),
                    tolerance,
                    || format!("{what}: {kind} of {}", param.name),
                );
                compared[usize::from(statistic)] += 1;
            });
        }
        let cx = PassContext::evaluation(0..self.batch as u64);
        let x = self.images(&device, 0..self.batch, "x", 3);
        let logits = forward(&layers, &cx, x, |_, _| ());
        let got = match logits.elements() {
            101.. => summary(&logits),
            _ => logits
                .f32s()
                .unwrap()
                .iter()
                .map(|&value| value.into())
                .collect(),
        };
        near(&expected["logits"], &got, LOGITS, || {
            format!("{what}: logits")
        });
        compared
    }
}

/// Fails unless numbers are those that were recorded, but for a share of the largest.
fn near(wanted: &Value, got: &[f64], tolerance: f64, what: impl Fn() -> String) {
    let wanted = wanted.as_array().cloned().unwrap_or_default();
    let wanted: Vec<f64> = wanted.iter().filter_map(Value::as_f64).collect();
    let most = wanted
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    let same = wanted.len() == got.len()
        && wanted
            .iter()
            .zip(got)
            .all(|(wanted, got)| (wanted - got).abs() <= tolerance * most);
    assert!(same, "{}: {got:?} instead of {wanted:?}", what());
}

/// What the layers make of images; `left` takes what each leaves, with the number of its outputs.
fn forward(
    layers: &[Box<dyn Layer>],
    cx: &PassContext,
    x: Tensor,
    mut left: impl FnMut(Saved, usize),
) -> Tensor {
    let mut flow = Tensors::from_iter([x]);
    for layer in layers {
        let (x, passing) = cut(flow, layer.arity());
        let shapes: Vec<Flow> = x.iter().map(|x| Flow::f32(x.shape().clone())).collect();
        let outputs = layer.cost(&shapes).unwrap().outputs.len();
        let (mut y, saved) = layer.forward(cx, x).unwrap();
        y.extend(passing);
        flow = y;
        left(saved, outputs);
    }
    flow.into_iter().next().unwrap()
}

/// The first tensors of a flow, and those that pass by.
fn cut(flow: Tensors, takes: usize) -> (Tensors, Tensors) {
    let mut flow = flow.into_iter();
    (flow.by_ref().take(takes).collect(), flow.collect())
}

/// The norm of a tensor, and its product with noise.
fn summary(tensor: &Tensor) -> Vec<f64> {
    let values = tensor.f32s().unwrap();
    let square: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
    let noise = noise("probe");
    let probe = values.iter().enumerate().map(|(index, &value)| {
        f64::from(value) * f64::from(noise(index_in_pytorch(tensor.shape(), index)))
    });
    vec![square.sqrt(), probe.sum()]
}

#[test]
fn resnets_are_those_of_pytorch() {
    // Through 50 layers, PyTorch's own single precision is up to 0.08 from its double precision here.
    for (network, parameters, statistics, tolerance, micro_batches) in [
        ("resnet18", 62, 40, 1e-2, &[1, 2][..]),
        ("resnet50", 161, 106, 0.1, &[2]),
    ] {
        let case = Case {
            network,
            size: 64,
            batch: 4,
            classes: 10,
            loss: Loss::CrossEntropy,
            tolerance,
        };
        for micro_batches in micro_batches {
            assert_eq!(case.compare(*micro_batches), [parameters, statistics]);
        }
    }
}

#[test]
fn a_unet_is_that_of_pytorch() {
    let case = Case {
        network: "unet:2,4",
        size: 76,
        batch: 2,
        classes: 1,
        loss: Loss::BinaryCrossEntropy,
        tolerance: 1e-2,
    };
    for micro_batches in [1, 2] {
        assert_eq!(case.compare(micro_batches), [11 * 2 + 1, 0]);
    }
}

#[test]
fn an_amoebanet_is_that_of_pytorch() {
    let case = Case {
        network: "amoebanetd:3,16",
        size: 96,
        batch: 4,
        classes: 10,
        loss: Loss::CrossEntropy,
        tolerance: 1e-2,
    };
    for micro_batches in [1, 2] {
        assert_eq!(case.compare(micro_batches), [246, 160]);
    }
}
