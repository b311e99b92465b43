//! Lists that carry tensors and fetch activations.

use gpipe_layers::layers::{
    Activation, At, FeatureExtraction, Fork, Function, Identity, Layout, Linear,
};
use gpipe_layers::{Flow, PassContext, make};
use gpipe_tensor::{Tensor, Tensors};

use super::cases::device;

fn features() -> FeatureExtraction {
    let relu = |name: &str| Activation::new(name, Function::Relu);
    // Two tensors from the fork on; of the second ReLU's flow, the first tensor is fetched.
    FeatureExtraction::new("features")
        .then(Linear::new("fc", 3, 2, Layout::OutIn))
        .then(Fork::new("fork"))
        .then(At::new([1], relu("relu")))
        .then(Linear::new("top", 2, 4, Layout::OutIn))
}

#[test]
fn outputs_are_followed_by_carried_and_by_fetched_tensors() {
    let device = device();
    let list = features()
        .carry(2)
        .fetch("top")
        .fetch("fc")
        .fetch("relu")
        .then(Identity::new("last"));
    assert_eq!(list.act_outputs(), 5);
    let x = |columns: usize, seed: usize| {
        let values = (0..2 * columns).map(|i| ((7 * i + seed) % 5) as f32 - 2.0);
        let x = Tensor::from_f32(&device, [2, columns], values.collect::<Vec<_>>());
        x.expect("a value each")
    };
    let ids = Tensor::from_u32(&device, [2, 1], vec![3, 4]).expect("indices");
    let mut flow = Tensors::from_iter([x(3, 0), ids, x(5, 1)]);
    let inputs = [Flow::f32([2, 3]), Flow::u32([2, 1]), Flow::f32([2, 5])];
    let cx = PassContext::training(0, 0, 0..2);
    let mut described = inputs.to_vec();
    let mut of_layers = Vec::new();
    for mut layer in list.into_layers(&inputs).expect("a list") {
        make(layer.as_mut(), &device, 0).expect("parameters");
        let others = flow.drain(layer.arity()..).collect::<Vec<_>>();
        let rest = described.split_off(layer.arity());
        described = layer.cost(&described).expect("a cost").outputs;
        described.extend(rest);
        flow = layer.forward(&cx, flow).expect("a pass").0;
        of_layers.push((layer.name().to_owned(), flow[0].to_f32s().expect("floats")));
        flow.extend(others);
    }
    // The output and the branch behind it, the carried ones, those fetched.
    let shapes: Vec<Vec<usize>> = flow.iter().map(|x| x.shape().dims().to_vec()).collect();
    let expected = [[2, 4], [2, 2], [2, 1], [2, 5], [2, 4], [2, 2], [2, 2]];
    assert_eq!(shapes, expected);
    let promised = described.iter().map(|flow| flow.shape.dims().to_vec());
    assert_eq!(promised.collect::<Vec<_>>(), expected);
    assert_eq!(flow[2].u32s().expect("indices"), [3, 4]);
    let output = |name: &str| {
        let (_, values) = of_layers.iter().find(|(layer, _)| layer == name).unwrap();
        values.clone()
    };
    let got: Vec<Vec<f32>> = flow[4..].iter().map(|x| x.to_f32s().unwrap()).collect();
    // Of the ReLU's two tensors the first is fetched, which it did not take.
    assert_eq!(got, [output("top"), output("fc"), output("fc")]);
}

#[test]
fn lists_that_cannot_be_made_are_refused_by_name() {
    let refused = |list: FeatureExtraction| {
        let error = list.into_layers(&[Flow::f32([2, 3])]).err();
        error.expect("a refusal").to_string()
    };
    for (list, message) in [
        (features().fetch("fc9"), "features: no layer `fc9` to fetch"),
        (features().fetch("fc").fetch("fc"), "no layer `fc` to fetch"),
        (features().carry(2), "features: 1 inputs but 2 to carry"),
        (features().carry(1), "fc: expected"),
    ] {
        let error = refused(list);
        assert!(error.contains(message), "{error}");
    }
}
