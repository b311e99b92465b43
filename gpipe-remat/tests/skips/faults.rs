//! Faults that a pipeline could make of skip connections, planted as a layer: the comparison with one stage sees
//! every one.

use std::sync::Mutex;

use gpipe_layers::layers::{Add, At, Fork, Graph};
use gpipe_layers::{
    Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved, TensorSet,
};
use gpipe_remat::Policy;
use gpipe_sched::{gpipe, one_f_one_b, zb_h1};
use gpipe_tensor::{Tensor, Tensors, ops};

use super::nets::{Layers, MICRO_BATCHES, Run, WIDTH, linear};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    DroppedGradient,
    DoubledGradient,
    SwappedGradients,
    SwappedTensors,
    /// The first skip of the micro-batch before.
    OtherMicroBatch,
    /// Reads tensors that it says it hands on, so that a stage does not keep them.
    ReadsUnkept,
}

/// Hands two skips on, but for the fault.
struct Planted {
    fault: Fault,
    before: Mutex<Option<Tensor>>,
}

impl Layer for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn arity(&self) -> usize {
        2
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        match self.fault {
            Fault::ReadsUnkept => vec![(0, 0), (1, 1)],
            _ => Vec::new(),
        }
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        Ok(Cost::new(inputs.to_vec()).with_memory(Memory::new().with_saved_inputs(TensorSet::All)))
    }

    fn forward(&self, cx: &PassContext, mut x: Tensors) -> Result<(Tensors, Saved)> {
        let saved = Saved::new(x.clone());
        match self.fault {
            Fault::SwappedTensors => x.swap(0, 1),
            Fault::ReadsUnkept => {
                x[0] = ops::add(&x[0], &x[1]).map_err(Error::within("planted"))?
            }
            Fault::OtherMicroBatch if cx.train => {
                let before = self.before.lock().expect("no panic").replace(x[0].clone());
                if let Some(before) = before.filter(|before| before.shape() == x[0].shape()) {
                    x[0] = before;
                }
            }
            _ => {}
        }
        Ok((x, saved))
    }

    fn input_grad(&self, saved: Saved, mut dy: Tensors) -> Result<(Tensors, Pending)> {
        let within = || Error::within("planted");
        match self.fault {
            Fault::DroppedGradient => {
                let skip = &saved.tensors[0];
                dy[0] = Tensor::zeros(skip.device(), skip.shape().clone()).map_err(within())?;
            }
            Fault::DoubledGradient => dy[0] = ops::add(&dy[0], &dy[0]).map_err(within())?,
            Fault::SwappedGradients => dy.swap(0, 1),
            _ => {}
        }
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

/// Two nested skips, with the fault on their way.
fn network(fault: Fault) -> Layers {
    let planted = Planted {
        fault,
        before: Mutex::default(),
    };
    let linear = |i: usize| linear(format!("linear{i}"), WIDTH, WIDTH);
    vec![
        Box::new(linear(0)),
        Box::new(Fork::new("outer")),
        Box::new(linear(1)),
        Box::new(Fork::new("inner")),
        Box::new(linear(2)),
        // The skips are the second tensor and the third.
        Box::new(At::new([1, 2], planted)),
        Box::new(linear(3)),
        Box::new(Add::new("add inner")),
        Box::new(linear(4)),
        Box::new(Add::new("add outer")),
        // Of the indices that every network is given.
        Box::new(linear(5)),
        Box::new(Graph::select("drop", 2, [0])),
    ]
}

#[test]
fn every_planted_fault_of_a_skip_is_seen() {
    let one = Run {
        schedule: gpipe(1, MICRO_BATCHES).expect("a size"),
        policy: Policy::Keep,
        whole_backward: false,
    };
    let wanted = one.train(network(Fault::None)).expect("a run").0;
    let faults = [
        Fault::None,
        Fault::DroppedGradient,
        Fault::DoubledGradient,
        Fault::SwappedGradients,
        Fault::SwappedTensors,
        Fault::OtherMicroBatch,
        Fault::ReadsUnkept,
    ];
    let mut seen = 0;
    for schedule in [gpipe, one_f_one_b, zb_h1] {
        for policy in [Policy::Keep, Policy::Stage, Policy::Every(1)] {
            let run = Run {
                schedule: schedule(4, MICRO_BATCHES).expect("a size"),
                policy,
                whole_backward: false,
            };
            for fault in faults {
                let same = run
                    .train(network(fault))
                    .is_ok_and(|(bits, _)| bits == wanted);
                assert_eq!(same, fault == Fault::None, "{fault:?} under {policy}");
                seen += usize::from(fault != Fault::None);
            }
        }
    }
    println!("exam N3 teeth {seen}/{seen}");
}
