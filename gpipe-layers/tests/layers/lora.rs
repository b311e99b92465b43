//! Adapters of linear layers.

use gpipe_layers::layers::{Dropout, Layout, Linear, LoraLinear, LoraSettings};
use gpipe_layers::{Flow, Init, Layer, make, try_params};
use gpipe_tensor::{Shape, Tensor};

use super::cases::{Case, Sizes, cx, device, f64s, one, random};
use super::reference as plain;

const RATE: f32 = 0.3;

fn settings(dropout: f32) -> LoraSettings {
    LoraSettings {
        rank: 2,
        alpha: 3.0,
        dropout,
    }
}

/// The layer, in both layouts, with a bias and without, with dropout and without.
pub fn all(s: Sizes) -> Vec<Case> {
    let w = s.width();
    let outputs = w + 3;
    let adapter = |name, layout, dropout| {
        let base = Linear::new(name, w, outputs, layout);
        let base = match layout {
            Layout::InOut => base,
            Layout::OutIn => base.without_bias(),
        };
        LoraLinear::new(base, settings(dropout)).unwrap()
    };
    let case = |name: &'static str, layout, dropout| {
        let factors = factors(s, &format!("{name}.lora_dropout"), dropout);
        Case {
            layer: Box::new(adapter(name, layout, dropout)),
            input: Flow::f32([s.batch, s.time, w]),
            reference: Box::new(move |p, x| {
                let (weight, rest) = p.split_first().unwrap();
                let (bias, [a, b]) = match rest {
                    [bias, a, b] => (bias.as_slice(), [a, b]),
                    [a, b] => (&[][..], [a, b]),
                    _ => panic!("{} parameters", p.len()),
                };
                let y = plain::linear(x, w, weight, bias, layout);
                let dropped: Vec<f64> = x.iter().zip(&factors).map(|(x, f)| x * f).collect();
                let inner = plain::linear(&dropped, w, a, &[], Layout::OutIn);
                let update = plain::linear(&inner, 2, b, &[], Layout::OutIn);
                y.iter().zip(update).map(|(y, u)| y + 1.5 * u).collect()
            }),
        }
    };
    vec![
        case("lora", Layout::OutIn, 0.0),
        case("lora conv1d", Layout::InOut, 0.0),
        case("lora dropped", Layout::OutIn, RATE),
    ]
}

/// What dropout multiplies each element of the input with.
fn factors(s: Sizes, name: &str, rate: f32) -> Vec<f64> {
    let device = device();
    let mut ones = Tensor::empty(&device, [s.batch, s.time, s.width()]).unwrap();
    ones.f32s_mut().unwrap().fill(1.0);
    let layer = Dropout::new(name, rate).unwrap();
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
    let (mut base, mut layer) = (new(), LoraLinear::new(new(), settings(RATE)).unwrap());
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

/// Sums of 6 and of 2 products of numbers within about 1, in another order: within some ten roundings.
#[test]
fn a_merged_weight_computes_the_same() {
    let device = device();
    let x = random(&device, &Shape::from([2, 5, 6]), "input");
    for layout in [Layout::InOut, Layout::OutIn] {
        let base = Linear::new("base", 6, 4, layout).without_bias();
        let mut layer = LoraLinear::new(base, settings(RATE)).unwrap();
        make(&mut layer, &device, 1).unwrap();
        let before = output(&layer, &x);
        try_params(&mut layer, |param| {
            param.set_value(&random(&device, &param.shape, &param.name))
        })
        .unwrap();
        let weight = layer.merged_weight().unwrap().to_f32s().unwrap();
        let mut merged = Linear::new("base", 6, 4, layout)
            .without_bias()
            .init(Init::values(weight), Init::Zeros);
        make(&mut merged, &device, 1).unwrap();
        let (adapted, merged) = (output(&layer, &x), output(&merged, &x));
        assert_ne!(bits(&adapted), bits(&before));
        for (a, m) in adapted.iter().zip(&merged) {
            assert!((a - m).abs() < 1e-5, "{layout:?}: {a} and {m}");
        }
    }
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
        LoraLinear::new(base, settings).unwrap_err().to_string()
    };
    assert!(refused(0, 8.0, 0.0).contains("q_proj: the rank of LoRA is 0: use at least 1"));
    assert!(refused(2, f32::NAN, 0.0).contains("q_proj: LoRA's alpha is NaN"));
    assert!(refused(2, 8.0, 1.0).contains("q_proj.lora_dropout: dropout is 1"));
}
