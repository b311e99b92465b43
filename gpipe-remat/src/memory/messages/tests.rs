//! Messages of small models, whose bytes are known.

use gpipe_layers::layers::{Add, At, BatchNorm, Embedding, Fork, Layout, Linear};
use gpipe_layers::{AdamW, Flow, freeze};
use gpipe_sched::gpipe;

use super::*;
use crate::{ParameterBytes, Policy, micro_batches};

const WIDTH: usize = 6;
const SAMPLES: usize = 2;
const MICRO_BATCHES: usize = 3;

fn linear(name: &str) -> Linear {
    Linear::new(name, WIDTH, WIDTH, Layout::OutIn)
}

/// The messages of these layers, one a stage, in a group for each of `replicas`, which divide the states of
/// the optimizer if there is one.
fn predicted(
    mut layers: Vec<Box<dyn Layer>>,
    input: Flow,
    rank_of: &[usize],
    replicas: usize,
    optimizer: Option<&Optimizer>,
) -> Vec<MessageBytes> {
    let batch = SAMPLES * MICRO_BATCHES * replicas;
    let samples = micro_batches(batch, MICRO_BATCHES * replicas).unwrap();
    let input = |samples: usize| {
        let mut flow = input.clone();
        flow.shape = [samples, flow.shape.dims()[1]].into();
        vec![flow]
    };
    let costs = ModelCosts::new(&layers, &samples, input).unwrap();
    let weights = ParameterBytes::new(&mut layers, optimizer);
    let weights = match optimizer {
        Some(_) => weights.sharded(0, replicas),
        None => weights,
    };
    let costs = costs.with_groups(replicas, &weights).unwrap();
    let costs = costs.on_replica(0, replicas).unwrap();
    let cut: Vec<_> = (0..layers.len()).map(|layer| layer..layer + 1).collect();
    let schedule = gpipe(cut.len(), MICRO_BATCHES).unwrap();
    let plan = RematPlan::new(Policy::Keep, &weights, &costs, &cut, &schedule).unwrap();
    predict_messages(
        &mut layers,
        optimizer,
        &costs,
        &cut,
        &schedule,
        &plan,
        rank_of,
    )
}

/// A tensor that passes a rank is in the flows that lead there; to another stage of its own rank it goes straight.
#[test]
fn flows_between_ranks_have_what_passes_them() {
    let flows = |rank_of: &[usize]| {
        let layers: Vec<Box<dyn Layer>> = vec![
            Box::new(linear("first")),
            Box::new(Fork::new("fork")),
            Box::new(At::new([1], linear("second"))),
            Box::new(At::new([1], linear("third"))),
            Box::new(Add::new("add")),
            Box::new(linear("last")),
        ];
        let messages = predicted(layers, Flow::f32([SAMPLES, WIDTH]), rank_of, 1, None);
        let flows = messages.iter().map(|bytes| bytes.flows);
        flows.collect::<Vec<u64>>()
    };
    // All micro-batches of a way may be under way at a time, with their gradients.
    let tensor = (SAMPLES * WIDTH * 4 * MICRO_BATCHES * 2) as u64;
    assert_eq!(flows(&[0; 6]), [0]);
    // The skip is in the flows to stages 3 and 4, not in those to 1 and 5.
    assert_eq!(
        flows(&[0, 1, 1, 2, 3, 4]),
        [1, 1 + 2, 2 + 2, 2 + 1, 1].map(|tensors| tensors * tensor)
    );
    assert_eq!(
        flows(&[0, 1, 2, 2, 1, 0]),
        [1 + 1, 1 + 1 + 1 + 1, 1 + 1].map(|tensors| tensors * tensor)
    );
}

#[test]
fn sums_over_replicas_are_told_in_shares() {
    let layers = |inputs, outputs| -> Vec<Box<dyn Layer>> {
        vec![Box::new(Linear::new("a", inputs, outputs, Layout::OutIn))]
    };
    let input = Flow::f32([SAMPLES, 5]);
    for (outputs, replicas, sent, received) in [
        // Shares of 15 and 3 elements are 7 and 1, or 8 and 2: the own may be the smaller, and no message has it.
        (3, 2, 4 * (8 + 2), 4 * (8 + 2)),
        // Of 20 and 4 elements 6 and 1, or 7 and 2; two others tell theirs.
        (4, 3, 4 * (14 + 3), 2 * 4 * (7 + 2)),
    ] {
        let messages = predicted(layers(5, outputs), input.clone(), &[0], replicas, None);
        let [bytes] = messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!(bytes.flows + bytes.values + bytes.ties, 0);
        assert_eq!(bytes.parts, sent + received);
        // Its own share to all others, and theirs.
        assert_eq!(bytes.sums, sent + received);
        assert_eq!(bytes.peak(), 2 * (sent + received));
    }
}

/// The replica with the state of a parameter is sent its gradients by all others, and sends them its values.
#[test]
fn owners_of_states_get_gradients_and_give_values() {
    let layer = Linear::new("a", 5, 3, Layout::OutIn);
    let optimizer = Optimizer::from(AdamW::default());
    let input = Flow::f32([SAMPLES, 5]);
    let messages = predicted(vec![Box::new(layer)], input, &[0], 3, Some(&optimizer));
    let [bytes] = messages[..] else {
        panic!("{messages:?}")
    };
    // The state of the weight is here, that of the bias on the next replica.
    let both = 2 * 4 * 15 + 4 * 3;
    assert_eq!((bytes.parts, bytes.sums, bytes.values), (both, 0, both));
}

#[test]
fn statistics_of_batches_are_told_whole_to_every_replica() {
    let input = Flow::f32([SAMPLES, 5]);
    let layer = BatchNorm::new("norm", 5);
    let messages = predicted(vec![Box::new(layer)], input, &[0], 3, None);
    let [bytes] = messages[..] else {
        panic!("{messages:?}")
    };
    // Mean and variance go whole to both others, and theirs come; of weight and bias shares of at most two elements.
    let of_statistics = 2 * (2 + 2) * 4 * 5;
    let of_weights = 2 * (4 * 4 + 2 * 4 * 2);
    assert_eq!(bytes.parts, of_statistics + of_weights);
    assert_eq!(bytes.sums, of_weights);
}

/// Of the two ways of a tied table, gradients to its owner and values back, the one with more bytes counts.
#[test]
fn tied_parameters_go_to_every_other_rank() {
    let table = (11 * WIDTH * 4) as u64;
    let ties = |is_frozen: bool| {
        let mut layers: Vec<Box<dyn Layer>> = vec![
            Box::new(Embedding::new("table", 11, WIDTH, 1.0)),
            Box::new(linear("between")),
            Box::new(Linear::new("head", WIDTH, 11, Layout::OutIn).tied_to("table.weight")),
        ];
        for layer in &mut layers {
            freeze(&mut **layer, |param| {
                is_frozen && param.name == "table.weight"
            });
        }
        let messages = predicted(layers, Flow::u32([SAMPLES, 1]), &[0, 1, 2], 1, None);
        messages.iter().map(|bytes| bytes.ties).collect::<Vec<_>>()
    };
    assert_eq!(ties(false), [2 * table, table, 2 * table]);
    assert_eq!(ties(true), [2 * table, table, table]);
}

#[test]
fn parts_pass_beside_flows_and_sums_alone() {
    let peak = |[flows, parts, sums, values, ties]: [u64; 5]| {
        let bytes = MessageBytes {
            flows,
            parts,
            sums,
            values,
            ties,
        };
        bytes.peak()
    };
    assert_eq!(peak([5, 3, 1, 2, 4]), 8);
    assert_eq!(peak([1, 3, 5, 2, 4]), 8);
    assert_eq!(peak([1, 3, 1, 9, 4]), 9);
    assert_eq!(peak([1, 3, 1, 2, 9]), 9);
}
