//! The memory contract: what a cost predicts is what a device counts, live and at the peak of every
//! call, to the byte.

use gpipe_layers::layers::{
    Activation, CausalAttention, Dropout, Function, GeluLinear, Identity, LayerNorm, Layout,
    Linear, Residual, Sequential,
};
use gpipe_layers::{Buffers, Cost, Flow, Gelu, Layer, Ledger, SavedBuffers};
use gpipe_tensor::{Device, Tensor, Tensors};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::cases::{Case, EPS, Sizes, all, cx, device, one, random};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 48,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A device and a ledger that have to agree.
struct Books {
    device: Device,
    /// Bytes of the parameters, which no ledger knows of.
    base: u64,
    ledger: Ledger,
}

impl Books {
    fn open(device: Device) -> Self {
        Self {
            base: device.live_bytes(),
            ledger: Ledger::new(),
            device,
        }
    }

    /// One call, really and in the ledger, and whether both saw the same.
    fn call<R, L>(
        &mut self,
        what: &str,
        really: impl FnOnce() -> gpipe_layers::Result<R>,
        predicted: impl FnOnce(&mut Ledger) -> L,
    ) -> (R, L) {
        self.device.reset_peak();
        self.ledger.reset_peak();
        let real = really().unwrap();
        let entry = predicted(&mut self.ledger);
        let live = self.device.live_bytes() - self.base;
        assert_eq!(live, self.ledger.live(), "live bytes after {what}");
        let peak = self.device.peak_bytes() - self.base;
        assert_eq!(peak, self.ledger.peak(), "peak bytes of {what}");
        (real, entry)
    }
}

/// Which way back is taken.
#[derive(Clone, Copy, Debug)]
enum Way {
    Split,
    Fused,
    Last,
    /// No way back: an evaluation, or a forward pass that will be computed again.
    None,
}

/// Plays one layer through; `held` says whether others hold its input and its output's gradient.
fn check(case: &mut Case, way: Way, held: bool, x: impl Fn(&Device) -> Tensor) {
    let device = device();
    case.make(&device);
    let inputs = std::slice::from_ref(&case.input);
    let cost = case.layer.cost(inputs).unwrap();
    let name = format!("{} ({way:?}, held {held})", case.layer.name());
    let layer = case.layer.as_mut();

    let mut books = Books::open(device.clone());
    let x: Tensors = one(x(&device));
    let x_entry = books.ledger.alloc_flow(inputs);
    let (mut holder, mut holder_entry) = (Vec::new(), Buffers::new());
    if held {
        holder.push(x.clone());
        holder_entry.extend(books.ledger.hold_all(&x_entry));
    }
    let batch = x[0].shape().rows();
    let ((y, saved), (y_entry, saved_entry)) = books.call(
        &format!("forward of {name}"),
        || layer.forward(&cx(batch), x),
        |ledger| ledger.forward(&cost, x_entry),
    );
    let outputs: Vec<Flow> = y
        .iter()
        .map(|y| Flow {
            shape: y.shape().clone(),
            dtype: y.dtype(),
        })
        .collect();
    assert_eq!(outputs, cost.outputs, "{name}");
    drop(y);
    books.ledger.release_all(y_entry);

    if let Way::None = way {
        books.call(
            &format!("forgetting of {name}"),
            || {
                drop(saved);
                Ok(())
            },
            |ledger| ledger.release_saved(saved_entry),
        );
        return;
    }
    let dy = one(random(&device, &outputs[0].shape, "gradient"));
    let dy_entry = books.ledger.alloc_flow(&cost.outputs);
    if held {
        holder.push(dy.clone());
        holder_entry.extend(books.ledger.hold_all(&dy_entry));
    }
    let back = (saved, dy);
    let entries = (saved_entry, dy_entry);
    let left = go_back(&mut books, layer, &cost, &name, way, back, entries);
    books.call(
        &format!("the end of {name}"),
        || {
            drop((left.0, holder));
            Ok(())
        },
        |ledger| {
            ledger.release_all(left.1);
            ledger.release_all(holder_entry);
        },
    );
    assert_eq!(books.ledger.live(), 0, "{name}");
}

fn go_back(
    books: &mut Books,
    layer: &mut dyn Layer,
    cost: &Cost,
    name: &str,
    way: Way,
    (saved, dy): (gpipe_layers::Saved, Tensors),
    (saved_entry, dy_entry): (SavedBuffers, Buffers),
) -> (Tensors, Buffers) {
    let (dx, dx_entry, pending, pending_entry) = match way {
        Way::None => unreachable!("there is no way back"),
        Way::Fused => {
            return books.call(
                &format!("backward of {name}"),
                || layer.backward(saved, dy),
                |ledger| ledger.backward(cost, saved_entry, dy_entry),
            );
        }
        Way::Last => {
            let (pending, entry) = books.call(
                &format!("param_only_grad of {name}"),
                || layer.param_only_grad(saved, dy),
                |ledger| ledger.param_only_grad(cost, saved_entry, dy_entry),
            );
            (Tensors::new(), Buffers::new(), pending, entry)
        }
        Way::Split => {
            let ((dx, pending), (dx_entry, entry)) = books.call(
                &format!("input_grad of {name}"),
                || layer.input_grad(saved, dy),
                |ledger| ledger.input_grad(cost, saved_entry, dy_entry),
            );
            (dx, dx_entry, pending, entry)
        }
    };
    books.call(
        &format!("weight_grad of {name}"),
        || layer.weight_grad(pending),
        |ledger| ledger.weight_grad(cost, pending_entry),
    );
    (dx, dx_entry)
}

const WAYS: [Way; 4] = [Way::Split, Way::Fused, Way::Last, Way::None];

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
}

fn nests() -> impl Strategy<Value = Vec<Nest>> {
    let leaf = (0..8usize).prop_map(Nest::Layer);
    let tree = leaf.prop_recursive(3, 24, 5, |inner| {
        prop::collection::vec(inner, 0..5).prop_map(Nest::Residual)
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
        for way in WAYS {
            for held in [false, true] {
                for mut case in all(sizes) {
                    let input = case.input(&device(), sizes);
                    check(&mut case, way, held, |device| input.copy_to(device).unwrap());
                }
            }
        }
    }

    #[test]
    fn residuals_hold_what_their_costs_say_whatever_is_inside(nests in nests()) {
        for way in WAYS {
            for held in [false, true] {
                let mut case = Case {
                    layer: Box::new(Residual::new("nest", build(&nests, "nest"))),
                    input: Flow::f32([2, 3, WIDTH]),
                    reference: Box::new(|_, x| x.to_vec()),
                };
                let shape = case.input.shape.clone();
                check(&mut case, way, held, |device| random(device, &shape, "input"));
            }
        }
    }
}
