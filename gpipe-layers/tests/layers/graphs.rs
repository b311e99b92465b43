//! Graphs of layers: gradients, bytes and split backward passes of given and of random ones, and what they refuse.

use gpipe_layers::layers::{
    Activation, Add, At, Concat, Embedding, Fork, Function, Graph, Layout, Linear, Permute,
    Residual, Sequential,
};
use gpipe_layers::{Flow, Gelu, Layer, PassContext, Value, check, make};
use proptest::prelude::*;

use super::cases::device;
use super::skips::{ROWS, WIDTH, tensors};

fn linear(name: &str) -> Linear {
    Linear::new(name, WIDTH, WIDTH, Layout::OutIn)
}

fn gelu(name: &str) -> Activation {
    Activation::new(name, Function::Gelu(Gelu::Tanh))
}

/// Checks the layer on tensors of floats (`f`) and of indices (`i`).
fn check_all(layer: &mut dyn Layer, kinds: &str) {
    let device = device();
    make(layer, &device, 0).unwrap();
    let cx = PassContext::training(0, 0, 0..ROWS as u64);
    let x = tensors(&device, kinds);
    check::gradients(layer, &cx, &x).unwrap();
    check::bytes(layer, &cx, &x).unwrap();
    check::split(layer, &cx, &x).unwrap();
}

/// From (s, skip) to (the concatenation of three sums, s): a cell as AmoebaNet-D has them.
fn cell() -> Graph {
    let mut cell = Graph::new("cell", 2);
    let [s, skip] = [cell.input(0), cell.input(1)];
    let reduced = cell.chain(
        Sequential::new().then(gelu("r.gelu")).then(linear("r")),
        s,
        &[],
    );
    let mut states = vec![reduced, skip];
    for (i, (left, right)) in [(0, 1), (1, 2), (0, 3)].into_iter().enumerate() {
        let a = cell.add(linear(&format!("{i}.a")), [states[left]]);
        let sum = cell.add(Add::new(format!("{i}.sum")), [a, states[right]]);
        states.push(sum);
    }
    let y = cell.add(Concat::new("concat", 3), states[2..].iter().copied());
    cell.returning([y, s])
}

#[test]
fn graphs_hold_what_they_say() {
    let mut unused = Graph::new("unused", 2);
    let [x, other] = [unused.input(0), unused.input(1)];
    let both = unused.add(Permute::new("permute", [1, 0]), [x, other]);
    unused.add(linear("dead end"), [both]);
    let twice = unused.add(Add::new("twice"), [both.output(1), both.output(1)]);
    let unused = unused.returning([twice, twice, both]);

    let mut embedded = Graph::new("embedded", 2);
    let [ids, x] = [embedded.input(0), embedded.input(1)];
    let y = embedded.add(Embedding::new("wte", 4, 6, 0.02), [ids]);
    let z = embedded.add(linear("linear"), [x]);
    let embedded = embedded.returning([ids, y, z]);

    let list = || Sequential::new().then(linear("a")).then(gelu("b"));
    let shortcut = || Sequential::new().then(linear("shortcut"));
    // A layer that takes a side of floats beside x.
    let beside = |name: &str| {
        let mut beside = Graph::new(name, 2);
        let (x, side) = (beside.input(0), beside.input(1));
        let side = beside.add(linear(&format!("{name}.side")), [side]);
        let y = beside.add(Add::new(format!("{name}.add")), [x, side]);
        beside.returning([y])
    };
    let with_side = Sequential::new()
        .then(beside("0"))
        .then(gelu("gelu"))
        .then(beside("1"));
    let cases: Vec<(Box<dyn Layer>, &str)> = vec![
        (Box::new(cell()), "ff"),
        (Box::new(At::new([2, 0], cell_of_equal_widths())), "fif"),
        (
            Box::new(Residual::new(
                "residual",
                Sequential::new()
                    .then(Graph::residual("in", 0, list(), shortcut()))
                    .then(linear("c")),
            )),
            "f",
        ),
        (Box::new(unused), "ff"),
        (Box::new(embedded), "if"),
        (Box::new(Graph::select("select", 3, [2, 2, 0])), "fff"),
        (Box::new(Graph::select("select", 3, [1, 0])), "fif"),
        (Box::new(Graph::select("drop all", 2, [0])), "if"),
        (
            Box::new(Graph::residual("residual", 0, list(), Sequential::new())),
            "f",
        ),
        (
            Box::new(Graph::residual("residual", 0, list(), shortcut())),
            "f",
        ),
        (
            Box::new(Graph::residual("residual", 2, with_side, shortcut())),
            "ffi",
        ),
        (
            Box::new(Graph::residual(
                "empty",
                1,
                Sequential::new(),
                Sequential::new(),
            )),
            "fi",
        ),
    ];
    for (mut layer, kinds) in cases {
        check_all(layer.as_mut(), kinds);
    }
}

/// From two tensors to two of the same width.
fn cell_of_equal_widths() -> Graph {
    let mut cell = Graph::new("equal", 2);
    let [s, skip] = [cell.input(0), cell.input(1)];
    let a = cell.add(linear("equal.a"), [s]);
    let sum = cell.add(Add::new("equal.sum"), [a, skip]);
    cell.returning([sum, s])
}

/// A graph of these choices: each adds a layer on earlier values, or returns one.
fn random_graph(inputs: usize, choices: &[(u8, u8, u8)]) -> Graph {
    let mut graph = Graph::new("graph", inputs);
    let mut values: Vec<Value> = (0..inputs).map(|place| graph.input(place)).collect();
    let mut outputs = Vec::new();
    for (i, &(kind, a, b)) in choices.iter().enumerate() {
        let [a, b] = [a, b].map(|at| values[usize::from(at) % values.len()]);
        let value = match kind % 8 {
            0 | 1 => graph.add(Add::new(format!("add{i}")), [a, b]),
            2 => graph.add(gelu(&format!("gelu{i}")), [a]),
            3 => {
                let both = graph.add(Permute::new(format!("permute{i}"), [1, 0]), [a, b]);
                values.push(both);
                both.output(1)
            }
            4 => {
                let both = graph.add(Fork::new(format!("fork{i}")), [a]);
                values.push(both);
                both.output(1)
            }
            5 => {
                outputs.push(a);
                continue;
            }
            _ => graph.add(linear(&format!("linear{i}")), [a]),
        };
        values.push(value);
    }
    outputs.extend(values.last());
    graph.returning(outputs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_hold_what_they_say(
        inputs in 1..4_usize,
        choices in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..10),
    ) {
        check_all(&mut random_graph(inputs, &choices), &"fff"[..inputs]);
    }
}

#[test]
fn a_graph_costs_what_its_layers_cost_and_the_sums_of_gradients() {
    let x = Flow::f32([ROWS, WIDTH]);
    let inside = linear("linear").cost(std::slice::from_ref(&x)).unwrap();
    let residual = Graph::residual(
        "residual",
        0,
        Sequential::new().then(linear("a")),
        Sequential::new(),
    );
    let cost = residual.cost(std::slice::from_ref(&x)).unwrap();
    let elements = x.elements();
    assert_eq!(cost.outputs, std::slice::from_ref(&x));
    // The sum forward, and the sum of both gradients of x.
    assert_eq!(cost.forward, inside.forward + elements);
    assert_eq!(cost.input_grad, inside.input_grad + elements);
    assert_eq!(cost.weight_grad, inside.weight_grad);
    assert_eq!(cost.params, inside.params);
    assert_eq!(cost.traffic, inside.traffic + 6 * x.bytes());
    let list = Residual::new("list", Sequential::new().then(linear("a")));
    let list = list.cost(&[x]).unwrap();
    assert_eq!(
        (list.forward, list.input_grad, list.traffic),
        (cost.forward, cost.input_grad, cost.traffic)
    );
}

#[test]
fn graphs_that_do_not_fit_are_refused_by_name() {
    let x = Flow::f32([ROWS, WIDTH]);
    let graph = || Graph::new("graph", 1);
    let mut few = graph();
    let input = few.input(0);
    let sum = few.add(Add::new("add"), [input]);
    let mut other = graph();
    let y = other.add(linear("linear"), [input]);
    let refusals = [
        (few.returning([sum]), 1, "graph: add takes 2 tensors, not 1"),
        (
            other.returning([y.output(1)]),
            1,
            "graph has no output of its layer 0 at place 1",
        ),
        (
            graph().returning([graph().input(1)]),
            1,
            "graph has no input at place 1",
        ),
        (graph().returning([input]), 2, "graph: expected 1 tensors"),
    ];
    for (graph, inputs, words) in refusals {
        let error = graph
            .cost(&vec![x.clone(); inputs])
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}
