//! Layers of an encoder-decoder: gradients, bytes and split backward passes, and what they refuse.

use gpipe_layers::layers::{
    Discard, MultiHeadAttention, SinusoidEmbedding, TransparentAdd, TransparentSum,
    TransparentWeights,
};
use gpipe_layers::{Flow, Init, Layer, PassContext, check, make};
use gpipe_tensor::{Device, Tensor, Tensors};

use super::cases::device;

const WIDTH: usize = 6;

fn floats(device: &Device, time: usize, seed: usize) -> Tensor {
    let value = |i: usize| ((i * 7 + seed * 3) % 11) as f32 / 4.0 - 1.1;
    let values: Vec<f32> = (0..2 * time * WIDTH).map(value).collect();
    Tensor::from_f32(device, [2, time, WIDTH], values).unwrap()
}

fn indices(device: &Device, time: usize, values: &[u32]) -> Tensor {
    Tensor::from_u32(device, [2, time], values.to_vec()).unwrap()
}

#[test]
fn layers_with_segments_hold_what_they_say() {
    let device = device();
    // Two sequences in the first row, and in the second a target without a source, and padding.
    let targets = || indices(&device, 4, &[1, 1, 2, 2, 1, 2, 0, 0]);
    let sources = || indices(&device, 5, &[1, 1, 1, 2, 0, 1, 1, 0, 0, 0]);
    let attention = |causal| MultiHeadAttention::of_itself("self_attn", WIDTH, 2, causal).unwrap();
    let cross = || MultiHeadAttention::of_memory("multihead_attn", WIDTH, 3).unwrap();
    let ids = indices(&device, 4, &[0, 3, 3, 1, 2, 2, 1, 0]);
    let (x, memory) = (floats(&device, 4, 1), floats(&device, 5, 2));
    let (y, w) = (floats(&device, 4, 3), [0.5, 0.2, 0.3]);
    let w = Tensor::from_f32(&device, [1, 3], w).unwrap();
    let crossed = || vec![x.clone(), memory.clone(), targets(), sources()];
    let cases: Vec<(Box<dyn Layer>, Vec<Tensor>)> = vec![
        (Box::new(attention(false)), vec![x.clone(), targets()]),
        (Box::new(attention(true)), vec![x.clone(), targets()]),
        (
            Box::new(attention(true).dropping(0.3).unwrap()),
            vec![x.clone(), targets()],
        ),
        (Box::new(cross()), crossed()),
        (Box::new(cross().dropping(0.3).unwrap()), crossed()),
        (
            Box::new(SinusoidEmbedding::new("src_token_emb", 4, WIDTH).unwrap()),
            vec![ids, targets()],
        ),
        (Box::new(Discard::new("end", 4)), crossed()),
        (
            Box::new(transparent(0.3).scaled(0.7, 0.1).unwrap()),
            vec![x.clone(), targets()],
        ),
        (
            Box::new(TransparentAdd::new("add", 1)),
            vec![x.clone(), y.clone(), w.clone()],
        ),
        (
            Box::new(TransparentSum::new("sum", 2)),
            vec![x.clone(), targets(), y, w],
        ),
    ];
    for (mut layer, x) in cases {
        make(layer.as_mut(), &device, 0).unwrap();
        let (cx, x) = (PassContext::training(0, 0, 0..2), Tensors::from_vec(x));
        let copied: Tensors = x.iter().map(|x| x.copy_to(&device).unwrap()).collect();
        check::gradients(layer.as_mut(), &cx, &copied).unwrap();
        check::bytes(layer.as_mut(), &cx, &copied).unwrap();
        check::split(layer.as_mut(), &cx, &copied).unwrap();
    }
}

/// Weights of three outputs that differ.
fn transparent(rate: f32) -> TransparentWeights {
    let mut layer = TransparentWeights::new("transparent", 3, rate).unwrap();
    layer.params(&mut |param| param.init = Init::from_fn(|i| i as f32 / 4.0 - 0.3));
    layer
}

/// Whatever the samples of a micro-batch, a step has one mask, and another step another.
#[test]
fn weights_of_outputs_are_those_of_a_step() {
    let device = device();
    let weights = |step: u64, first: u64, train: bool| {
        let mut layer = transparent(0.5);
        make(&mut layer, &device, 0).unwrap();
        let mut cx = PassContext::training(3, step, first..first + 2);
        cx.train = train;
        let segments = indices(&device, 4, &[1; 8]);
        let x = Tensors::from_vec(vec![floats(&device, 4, first as usize), segments]);
        let (y, _) = layer.forward(&cx, x).unwrap();
        y[3].to_f32s().unwrap().to_vec()
    };
    let sure = weights(0, 0, false);
    let powers = [-0.3_f64, -0.05, 0.2].map(f64::exp);
    for (got, power) in sure.iter().zip(powers) {
        let wanted = power / powers.iter().sum::<f64>();
        assert!((f64::from(*got) - wanted).abs() < 1e-6, "{got}, {wanted}");
    }
    let steps: Vec<Vec<f32>> = (0..8).map(|step| weights(step, 0, true)).collect();
    assert!(steps.iter().any(|w| *w != steps[0] && *w != sure));
    for (step, w) in (0..).zip(&steps) {
        assert_eq!(weights(step, 2, true), *w);
        assert!((w.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
}

#[test]
fn flows_that_do_not_fit_are_refused_by_name() {
    let x = Flow::f32([2, 4, WIDTH]);
    let (ids, others) = (Flow::u32([2, 4]), Flow::u32([2, 5]));
    let attention = MultiHeadAttention::of_itself("self_attn", WIDTH, 2, true).unwrap();
    let cross = MultiHeadAttention::of_memory("multihead_attn", WIDTH, 2).unwrap();
    let embedding = SinusoidEmbedding::new("src_token_emb", 4, WIDTH).unwrap();
    let refusals: [(&dyn Layer, Vec<Flow>, &str); 5] = [
        (
            &attention,
            vec![x.clone(), others.clone()],
            "self_attn: expected",
        ),
        (
            &attention,
            vec![x.clone(), x.clone()],
            "self_attn: expected",
        ),
        (
            &cross,
            vec![x.clone(), x.clone(), ids.clone(), others.clone()],
            "multihead_attn: expected two tensors",
        ),
        (
            &embedding,
            vec![ids.clone(), others],
            "src_token_emb: expected",
        ),
        (
            &Discard::new("end", 2),
            vec![ids, x],
            "end: expected 2 tensors",
        ),
    ];
    for (layer, inputs, words) in refusals {
        let error = layer.cost(&inputs).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for refused in [
        MultiHeadAttention::of_memory("cross", WIDTH, 4).map(drop),
        MultiHeadAttention::of_memory("cross", WIDTH, 2)
            .and_then(|layer| layer.dropping(1.0))
            .map(drop),
        SinusoidEmbedding::new("cross", 4, 5).map(drop),
    ] {
        assert!(refused.unwrap_err().to_string().starts_with("cross: "));
    }
}
