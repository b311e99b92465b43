//! Layers of Llama's blocks.

use gpipe_layers::layers::{
    CausalAttention, Glu, Graph, Layout, Linear, Residual, RmsNorm, Rotary, RotaryQkv, Scale,
    Sequential,
};
use gpipe_layers::{Flow, Layer};
use gpipe_tensor::ops::{Gate, Rope, RopeScaling};

use super::cases::{Case, EPS, Reference, Sizes};
use super::reference as plain;

pub const THETA: f64 = 100.0;

/// The layers, and a block's half of them.
pub fn all(s: Sizes) -> Vec<Case> {
    // Two heads of queries for each of keys, of an even size.
    let (w, groups, size) = (s.width(), s.heads, 2 * s.size);
    let (queries, keys) = (2 * groups * size, groups * size);
    let packed = queries + 2 * keys;
    let time = s.time;
    let stream = || Flow::f32([s.batch, s.time, w]);
    let case = |layer: Box<dyn Layer>, input, reference: Reference| Case {
        layer,
        input,
        reference,
    };
    let rope = Rope {
        size,
        theta: THETA,
        scaling: RopeScaling::Unscaled,
        first: 0,
    };
    let projections = move || {
        let project = |name, outputs| Linear::new(name, w, outputs, Layout::OutIn);
        [
            project("q", queries),
            project("k", keys),
            project("v", keys).without_bias(),
        ]
    };
    let qkv = move || RotaryQkv::new("qkv", projections(), groups, rope);
    let norm_of_heads = move |name, heads| RmsNorm::new(name, size, EPS).of_heads(heads);
    // As Qwen3 has it.
    let normalized_qkv = move || {
        let [q, k, v] = projections();
        let mut graph = Graph::new("normalized qkv", 1);
        let x = graph.input(0);
        let q = graph.add(q, [x]);
        let q = graph.add(norm_of_heads("q_norm", 2 * groups), [q]);
        let k = graph.add(k, [x]);
        let k = graph.add(norm_of_heads("k_norm", groups), [k]);
        let v = graph.add(v, [x]);
        let turned = graph.add(Rotary::new("rotary", groups, rope), [q, k, v]);
        graph.returning([turned])
    };
    let attention = move |window| {
        let layer = CausalAttention::new("grouped", queries, 2 * groups, 0.0).unwrap();
        layer.grouped(groups).unwrap().within(window).unwrap()
    };
    let inner = 2 * w + 1;
    let swiglu = move || {
        let map = |name, from, to| Linear::new(name, from, to, Layout::OutIn);
        let down = map("down", inner, w);
        Glu::new(
            "swiglu",
            map("gate", w, inner).without_bias(),
            map("up", w, inner),
            down,
        )
    };
    let rotary = move |p: &[Vec<f64>], x: &[f64]| {
        let q = plain::linear(x, w, &p[0], &p[1], Layout::OutIn);
        let k = plain::linear(x, w, &p[2], &p[3], Layout::OutIn);
        let v = plain::linear(x, w, &p[4], &[], Layout::OutIn);
        self::packed([&q, &k, &v], time, [queries, keys], size)
    };
    let geglu = move || {
        let map = |name, from, to| Linear::new(name, from, to, Layout::OutIn);
        let [gate, up] = ["gate", "up"].map(|name| map(name, w, inner));
        Glu::new("geglu", gate.without_bias(), up, map("down", inner, w)).with_gate(Gate::GeluTanh)
    };
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let gated = move |p: &[Vec<f64>], x: &[f64], function: fn(f64) -> f64| {
        let gate = plain::linear(x, w, &p[0], &[], Layout::OutIn);
        let up = plain::linear(x, w, &p[1], &p[2], Layout::OutIn);
        let product = gate.iter().zip(&up);
        let product: Vec<f64> = product.map(|(g, u)| function(*g) * u).collect();
        plain::linear(&product, inner, &p[3], &p[4], Layout::OutIn)
    };
    let half = |projected: Sequential| {
        let normed = Sequential::new().then(RmsNorm::new("norm", w, EPS));
        normed
            .append(projected)
            .then(attention(None))
            .then(Linear::new("o", queries, w, Layout::OutIn).without_bias())
    };
    let normalized_half = half(Sequential::new().then(normalized_qkv()));
    let half = half(Sequential::new().then(qkv()));
    let other_half = Sequential::new()
        .then(RmsNorm::new("norm", w, EPS))
        .then(swiglu());
    let see = move |x: &[f64], window| grouped(x, [time, 2 * groups, groups, size], window);
    vec![
        case(
            Box::new(RmsNorm::new("rms_norm", w, EPS)),
            stream(),
            Box::new(|p, x| rms_norm(x, &p[0])),
        ),
        case(
            Box::new(RmsNorm::new("rms_norm around one", w, EPS).around_one()),
            stream(),
            Box::new(|p, x| {
                let gain: Vec<f64> = p[0].iter().map(|gain| 1.0 + gain).collect();
                rms_norm(x, &gain)
            }),
        ),
        case(
            Box::new(Scale::new("scale", -1.5)),
            stream(),
            Box::new(|_, x| x.iter().map(|x| -1.5 * x).collect()),
        ),
        case(
            Box::new(geglu()),
            stream(),
            Box::new(move |p, x| gated(p, x, plain::gelu_tanh)),
        ),
        case(
            Box::new(norm_of_heads("rms_norm of heads", 2 * groups)),
            Flow::f32([s.batch, s.time, queries]),
            Box::new(|p, x| rms_norm(x, &p[0])),
        ),
        case(Box::new(qkv()), stream(), Box::new(rotary)),
        case(
            Box::new(attention(Some(2))),
            Flow::f32([s.batch, s.time, packed]),
            Box::new(move |_, x| see(x, 2)),
        ),
        case(
            Box::new(swiglu()),
            stream(),
            Box::new(move |p, x| gated(p, x, silu)),
        ),
        case(
            Box::new(Residual::new("attention half", half)),
            stream(),
            Box::new(move |p, x| {
                let y = see(&rotary(&p[1..], &rms_norm(x, &p[0])), time);
                plain::add(x, &plain::linear(&y, queries, &p[6], &[], Layout::OutIn))
            }),
        ),
        case(
            Box::new(Residual::new("normalized half", normalized_half)),
            stream(),
            Box::new(move |p, x| {
                let input = rms_norm(x, &p[0]);
                let linear = |weight: usize, bias: &[f64]| {
                    plain::linear(&input, w, &p[weight], bias, Layout::OutIn)
                };
                let (q, k) = (linear(1, &p[2]), linear(4, &p[5]));
                let (q, k) = (rms_norm(&q, &p[3]), rms_norm(&k, &p[6]));
                let qkv = self::packed([&q, &k, &linear(7, &[])], time, [queries, keys], size);
                let y = see(&qkv, time);
                plain::add(x, &plain::linear(&y, queries, &p[8], &[], Layout::OutIn))
            }),
        ),
        case(
            Box::new(Residual::new("gated half", other_half)),
            stream(),
            Box::new(move |p, x| plain::add(x, &gated(&p[1..], &rms_norm(x, &p[0]), silu))),
        ),
    ]
}

fn rms_norm(x: &[f64], gain: &[f64]) -> Vec<f64> {
    let row = |x: &[f64]| {
        let squares = x.iter().map(|x| x * x).sum::<f64>() / gain.len() as f64;
        let root = (squares + f64::from(EPS)).sqrt();
        x.iter()
            .zip(gain)
            .map(|(x, g)| x / root * g)
            .collect::<Vec<_>>()
    };
    x.chunks(gain.len()).flat_map(row).collect()
}

/// Rows of queries and keys, turned by their positions, and values, of these widths and this size of heads.
pub fn packed(
    [q, k, v]: [&[f64]; 3],
    time: usize,
    [queries, keys]: [usize; 2],
    size: usize,
) -> Vec<f64> {
    let (q, k) = (
        rotated(q, time, queries, size),
        rotated(k, time, keys, size),
    );
    let rows = q.chunks(queries).zip(k.chunks(keys)).zip(v.chunks(keys));
    rows.flat_map(|((q, k), v)| [q, k, v].concat()).collect()
}

/// The heads of each row turned by its position.
fn rotated(x: &[f64], time: usize, width: usize, size: usize) -> Vec<f64> {
    let mut y = x.to_vec();
    for (row, y) in y.chunks_mut(width).enumerate() {
        for head in y.chunks_mut(size) {
            for i in 0..size / 2 {
                let angle = (row % time) as f64 * THETA.powf(-2.0 * i as f64 / size as f64);
                let (sin, cos) = angle.sin_cos();
                let (a, b) = (head[i], head[i + size / 2]);
                head[i] = a * cos - b * sin;
                head[i + size / 2] = b * cos + a * sin;
            }
        }
    }
    y
}

/// Attention of groups of heads within a window.
fn grouped(qkv: &[f64], [time, heads, groups, size]: [usize; 4], window: usize) -> Vec<f64> {
    let row = (heads + 2 * groups) * size;
    let mut y = Vec::new();
    for (i, at) in qkv.chunks(row).enumerate() {
        let (sample, i) = (i / time, i % time);
        for head in 0..heads {
            let key = heads + head * groups / heads;
            let of = |j: usize, column: usize| {
                let start = (sample * time + j) * row + column * size;
                &qkv[start..start + size]
            };
            let first = (i + 1).saturating_sub(window);
            let score = |j: usize| {
                let products = at[head * size..].iter().zip(of(j, key)).map(|(q, k)| q * k);
                (products.sum::<f64>() / (size as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = (first..=i).map(score).collect();
            let total: f64 = scores.iter().sum();
            let mean = |c: usize| {
                let terms = (first..=i).zip(&scores);
                terms
                    .map(|(j, s)| s / total * of(j, key + groups)[c])
                    .sum::<f64>()
            };
            y.extend((0..size).map(mean));
        }
    }
    y
}

/// What lies before the window is not computed, and has no price.
#[test]
fn a_window_is_priced_by_the_positions_that_it_has() {
    let cost = |window| {
        let attention = CausalAttention::new("attention", 8, 2, 0.0).unwrap();
        let attention = attention.within(window).unwrap();
        let cost = attention.cost(&[Flow::f32([3, 64, 24])]).unwrap();
        (cost.forward, cost.input_grad)
    };
    let (forward, input_grad) = cost(None);
    for wide in [64, 1000, usize::MAX] {
        assert_eq!(cost(Some(wide)), (forward, input_grad));
    }
    assert_eq!(cost(Some(4)), (forward / 16, input_grad / 16));
}
