//! An encoder-decoder against PyTorch's `Transformer`: losses and gradients, recorded by `reference.py` in double
//! precision, with a pair a row and with several packed into one.

use gpipe_layers::models::{Seq2SeqConfig, seq2seq};
use gpipe_layers::{Init, Layer, Loss, Param, PassContext, make};
use gpipe_tensor::{Device, DeviceId, Host, Tensor, Tensors, ops};
use serde_json::Value;

const VOCAB: usize = 11;
const WIDTH: usize = 8;
/// Lengths of source and target.
const PAIRS: [[usize; 2]; 4] = [[3, 2], [4, 5], [5, 3], [2, 4]];
/// The pairs of each row.
const UNPACKED: &[&[usize]] = &[&[0], &[1], &[2], &[3]];
const PACKED: &[&[usize]] = &[&[0, 1], &[2, 3]];
const RATE: f32 = 0.2;
const SMOOTHING: f32 = 0.1;

/// Rounding in single precision through five layers, of numbers of about 1.
const TOLERANCE: f64 = 2e-5;

fn hash(name: &str, index: usize) -> u32 {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811C_9DC5, fnv);
    let mut hash = (index as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(seed);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x045D_9F3B);
    hash ^ hash >> 16
}

/// A number from -1 to below 1.
fn noise(name: &str, index: usize) -> f32 {
    (f64::from(hash(name, index)) / f64::from(1_u32 << 31) - 1.0) as f32
}

/// The value that a parameter begins with.
fn begin(param: &mut Param) {
    let name = param.name.clone();
    let (scale, base) = match param.shape.dims() {
        &[_, inputs] => ((3.0 / inputs as f64).sqrt(), 0.0),
        _ if name.contains("norm") && name.ends_with("weight") => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    param.init = Init::from_fn(move |index| (base + scale * f64::from(noise(&name, index))) as f32);
}

fn model(device: &Device, transparent: bool) -> Vec<Box<dyn Layer>> {
    let mut layers = seq2seq(&Seq2SeqConfig {
        vocab: VOCAB,
        width: WIDTH,
        inner: 12,
        encoder_blocks: 2,
        decoder_blocks: 2,
        heads: 2,
        layer_norm_eps: 1e-6,
        dropout: 0.0,
        transparent,
    })
    .unwrap();
    for layer in &mut layers {
        layer.params(&mut begin);
        make(layer.as_mut(), device, 0).unwrap();
    }
    layers
}

/// Inputs and targets of pairs in these rows, with `more` positions of padding.
fn batch(device: &Device, rows: &[&[usize]], more: usize) -> (Tensors, Tensor) {
    let lengths = |side: usize| {
        let of_row = |row: &&[usize]| row.iter().map(|&pair| PAIRS[pair][side]).sum::<usize>();
        rows.iter().map(of_row).max().unwrap() + more
    };
    let tensor = |side: usize, filling: u32, value: &dyn Fn(usize, u32, usize) -> u32| {
        let length = lengths(side);
        let mut all = Vec::new();
        for row in rows {
            let start = all.len();
            for (&pair, segment) in row.iter().zip(1..) {
                all.extend((0..PAIRS[pair][side]).map(|i| value(pair, segment, i)));
            }
            all.resize(start + length, filling);
        }
        Tensor::from_u32(device, [rows.len(), length], all).unwrap()
    };
    let ids = |name: &'static str| {
        move |pair: usize, _: u32, i: usize| hash(&format!("{name} {pair}"), i) % VOCAB as u32
    };
    let segment = |_: usize, segment: u32, _: usize| segment;
    let inputs = Tensors::from_iter([
        tensor(0, 7, &ids("source")),
        tensor(0, 0, &segment),
        tensor(1, 7, &ids("target")),
        tensor(1, 0, &segment),
    ]);
    (inputs, tensor(1, ops::IGNORE, &ids("label")))
}

/// A layer on the first tensors of a flow; the others pass by.
fn on_first<T>(
    mut flow: Tensors,
    taken: usize,
    run: impl FnOnce(Tensors) -> (Tensors, T),
) -> (Tensors, T) {
    let passing: Vec<Tensor> = flow.drain(taken.min(flow.len())..).collect();
    let (mut y, left) = run(flow);
    y.extend(passing);
    (y, left)
}

fn floats(flow: &Tensors) -> usize {
    flow.iter().filter(|x| x.dtype().is_float()).count()
}

/// The loss of a batch; gradients are added to the parameters.
fn pass(layers: &mut [Box<dyn Layer>], loss: Loss, (x, labels): (Tensors, Tensor)) -> f64 {
    let cx = PassContext::training(0, 0, 0..x[0].shape().rows() as u64);
    let (mut flow, mut left) = (x, Vec::new());
    for layer in &*layers {
        let (y, saved) = on_first(flow, layer.arity(), |x| {
            let (y, saved) = layer.forward(&cx, x).unwrap();
            let gradients = floats(&y);
            (y, (saved, gradients))
        });
        left.push(saved);
        flow = y;
    }
    let divisor = loss.terms(&labels).unwrap();
    let logits = flow.into_iter().next().unwrap();
    let (value, dy) = loss.gradient(logits, &labels, divisor).unwrap();
    let mut flow = Tensors::from_iter([dy]);
    for (layer, (saved, gradients)) in layers.iter_mut().zip(left).rev() {
        let run = |dy| (layer.backward(saved, dy).unwrap(), ());
        flow = on_first(flow, gradients, run).0;
    }
    assert!(flow.is_empty());
    value
}

fn expected() -> Value {
    serde_json::from_str(include_str!("expected.json")).unwrap()
}

fn close(got: f64, wanted: &Value, what: &str) {
    let wanted = wanted.as_f64().unwrap();
    let bound = TOLERANCE * wanted.abs().max(1.0);
    assert!((got - wanted).abs() < bound, "{what}: {got}, {wanted}");
}

/// Lingvo's ε is smaller than PyTorch's by V/(V − 1).
#[test]
fn the_smoothed_loss_is_that_of_pytorch() {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    for rows in [UNPACKED, PACKED] {
        let loss = Loss::SmoothedCrossEntropy(SMOOTHING);
        let loss = pass(&mut model(&device, false), loss, batch(&device, rows, 1));
        close(loss, &expected()["smoothed"], "smoothed loss");
    }
}

#[test]
fn losses_and_gradients_are_those_of_pytorch_packed_or_not() {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    for transparent in [false, true] {
        let expected = match transparent {
            false => expected(),
            true => expected()["transparent"].clone(),
        };
        losses_and_gradients(&device, &expected, transparent);
    }
}

fn losses_and_gradients(device: &Device, expected: &Value, transparent: bool) {
    let mut names = expected["gradients"].as_object().unwrap().len();
    for (rows, more) in [(UNPACKED, 0), (PACKED, 0), (PACKED, 3)] {
        let mut layers = model(device, transparent);
        for (step, wanted) in expected["losses"].as_array().unwrap().iter().enumerate() {
            let loss = pass(&mut layers, Loss::CrossEntropy, batch(device, rows, more));
            close(loss, wanted, "loss");
            for layer in &mut layers {
                layer.params(&mut |param| {
                    let gradient = param.grad.as_mut().unwrap();
                    let values = gradient.to_f32s().unwrap();
                    if step == 0 {
                        let wanted = &expected["gradients"][&param.name];
                        let squares = values.iter().map(|g| f64::from(*g).powi(2));
                        close(squares.sum::<f64>().sqrt(), &wanted[0], &param.name);
                        let of = format!("dot {}", param.name);
                        let products = values.iter().enumerate();
                        let products = products.map(|(i, g)| f64::from(g * noise(&of, i)));
                        close(products.sum(), &wanted[1], &param.name);
                        names = names.saturating_sub(usize::from(rows == UNPACKED));
                    }
                    gradient.fill(0.0).unwrap();
                    let value = param.value.as_mut().unwrap();
                    let pairs = value.f32s_mut().unwrap().iter_mut().zip(values);
                    pairs.for_each(|(value, gradient)| *value -= RATE * gradient);
                });
            }
        }
    }
    assert_eq!(names, 0, "parameters that only one side has");
}
