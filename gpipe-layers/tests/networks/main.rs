//! Small networks against PyTorch: loss, gradients and running statistics, recorded by `reference.py` in double
//! precision.

use gpipe_layers::models::{ImageConfig, image};
use gpipe_layers::{Flow, Init, Kind, Layer, Loss, Param, PassContext, make};
use gpipe_tensor::{Device, DeviceId, Host, Shape, Tensor, Tensors};
use serde_json::Value;

/// Rounding in single precision, through the whole network, of a number that is a sum over a parameter: as a
/// share of the norm of what is summed. A value near 0 may end on the other side of a ReLU, and another of four may
/// be the largest.
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

/// A network, and the images on which it is compared.
struct Case {
    network: &'static str,
    size: usize,
    batch: usize,
    classes: usize,
    loss: Loss,
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

    fn images(&self, device: &Device, name: &str, channels: usize) -> Tensor {
        let shape = [self.batch, self.size, self.size, channels];
        let values = (0..shape.iter().product()).map(|index| noise(name, index));
        Tensor::from_f32(device, shape, values.collect::<Vec<_>>()).unwrap()
    }

    fn targets(&self, device: &Device) -> Tensor {
        if self.loss == Loss::CrossEntropy {
            let labels = (0..self.batch).map(|i| (i * 3 % self.classes) as u32);
            return Tensor::from_u32(device, [self.batch], labels.collect()).unwrap();
        }
        let mut masks = self.images(device, "masks", 1);
        for value in masks.f32s_mut().unwrap() {
            *value = f32::from(*value > 0.0);
        }
        masks
    }

    /// A training step without its update: the loss.
    fn step(&self, layers: &mut [Box<dyn Layer>], device: &Device) -> f64 {
        let cx = PassContext::training(0, 0, 0..self.batch as u64);
        let mut flow = Tensors::from_iter([self.images(device, "x", 3)]);
        let mut left = Vec::new();
        for layer in &mut *layers {
            layer.begin_mini_batch().unwrap();
        }
        for layer in &*layers {
            let (x, passing) = cut(flow, layer.arity());
            let shapes: Vec<Flow> = x.iter().map(|x| Flow::f32(x.shape().clone())).collect();
            let outputs = layer.cost(&shapes).unwrap().outputs.len();
            let (mut y, saved) = layer.forward(&cx, x).unwrap();
            y.extend(passing);
            flow = y;
            left.push((saved, outputs));
        }
        let (targets, y) = (self.targets(device), flow.into_iter().next().unwrap());
        let divisor = self.loss.terms(&targets).unwrap();
        let (loss, dy) = self.loss.gradient(y, &targets, divisor).unwrap();
        let mut flow = Tensors::from_iter([dy]);
        for (layer, (saved, outputs)) in layers.iter_mut().zip(left).rev() {
            let (dy, passing) = cut(flow, outputs);
            let mut dx = layer.backward(saved, dy).unwrap();
            dx.extend(passing);
            flow = dx;
        }
        for layer in layers {
            layer.commit_mini_batch().unwrap();
        }
        loss
    }

    /// Compares all that was recorded; how many parameters and statistics there were.
    fn compare(&self) -> [usize; 2] {
        let expected: Value = serde_json::from_str(include_str!("expected.json")).unwrap();
        let expected = &expected[self.network];
        let device = Host::new(2).unwrap().device(DeviceId::Cpu).unwrap();
        let mut layers = self.layers(&device);
        let loss = self.step(&mut layers, &device);
        let wanted = expected["loss"].as_f64().unwrap();
        assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} {wanted}");
        let mut compared = [0; 2];
        for layer in &mut layers {
            layer.params(&mut |param| {
                let statistic = param.kind == Kind::Statistic;
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
                    "{kind} of {}: {got:?} instead of {wanted}",
                    param.name
                );
                compared[usize::from(statistic)] += 1;
            });
        }
        compared
    }
}

/// The first tensors of a flow, and those that pass by.
fn cut(flow: Tensors, takes: usize) -> (Tensors, Tensors) {
    let mut flow = flow.into_iter();
    (flow.by_ref().take(takes).collect(), flow.collect())
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
fn a_unet_has_the_loss_and_gradients_of_pytorch() {
    let case = Case {
        network: "unet:2,4",
        size: 76,
        batch: 2,
        classes: 1,
        loss: Loss::BinaryCrossEntropy,
    };
    assert_eq!(case.compare(), [11 * 2 + 1, 0]);
}

#[test]
fn an_amoebanet_has_the_loss_gradients_and_statistics_of_pytorch() {
    let case = Case {
        network: "amoebanetd:3,16",
        size: 96,
        batch: 4,
        classes: 10,
        loss: Loss::CrossEntropy,
    };
    assert_eq!(case.compare(), [246, 160]);
}
