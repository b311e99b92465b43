//! The table of all layers.

use gpipe_layers::layers::{
    Activation, CausalAttention, Dropout, Embedding, Function, GeluLinear, Head, Identity,
    LayerNorm, Layout, Linear, Residual, Sequential,
};
use gpipe_layers::{Flow, Gelu, Layer, PassContext, make, try_params};
use gpipe_tensor::{Device, DeviceId, Host, Tensor, Tensors, init_uniform};

use super::{images, llama, lora, reference as plain};

/// What the random shapes are made of.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub batch: usize,
    pub time: usize,
    pub heads: usize,
    /// Columns of a head.
    pub size: usize,
    pub vocab: usize,
}

impl Sizes {
    pub fn width(self) -> usize {
        self.heads * self.size
    }
}

pub type Reference = Box<dyn Fn(&[Vec<f64>], &[f64]) -> Vec<f64>>;

/// A layer, what it takes, and what it should compute of its parameters and inputs.
pub struct Case {
    pub layer: Box<dyn Layer>,
    pub input: Flow,
    pub reference: Reference,
}

pub const EPS: f32 = 1e-5;

/// Every layer at these sizes.
pub fn all(s: Sizes) -> Vec<Case> {
    let (w, time, heads) = (s.width(), s.time, s.heads);
    let stream = || Flow::f32([s.batch, s.time, w]);
    let case = |layer: Box<dyn Layer>, input: Flow, reference: Reference| Case {
        layer,
        input,
        reference,
    };
    let (ids, same_ids) = (token_ids(s), token_ids(s));
    let mut cases = vec![
        case(
            Box::new(Linear::new("conv1d", w, w + 3, Layout::InOut)),
            stream(),
            Box::new(move |p, x| plain::linear(x, w, &p[0], &p[1], Layout::InOut)),
        ),
        case(
            Box::new(Linear::new("linear", w, w + 3, Layout::OutIn)),
            Flow::f32([s.batch, w]),
            Box::new(move |p, x| plain::linear(x, w, &p[0], &p[1], Layout::OutIn)),
        ),
        case(
            Box::new(Linear::new("unbiased", w, 2, Layout::InOut).without_bias()),
            stream(),
            Box::new(move |p, x| plain::linear(x, w, &p[0], &[], Layout::InOut)),
        ),
        case(
            Box::new(Head::new("head", w, s.vocab, 0.02).tied_to("wte.weight")),
            stream(),
            Box::new(move |p, x| plain::linear(x, w, &p[0], &[], Layout::OutIn)),
        ),
        case(
            Box::new(Embedding::new("tokens", s.vocab, w, 0.02)),
            Flow::u32([s.batch, s.time]),
            Box::new(move |p, _| plain::embedding(&ids, &p[0], w)),
        ),
        case(
            Box::new(Embedding::new("wte", s.vocab, w, 0.02).with_positions("wpe", s.time + 2)),
            Flow::u32([s.batch, s.time]),
            Box::new(move |p, _| {
                let tokens = plain::embedding(&same_ids, &p[0], w);
                plain::add(&tokens, &p[1][..time * w])
            }),
        ),
        case(
            Box::new(LayerNorm::new("norm", w, EPS)),
            stream(),
            Box::new(|p, x| plain::layer_norm(x, &p[0], &p[1], EPS.into())),
        ),
        case(
            Box::new(Activation::new("relu", Function::Relu)),
            stream(),
            Box::new(|_, x| x.iter().map(|x| x.max(0.0)).collect()),
        ),
        case(
            Box::new(Activation::new("tanh", Function::Gelu(Gelu::Tanh))),
            stream(),
            Box::new(|_, x| x.iter().copied().map(plain::gelu_tanh).collect()),
        ),
        case(
            Box::new(Activation::new("erf", Function::Gelu(Gelu::Erf))),
            stream(),
            Box::new(|_, x| x.iter().copied().map(plain::gelu_erf).collect()),
        ),
        case(
            Box::new(GeluLinear::new(
                Gelu::Erf,
                Linear::new("act_proj", w, 3, Layout::InOut),
            )),
            stream(),
            Box::new(move |p, x| {
                let x: Vec<f64> = x.iter().copied().map(plain::gelu_erf).collect();
                plain::linear(&x, w, &p[0], &p[1], Layout::InOut)
            }),
        ),
        case(
            Box::new(CausalAttention::new("attention", w, heads, 0.0).unwrap()),
            Flow::f32([s.batch, s.time, 3 * w]),
            Box::new(move |_, x| plain::attention(x, time, w, heads)),
        ),
        case(
            Box::new(Dropout::new("dropped", 0.4).unwrap()),
            stream(),
            dropped(s),
        ),
        case(
            Box::new(Dropout::new("kept", 0.0).unwrap()),
            stream(),
            Box::new(|_, x| x.to_vec()),
        ),
        case(
            Box::new(Identity::new("identity")),
            stream(),
            Box::new(|_, x| x.to_vec()),
        ),
        case(
            Box::new(Residual::new("half", attention_half(s))),
            stream(),
            Box::new(move |p, x| {
                let y = plain::layer_norm(x, &p[0], &p[1], EPS.into());
                let y = plain::linear(&y, w, &p[2], &p[3], Layout::InOut);
                let y = plain::attention(&y, time, w, heads);
                plain::add(x, &plain::linear(&y, w, &p[4], &p[5], Layout::InOut))
            }),
        ),
        case(
            Box::new(Residual::new("nothing inside", Sequential::new())),
            stream(),
            Box::new(|_, x| x.iter().map(|x| 2.0 * x).collect()),
        ),
    ];
    cases.extend(images::all(s));
    cases.extend(llama::all(s));
    cases.extend(lora::all(s));
    cases
}

fn attention_half(s: Sizes) -> Sequential {
    let w = s.width();
    Sequential::new()
        .then(LayerNorm::new("ln", w, EPS))
        .then(Linear::new("c_attn", w, 3 * w, Layout::InOut))
        .then(CausalAttention::new("core", w, s.heads, 0.0).unwrap())
        .then(Linear::new("c_proj", w, w, Layout::InOut))
}

/// Dropout is a product with factors that what it makes of ones shows.
fn dropped(s: Sizes) -> Reference {
    let device = device();
    let mut ones = Tensor::empty(&device, [s.batch, s.time, s.width()]).unwrap();
    ones.f32s_mut().unwrap().fill(1.0);
    let layer = Dropout::new("dropped", 0.4).unwrap();
    let (factors, _) = layer.forward(&cx(s.batch), one(ones)).unwrap();
    let factors = f64s(&factors[0]);
    assert!(
        factors
            .iter()
            .all(|&f| f == 0.0 || f == f64::from(1.0f32 / 0.6))
    );
    Box::new(move |_, x| x.iter().zip(&factors).map(|(x, f)| x * f).collect())
}

pub fn device() -> Device {
    Host::new(2).unwrap().device(DeviceId::Cpu).unwrap()
}

pub fn cx(batch: usize) -> PassContext {
    PassContext::training(5, 3, 10..10 + batch as u64)
}

pub fn one(tensor: Tensor) -> Tensors {
    Tensors::from_iter([tensor])
}

pub fn f64s(tensor: &Tensor) -> Vec<f64> {
    tensor
        .f32s()
        .unwrap()
        .iter()
        .copied()
        .map(f64::from)
        .collect()
}

fn token_ids(s: Sizes) -> Vec<u32> {
    let id = |i: usize| (i * i + 3 * i) as u32 % s.vocab as u32;
    (0..s.batch * s.time).map(id).collect()
}

/// Values in −1..1, none of them near the kink of ReLU.
pub fn random(device: &Device, shape: &gpipe_tensor::Shape, name: &str) -> Tensor {
    let mut tensor = init_uniform(device, shape.clone(), 1.0, 9, name).unwrap();
    for x in tensor.f32s_mut().unwrap() {
        *x += 0.05f32.copysign(*x);
    }
    tensor
}

impl Case {
    /// Makes the parameters with values that no term of a gradient vanishes for.
    pub fn make(&mut self, device: &Device) {
        make(self.layer.as_mut(), device, 1).unwrap();
        try_params(self.layer.as_mut(), |param| {
            param.set_value(&random(device, &param.shape, &param.name))
        })
        .unwrap();
    }

    pub fn input(&self, device: &Device, s: Sizes) -> Tensor {
        if self.layer.name() == images::LARGEST {
            return images::far_apart(device, &self.input.shape);
        }
        if self.input.dtype.is_float() {
            return random(device, &self.input.shape, "input");
        }
        Tensor::from_u32(device, self.input.shape.clone(), token_ids(s)).unwrap()
    }
}
