//! Layers that are computed again: nothing needs the outputs of the last one of a run.

use std::sync::{Arc, Mutex};

use gpipe_layers::layers::{Layout, Linear};
use gpipe_layers::{
    AdamW, Cost, Flow, Layer, Optimizer, Param, PassContext, Pending, Result, Saved,
};
use gpipe_remat::{Assembly, Policy, Target, batch_items};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

/// A linear layer that writes down its forward passes, and which of them have no outputs.
struct Logged {
    linear: Linear,
    log: Arc<Mutex<Vec<String>>>,
}

impl Logged {
    fn note(&self, pass: &str) {
        let line = format!("{pass} {}", self.linear.name());
        self.log.lock().unwrap().push(line);
    }
}

impl Layer for Logged {
    fn name(&self) -> &str {
        self.linear.name()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        self.linear.cost(inputs)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.note("forward");
        self.linear.forward(cx, x)
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        self.note("recompute");
        self.linear.recompute(cx, x)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.note("gradient of");
        self.linear.input_grad(saved, dy)
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        self.note("gradient of");
        self.linear.param_only_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.linear.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.linear.params(visit);
    }
}

/// The passes of a step of four layers and two micro-batches under a policy.
fn passes(policy: Policy) -> Vec<String> {
    const WIDTH: usize = 8;
    let log = Arc::new(Mutex::new(Vec::new()));
    let layer = |name: &str| -> Box<dyn Layer> {
        Box::new(Logged {
            linear: Linear::new(name, WIDTH, WIDTH, Layout::OutIn),
            log: log.clone(),
        })
    };
    let host = Host::new(1).unwrap();
    let optimizer = Optimizer::from(AdamW::default());
    let mut run = Assembly::builder(["a", "b", "c", "d"].map(layer).into())
        .batch(4, |samples| vec![Flow::f32([samples, WIDTH])])
        .micro_batches(2)
        .policy(policy)
        .optimizer(&optimizer)
        .build(&host)
        .unwrap();
    let cpu = host.device(DeviceId::Cpu).unwrap();
    let x = Tensor::from_f32(&cpu, [4, WIDTH], vec![0.5; 4 * WIDTH]).unwrap();
    let classes = Tensor::from_u32(&cpu, [4], vec![0, 1, 2, 3]).unwrap();
    let batch = batch_items(&[x], 2, 0, true, |rows| {
        Ok(Target {
            values: classes.rows(rows)?,
            divisor: 4.0,
        })
    });
    run.pipeline.step(batch.unwrap()).unwrap();
    log.lock().unwrap().clone()
}

#[test]
fn the_last_layer_of_a_run_is_recomputed_without_its_outputs() {
    let forward = ["forward a", "forward b", "forward c", "forward d"];
    let back = [
        "forward c",
        "recompute d",
        "gradient of d",
        "gradient of c",
        "forward a",
        "recompute b",
        "gradient of b",
        "gradient of a",
    ];
    let expected = [&forward[..], &forward, &back, &back].concat();
    assert_eq!(passes(Policy::Every(2)), expected);
    // What is kept is not computed again.
    let kept = passes(Policy::Keep);
    let again = kept.iter().filter(|pass| pass.starts_with("recompute"));
    assert_eq!((kept.len(), again.count()), (16, 0));
}
