//! A ResNet-18 against PyTorch: losses, gradients and running statistics, recorded by `reference.py` in double
//! precision, with the same number of micro-batches on both sides.

use gpipe_layers::models::{ImageConfig, image};
use gpipe_layers::{Init, Kind, Layer, Loss, Param, PassContext, make};
use gpipe_tensor::{Device, DeviceId, Host, Shape, Tensor, Tensors};
use serde_json::Value;

const SIZE: usize = 64;
const BATCH: usize = 4;
const CLASSES: usize = 10;

/// Rounding in single precision, through the whole network, of a number that is a sum over a parameter: as a
/// share of the norm of what is summed. A value near 0 may end on the other side of a ReLU.
const TOLERANCE: f64 = 1e-2;

/// A number from -1 to below 1 for an element: a hash of its index and the name.
fn noise(name: &str, index: usize) -> f32 {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811C_9DC5, fnv);
    let mut hash = (index as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(seed);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x045D_9F3B);
    hash ^= hash >> 16;
    (f64::from(hash) / f64::from(1_u32 << 31) - 1.0) as f32
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
    let (name, shape) = (param.name.clone(), param.shape.clone());
    let (scale, base) = match shape.dims() {
        [_, inner @ ..] if inner.len() == 3 => {
            let fan_in: usize = inner.iter().product();
            ((2.0 / fan_in as f64).sqrt(), 0.0)
        }
        [_] if name.ends_with("weight") => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    param.init = Init::from_fn(move |index| {
        let noise = noise(&name, index_in_pytorch(&shape, index));
        (base + scale * f64::from(noise)) as f32
    });
}

fn layers(device: &Device) -> Vec<Box<dyn Layer>> {
    let config = ImageConfig {
        network: "resnet18".parse().unwrap(),
        channels: 3,
        classes: CLASSES,
        dropout: 0.0,
    };
    let mut layers = image(&config).unwrap();
    for layer in &mut layers {
        layer.params(&mut begin);
        make(layer.as_mut(), device, 0).unwrap();
    }
    layers
}

/// A training step without its update: the loss.
fn step(layers: &mut [Box<dyn Layer>], device: &Device, micro_batches: usize) -> f64 {
    let rows = BATCH / micro_batches;
    let values = SIZE * SIZE * 3;
    let mut total = 0.0;
    for layer in &mut *layers {
        layer.begin_mini_batch().unwrap();
    }
    for part in 0..micro_batches {
        let samples = part * rows..(part + 1) * rows;
        let pixels: Vec<f32> = (samples.start * values..samples.end * values)
            .map(|index| noise("x", index))
            .collect();
        let labels = samples.clone().map(|i| (i * 3 % CLASSES) as u32).collect();
        let labels = Tensor::from_u32(device, [rows], labels).unwrap();
        let cx = PassContext::training(0, 0, samples.start as u64..samples.end as u64);
        let mut flow =
            Tensors::from_iter([Tensor::from_f32(device, [rows, SIZE, SIZE, 3], pixels).unwrap()]);
        let mut left = Vec::new();
        for layer in &*layers {
            let (y, saved) = with_passing(flow, layer.arity(), |x| layer.forward(&cx, x).unwrap());
            left.push(saved);
            flow = y;
        }
        let y = flow.into_iter().next().unwrap();
        let (loss, dy) = Loss::CrossEntropy
            .gradient(y, &labels, BATCH as f64)
            .unwrap();
        total += loss;
        let mut flow = Tensors::from_iter([dy]);
        for (layer, saved) in layers.iter_mut().zip(left).rev() {
            // A fork has two outputs; a layer at the second place takes the first as well.
            let takes = match layer.name().rsplit('.').next() {
                Some("fork" | "0" | "1") => 2,
                _ => 1,
            };
            let (dx, ()) = with_passing(flow, takes, |dy| (layer.backward(saved, dy).unwrap(), ()));
            flow = dx;
        }
    }
    for layer in layers {
        layer.commit_mini_batch().unwrap();
    }
    total
}

/// What `call` makes of the first tensors of a flow, and the others behind it.
fn with_passing<T>(
    flow: Tensors,
    takes: usize,
    call: impl FnOnce(Tensors) -> (Tensors, T),
) -> (Tensors, T) {
    let mut flow = flow.into_iter();
    let taken: Tensors = flow.by_ref().take(takes).collect();
    let (mut made, other) = call(taken);
    made.extend(flow);
    (made, other)
}

/// The norm of a tensor, and its product with noise.
fn summary(tensor: &Tensor) -> [f64; 2] {
    let values = tensor.f32s().unwrap();
    let square: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
    let probe = values.iter().enumerate().map(|(index, &value)| {
        f64::from(value) * f64::from(noise("probe", index_in_pytorch(tensor.shape(), index)))
    });
    [square.sqrt(), probe.sum()]
}

#[test]
fn losses_gradients_and_statistics_are_those_of_pytorch() {
    let expected: Value = serde_json::from_str(include_str!("expected.json")).unwrap();
    let device = Host::new(2).unwrap().device(DeviceId::Cpu).unwrap();
    for micro_batches in [1, 2] {
        let expected = &expected[micro_batches.to_string()];
        let mut layers = layers(&device);
        let loss = step(&mut layers, &device, micro_batches);
        let wanted = expected["loss"].as_f64().unwrap();
        assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} {wanted}");
        let mut compared = [0, 0];
        for layer in &mut layers {
            layer.params(&mut |param| {
                let statistic = param.kind == Kind::Statistic;
                if statistic && micro_batches > 1 {
                    return;
                }
                let (kind, tensor) = match statistic {
                    true => ("statistics", param.value().unwrap()),
                    false => ("gradients", param.grad().unwrap()),
                };
                let wanted = &expected[kind][&param.name];
                let [norm, probe] = [0, 1].map(|i| wanted[i].as_f64().unwrap_or(f64::NAN));
                let got = summary(tensor);
                let near = |got: f64, wanted: f64| (got - wanted).abs() <= TOLERANCE * norm;
                assert!(
                    near(got[0], norm) && near(got[1], probe),
                    "M = {micro_batches}, {} of {}: {got:?} instead of {wanted}",
                    kind,
                    param.name
                );
                compared[usize::from(statistic)] += 1;
            });
        }
        assert_eq!(compared, [62, if micro_batches == 1 { 40 } else { 0 }]);
    }
}
