//! Adapters of linear layers.

use gpipe_layers::layers::{Dropout, GeluLinear, Glu, Layout, Linear, RotaryQkv};
use gpipe_layers::{Flow, Gelu, Layer, LoraSettings, make};
use gpipe_tensor::ops::{Rope, RopeScaling};
use gpipe_tensor::{Shape, Tensor};

use super::cases::{Case, Sizes, cx, device, f64s, one, random};
use super::{llama, reference as plain};

const RATE: f32 = 0.3;

fn settings(dropout: f32) -> LoraSettings {
    LoraSettings {
        rank: 2,
        alpha: 3.0,
        dropout,
    }
}

/// A linear layer of this name with an adapter; with a bias if it is in the layout (in, out).
fn adapter(name: &str, [inputs, outputs]: [usize; 2], layout: Layout, dropout: f32) -> Linear {
    let base = Linear::new(name, inputs, outputs, layout);
    let base = match layout {
        Layout::InOut => base,
        Layout::OutIn => base.without_bias(),
    };
    base.with_lora(settings(dropout)).unwrap()
}

/// What [`adapter`] computes of its parameters and of x; `factors` are those of its dropout.
fn adapted(p: &[Vec<f64>], x: &[f64], inputs: usize, layout: Layout, factors: &[f64]) -> Vec<f64> {
    let (bias, [a, b]) = match p {
        [_, bias, a, b] => (bias.as_slice(), [a, b]),
        [_, a, b] => (&[][..], [a, b]),
        _ => panic!("{} parameters", p.len()),
    };
    let y = plain::linear(x, inputs, &p[0], bias, layout);
    let dropped: Vec<f64> = x.iter().zip(factors).map(|(x, f)| x * f).collect();
    let inner = plain::linear(&dropped, inputs, a, &[], Layout::OutIn);
    let update = plain::linear(&inner, 2, b, &[], Layout::OutIn);
    y.iter().zip(update).map(|(y, u)| y + 1.5 * u).collect()
}

/// The layer in both layouts, with dropout and without, and inside the layers that hold it.
pub fn all(s: Sizes) -> Vec<Case> {
    let (w, wide) = (s.width(), s.width() + 3);
    let stream = |width| Flow::f32([s.batch, s.time, width]);
    let factors = move |name: &str, width, rate| factors(s, width, name, rate);
    let alone = |name: &'static str, layout, dropout| {
        let factors = factors(name, w, dropout);
        Case {
            layer: Box::new(adapter(name, [w, wide], layout, dropout)),
            input: stream(w),
            reference: Box::new(move |p, x| adapted(p, x, w, layout, &factors)),
        }
    };
    let (into, out) = (Layout::InOut, Layout::OutIn);
    let of_gelu = factors("lora gelu", wide, RATE);
    let gelu = Case {
        layer: Box::new(GeluLinear::new(
            Gelu::Tanh,
            adapter("lora gelu", [wide, w], into, RATE),
        )),
        input: stream(wide),
        reference: Box::new(move |p, x| {
            let x: Vec<f64> = x.iter().copied().map(plain::gelu_tanh).collect();
            adapted(p, &x, wide, into, &of_gelu)
        }),
    };
    let (queries, keys) = (2 * 2 * s.heads, 2 * s.heads);
    let rope = Rope {
        size: 2,
        theta: llama::THETA,
        scaling: RopeScaling::Unscaled,
        first: 0,
    };
    let projections = [
        adapter("q", [w, queries], out, 0.0),
        Linear::new("k", w, keys, out),
        adapter("v", [w, keys], out, RATE),
    ];
    let (of_q, of_v) = (factors("q", w, 0.0), factors("v", w, RATE));
    let qkv = Case {
        layer: Box::new(RotaryQkv::new("lora qkv", projections, s.heads, rope)),
        input: stream(w),
        reference: Box::new(move |p, x| {
            let q = adapted(&p[..3], x, w, out, &of_q);
            let k = plain::linear(x, w, &p[3], &p[4], out);
            let v = adapted(&p[5..], x, w, out, &of_v);
            llama::packed([&q, &k, &v], s.time, [queries, keys], 2)
        }),
    };
    // Each map with an adapter whose dropout takes most memory, and all of them.
    let swiglu = |name: &'static str, adapts: [bool; 3]| {
        let map = |name, sizes: [usize; 2], adapts| match adapts {
            true => adapter(name, sizes, into, RATE),
            false => Linear::new(name, sizes[0], sizes[1], into),
        };
        let (up, down) = ([w, wide], [wide, w]);
        let [of_gate, of_up] = ["gate", "up"].map(|name| factors(name, w, RATE));
        let of_down = factors("down", wide, RATE);
        let net = Glu::new(
            name,
            map("gate", up, adapts[0]),
            map("up", up, adapts[1]),
            map("down", down, adapts[2]),
        );
        let apply = move |p: &mut &[Vec<f64>], x: &[f64], width, adapts, factors: &[f64]| {
            let (own, rest) = p.split_at(if adapts { 4 } else { 2 });
            *p = rest;
            match adapts {
                true => adapted(own, x, width, into, factors),
                false => plain::linear(x, width, &own[0], &own[1], into),
            }
        };
        Case {
            layer: Box::new(net),
            input: stream(w),
            reference: Box::new(move |mut p, x| {
                let gate = apply(&mut p, x, w, adapts[0], &of_gate);
                let up = apply(&mut p, x, w, adapts[1], &of_up);
                let product = gate.iter().zip(&up);
                let product: Vec<f64> = product.map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                apply(&mut p, &product, wide, adapts[2], &of_down)
            }),
        }
    };
    vec![
        alone("lora", out, 0.0),
        alone("lora conv1d", into, 0.0),
        alone("lora dropped", out, RATE),
        gelu,
        qkv,
        swiglu("lora swiglu", [true; 3]),
        swiglu("lora up", [false, true, false]),
        swiglu("lora down", [false, false, true]),
    ]
}

/// What dropout multiplies each element of the input with.
fn factors(s: Sizes, width: usize, name: &str, rate: f32) -> Vec<f64> {
    let device = device();
    let mut ones = Tensor::empty(&device, [s.batch, s.time, width]).unwrap();
    ones.f32s_mut().unwrap().fill(1.0);
    let layer = Dropout::new(format!("{name}.lora_dropout"), rate).unwrap();
    f64s(&layer.forward(&cx(s.batch), one(ones)).unwrap().0[0])
}

fn output(layer: &dyn Layer, x: &Tensor) -> Vec<f32> {
    let mut evaluation = cx(2);
    evaluation.train = false;
    let (y, _) = layer.forward(&evaluation, one(x.clone())).unwrap();
    y[0].to_f32s().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn an_adapter_begins_as_its_base_and_trains_two_matrices() {
    let device = device();
    let x = random(&device, &Shape::from([2, 5, 6]), "input");
    let new = || Linear::new("h.0.c_attn", 6, 4, Layout::InOut);
    let (mut base, mut layer) = (new(), new().with_lora(settings(RATE)).unwrap());
    make(&mut base, &device, 7).unwrap();
    make(&mut layer, &device, 7).unwrap();
    assert_eq!(bits(&output(&layer, &x)), bits(&output(&base, &x)));

    let mut params = Vec::new();
    layer.params(&mut |param| {
        let dims = param.shape.dims().to_vec();
        params.push((param.name.clone(), dims, param.grad.is_some()));
        if param.name.ends_with("lora_A.weight") {
            let bound = 6f32.sqrt().recip();
            let a = param.value().unwrap().to_f32s().unwrap();
            assert!(a.iter().all(|a| a.abs() <= bound && *a != 0.0));
        }
    });
    let expected = [
        ("h.0.c_attn.weight", vec![6, 4], false),
        ("h.0.c_attn.bias", vec![4], false),
        ("h.0.c_attn.lora_A.weight", vec![2, 6], true),
        ("h.0.c_attn.lora_B.weight", vec![4, 2], true),
    ];
    let expected = expected.map(|(name, dims, trained)| (name.to_owned(), dims, trained));
    assert_eq!(params, expected);
}

#[test]
fn settings_that_mean_nothing_are_refused_by_name() {
    let refused = |rank, alpha, dropout| {
        let base = Linear::new("q_proj", 6, 4, Layout::OutIn);
        let settings = LoraSettings {
            rank,
            alpha,
            dropout,
        };
        base.with_lora(settings).unwrap_err().to_string()
    };
    assert!(refused(0, 8.0, 0.0).contains("q_proj: the rank of LoRA is 0: use at least 1"));
    assert!(refused(2, f32::NAN, 0.0).contains("q_proj: LoRA's alpha is NaN"));
    assert!(refused(2, 8.0, 1.0).contains("q_proj.lora_dropout: dropout is 1"));
}
