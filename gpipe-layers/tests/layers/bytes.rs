//! The memory contract: what a cost predicts is what a device counts, live and at the peak of every
//! call, to the byte.

use gpipe_layers::layers::{
    Activation, CausalAttention, Dropout, Function, GeluLinear, Graph, Identity, LayerNorm, Layout,
    Linear, Residual, Sequential,
};
use gpipe_layers::{Gelu, check, make};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::cases::{EPS, Sizes, all, cx, device, one, random};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 48,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1..4usize, 1..7usize, 1..4usize, 1..5usize, 1..9usize).prop_map(
        |(batch, time, heads, size, vocab)| Sizes {
            batch,
            time,
            heads,
            size,
            vocab,
        },
    )
}

/// A list of layers that keep the width of 4, some of them lists again.
#[derive(Clone, Debug)]
enum Nest {
    Layer(usize),
    Residual(Vec<Nest>),
    /// As a graph, with a branch as its shortcut.
    Graph(Vec<Nest>, Vec<Nest>),
}

fn nests() -> impl Strategy<Value = Vec<Nest>> {
    let leaf = (0..8usize).prop_map(Nest::Layer);
    let tree = leaf.prop_recursive(3, 24, 5, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            list().prop_map(Nest::Residual),
            (list(), list()).prop_map(|(layers, shortcut)| Nest::Graph(layers, shortcut)),
        ]
    });
    prop::collection::vec(tree, 0..6)
}

const WIDTH: usize = 4;

fn build(nests: &[Nest], path: &str) -> Sequential {
    let mut list = Sequential::new();
    for (i, nest) in nests.iter().enumerate() {
        let name = format!("{path}.{i}");
        list = match nest {
            Nest::Residual(inner) => {
                let inner = build(inner, &name);
                list.then(Residual::new(name, inner))
            }
            Nest::Graph(layers, shortcut) => {
                let layers = build(layers, &format!("{name}.layers"));
                let shortcut = build(shortcut, &format!("{name}.shortcut"));
                list.then(Graph::residual(name, 0, layers, shortcut))
            }
            Nest::Layer(0) => list.then(Identity::new(name)),
            Nest::Layer(1) => list.then(Dropout::new(name, 0.5).unwrap()),
            Nest::Layer(2) => list.then(Activation::new(name, Function::Relu)),
            Nest::Layer(3) => list.then(Activation::new(name, Function::Gelu(Gelu::Tanh))),
            Nest::Layer(4) => list.then(LayerNorm::new(name, WIDTH, EPS)),
            Nest::Layer(5) => list
                .then(Linear::new(
                    format!("{name}.qkv"),
                    WIDTH,
                    3 * WIDTH,
                    Layout::InOut,
                ))
                .then(CausalAttention::new(name, WIDTH, 2, 0.5).unwrap()),
            Nest::Layer(6) => list.then(GeluLinear::new(
                Gelu::Erf,
                Linear::new(name, WIDTH, WIDTH, Layout::InOut),
            )),
            Nest::Layer(_) => list.then(Linear::new(name, WIDTH, WIDTH, Layout::OutIn)),
        };
    }
    list
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_layer_holds_what_its_cost_says(sizes in sizes()) {
        for mut case in all(sizes) {
            let device = device();
            case.make(&device);
            let x = one(case.input(&device, sizes));
            check::bytes(case.layer.as_mut(), &cx(sizes.batch), &x).unwrap();
        }
    }

    #[test]
    fn residuals_hold_what_their_costs_say_whatever_is_inside(nests in nests()) {
        let device = device();
        let mut layer = Residual::new("nest", build(&nests, "nest"));
        make(&mut layer, &device, 1).unwrap();
        let x = random(&device, &[2, 3, WIDTH].into(), "input");
        check::bytes(&mut layer, &cx(2), &one(x)).unwrap();
    }
}
