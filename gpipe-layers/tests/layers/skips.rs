//! Layers on several tensors: gradients, bytes and split backward passes, and what they refuse.

use gpipe_layers::layers::{
    Activation, Add, At, Concat, Embedding, Fork, Function, Layout, Linear, Permute, Sequential,
    StopGradient,
};
use gpipe_layers::{Flow, Layer, PassContext, check, make};
use gpipe_tensor::{Device, Tensor, Tensors};

use super::cases::device;

pub(super) const ROWS: usize = 3;
pub(super) const WIDTH: usize = 5;

/// Tensors of floats (`f`) and of indices (`i`).
pub(super) fn tensors(device: &Device, kinds: &str) -> Tensors {
    let tensor = |(seed, kind): (usize, char)| match kind {
        'f' => {
            let value = |i: usize| ((i * 7 + seed * 3) % 11) as f32 / 4.0 - 1.1;
            let values: Vec<f32> = (0..ROWS * WIDTH).map(value).collect();
            Tensor::from_f32(device, [ROWS, WIDTH], values).unwrap()
        }
        _ => {
            let ids = (0..ROWS as u32 * 2).map(|i| i % 4).collect();
            Tensor::from_u32(device, [ROWS, 2], ids).unwrap()
        }
    };
    kinds.chars().enumerate().map(tensor).collect()
}

fn linear() -> Linear {
    Linear::new("linear", WIDTH, WIDTH, Layout::OutIn)
}

#[test]
fn layers_on_several_tensors_hold_what_they_say() {
    let device = device();
    let relu = || Activation::new("relu", Function::Relu);
    let cases: Vec<(Box<dyn Layer>, &str)> = vec![
        (Box::new(Fork::new("fork")), "f"),
        (Box::new(Add::new("add")), "ff"),
        (Box::new(Concat::new("concat", 2)), "ff"),
        (Box::new(Concat::new("concat", 3)), "fff"),
        (Box::new(Permute::new("permute", [2, 0, 1])), "fff"),
        (Box::new(At::new([1], linear())), "ff"),
        (Box::new(At::new([2], relu())), "fff"),
        // Three tensors in another order, with one between them that passes by.
        (
            Box::new(At::new([3, 0, 2], Permute::new("permute", [1, 2, 0]))),
            "ffff",
        ),
        (Box::new(At::new([0], At::new([0], linear()))), "f"),
        // Indices have no gradient.
        (Box::new(Permute::new("permute", [2, 0, 1])), "fif"),
        (Box::new(At::new([1], linear())), "ifi"),
        (Box::new(At::new([1], linear())), "fff"),
        (
            Box::new(At::new([2, 1], Permute::new("permute", [1, 0]))),
            "fif",
        ),
        (
            Box::new(At::new([1], Embedding::new("wte", 4, 6, 0.02))),
            "fif",
        ),
    ];
    for (mut layer, kinds) in cases {
        let kinds = &kinds[..layer.arity()];
        make(layer.as_mut(), &device, 0).unwrap();
        let (cx, x) = (
            PassContext::training(0, 0, 0..ROWS as u64),
            tensors(&device, kinds),
        );
        check::gradients(layer.as_mut(), &cx, &x).unwrap();
        check::bytes(layer.as_mut(), &cx, &x).unwrap();
        check::split(layer.as_mut(), &cx, &x).unwrap();
    }
}

#[test]
fn no_gradient_passes_where_it_is_stopped() {
    let device = device();
    let cx = PassContext::training(0, 0, 0..ROWS as u64);
    for kind in ["f", "i"] {
        let mut layer = StopGradient::new("stop");
        let x = tensors(&device, kind);
        check::bytes(&mut layer, &cx, &x).unwrap();
        check::split(&mut layer, &cx, &x).unwrap();
        let (y, saved) = layer.forward(&cx, x.clone()).unwrap();
        assert_eq!(y[0].shape(), x[0].shape());
        let dy = match kind {
            "f" => y,
            _ => Tensors::new(),
        };
        let (dx, _) = layer.input_grad(saved, dy.clone()).unwrap();
        assert_eq!(dx.len(), dy.len());
        for dx in &dx {
            assert_eq!(dx.to_f32s().unwrap(), [0.0; ROWS * WIDTH]);
        }
    }
}

#[test]
fn flows_that_do_not_fit_are_refused_by_name() {
    let x = Flow::f32([ROWS, WIDTH]);
    let ids = Flow::u32([ROWS, 2]);
    let refusals: Vec<(Box<dyn Layer>, Vec<Flow>, &str)> = vec![
        (
            Box::new(Fork::new("fork")),
            vec![x.clone(), x.clone()],
            "fork: expected one tensor",
        ),
        (
            Box::new(Add::new("add")),
            vec![x.clone(), Flow::f32([ROWS, 2])],
            "add: expected two tensors of floats of the same shape",
        ),
        (
            Box::new(Add::new("add")),
            vec![ids.clone(), ids],
            "add: expected two tensors of floats",
        ),
        (
            Box::new(Add::new("add")),
            vec![x.clone()],
            "add: expected two tensors of floats",
        ),
        (
            Box::new(Concat::new("concat", 2)),
            vec![x.clone(), Flow::f32([ROWS + 1, 2])],
            "concat: expected 2 tensors of floats of one shape but for the innermost extent",
        ),
        (
            Box::new(Permute::new("permute", [0, 0])),
            vec![x.clone(), x.clone()],
            "permute: expected 2 tensors, for an order of each place once",
        ),
        (
            Box::new(At::new([1], linear())),
            vec![x.clone()],
            "linear: expected 2 tensors",
        ),
        (
            Box::new(At::new([0, 1], linear())),
            vec![x.clone(), x.clone()],
            "linear: expected floats of shape",
        ),
        (
            Box::new(At::new([0], Fork::new("fork"))),
            vec![x.clone()],
            "fork takes 1 tensors and returns 2: give At as many places, each once",
        ),
        (
            Box::new(At::new([1, 1], Permute::new("permute", [1, 0]))),
            vec![x.clone(), x],
            "permute takes 2 tensors and returns 2: give At as many places, each once",
        ),
    ];
    for (layer, inputs, words) in refusals {
        let error = layer.cost(&inputs).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn layers_in_layers_are_printed_by_their_names() {
    let list = Sequential::new().then(At::new([1], linear()));
    let name = linear().name().to_owned();
    let printed = format!("Sequential([Layer({name:?})])");
    assert_eq!(format!("{list:?}"), printed);
}
