//! Stages of another framework: a network of candle, trained by the pipeline to the same bits at any cut.
//!
//! `cargo run --release` in this folder; `cargo xtask exam X1` runs it too.

use std::collections::HashMap;
use std::error::Error;

use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor, Var};
use gpipe_sched::{Item, LossStage, MicroBatch, Pipeline, ScheduleKind, Stage};

const LAYERS: usize = 4;
const WIDTH: usize = 24;
const MICRO_BATCHES: usize = 8;
const ROWS: usize = 3;
const STEPS: u64 = 5;

/// Layers of candle: tanh(x·W + b) each.
struct Layers {
    /// W and b of each layer, one after the other.
    params: Vec<Var>,
    sums: Vec<Option<Tensor>>,
    /// Input and output of each micro-batch, with the graph between them.
    kept: HashMap<usize, (Var, Tensor)>,
    pending: HashMap<usize, GradStore>,
}

impl Layers {
    /// Stage `stage` of `stages`: the values of a layer depend on its place in the network alone.
    fn new(stage: usize, stages: usize) -> Result<Self> {
        let own = stage * LAYERS / stages..(stage + 1) * LAYERS / stages;
        let mut params = Vec::new();
        for layer in own {
            params.push(Var::from_tensor(&numbers([WIDTH, WIDTH], 2 * layer)?)?);
            params.push(Var::from_tensor(&numbers([1, WIDTH], 2 * layer + 1)?)?);
        }
        Ok(Self {
            sums: vec![None; params.len()],
            params,
            kept: HashMap::new(),
            pending: HashMap::new(),
        })
    }

    /// Descends along the summed gradients.
    fn update(&mut self) -> Result<()> {
        for (param, sum) in self.params.iter().zip(&mut self.sums) {
            if let Some(sum) = sum.take() {
                param.set(&(param.as_tensor() - (sum * 0.05)?)?)?;
            }
        }
        Ok(())
    }

    /// The bits of all values.
    fn bits(&mut self) -> Result<Vec<u32>> {
        let values = self
            .params
            .iter()
            .map(|param| param.flatten_all()?.to_vec1::<f32>());
        let values = values.collect::<Result<Vec<_>>>()?.concat();
        Ok(values.into_iter().map(f32::to_bits).collect())
    }
}

impl Stage for Layers {
    type Flow = Tensor;
    type Error = candle_core::Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.sums.fill(None);
        self.kept.clear();
        self.pending.clear();
        Ok(())
    }

    fn forward(&mut self, m: &MicroBatch, x: Tensor) -> Result<Tensor> {
        let x = Var::from_tensor(&x)?;
        let mut y = x.as_tensor().clone();
        for layer in self.params.chunks(2) {
            y = y.matmul(&layer[0])?.broadcast_add(&layer[1])?.tanh()?;
        }
        if m.train {
            self.kept.insert(m.index, (x, y.clone()));
        }
        // Without the graph, which ends at the boundary of the stage.
        Ok(y.detach())
    }

    fn input_grad(&mut self, m: &MicroBatch, dy: Tensor) -> Result<Option<Tensor>> {
        let Some((x, y)) = self.kept.remove(&m.index) else {
            return Err(candle_core::Error::Msg(format!(
                "micro-batch {} has no forward pass",
                m.index
            )));
        };
        // The gradient of Σ y·dy by y is dy: candle has no backward pass from a given gradient.
        let gradients = (y * dy)?.sum_all()?.backward()?;
        let dx = gradients.get(&x).cloned();
        self.pending.insert(m.index, gradients);
        Ok(dx)
    }

    fn weight_grad(&mut self, m: &MicroBatch) -> Result<()> {
        let gradients = self.pending.remove(&m.index);
        for (param, sum) in self.params.iter().zip(&mut self.sums) {
            let own = gradients
                .as_ref()
                .and_then(|gradients| gradients.get(param));
            *sum = match (sum.take(), own) {
                (Some(sum), Some(own)) => Some((sum + own)?),
                (sum, own) => sum.or_else(|| own.cloned()),
            };
        }
        Ok(())
    }
}

/// The mean of squared differences over the batch.
#[derive(Default)]
struct SquaredError(Vec<f64>);

impl LossStage<Tensor> for SquaredError {
    type Target = Tensor;
    type Error = candle_core::Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.0 = vec![0.0; MICRO_BATCHES];
        Ok(())
    }

    fn loss(&mut self, m: &MicroBatch, y: Tensor, target: Tensor) -> Result<Option<Tensor>> {
        let count = (MICRO_BATCHES * ROWS * WIDTH) as f64;
        let difference = (y - target)?;
        self.0[m.index] = f64::from(difference.sqr()?.sum_all()?.to_scalar::<f32>()?) / count;
        Ok(if m.train {
            Some((difference * (2.0 / count))?)
        } else {
            None
        })
    }

    fn losses(&mut self) -> Result<Vec<f64>> {
        Ok(self.0.clone())
    }
}

/// Numbers between −0.3 and 0.3 that look random.
fn numbers(shape: [usize; 2], seed: usize) -> Result<Tensor> {
    let number = |i: usize| 0.3 * ((i * 7919 + seed * 104_729) as f32).sin();
    Tensor::from_iter((0..shape[0] * shape[1]).map(number), &Device::Cpu)?
        .reshape((shape[0], shape[1]))
}

/// The losses of some steps, and the bits of all values after them.
fn train(kind: &str, stages: usize) -> std::result::Result<(Vec<f64>, Vec<u32>), Box<dyn Error>> {
    let schedule = kind
        .parse::<ScheduleKind>()?
        .build(stages, MICRO_BATCHES, None)?;
    let make = move |stage| Layers::new(stage, stages);
    let mut pipeline = Pipeline::build(schedule, make, || {
        Ok::<_, candle_core::Error>(SquaredError::default())
    })?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let item = |index: usize| {
            let rows = (index * ROWS) as u64;
            Ok(Item {
                micro_batch: MicroBatch::new(index, rows..rows + ROWS as u64, step, true),
                input: numbers([ROWS, WIDTH], 100 + index)?,
                target: numbers([ROWS, WIDTH], 200 + index)?,
            })
        };
        let batch = (0..MICRO_BATCHES).map(item).collect::<Result<_>>()?;
        losses.push(pipeline.step(batch)?.losses.iter().sum());
        pipeline.each(|_, stage| stage.update())?;
    }
    Ok((losses, pipeline.gather(|_, stage| stage.bits())?.concat()))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (losses, bits) = train("gpipe", 1)?;
    println!(
        "one stage: loss {:.6} -> {:.6}",
        losses[0],
        losses[losses.len() - 1]
    );
    assert!(losses[losses.len() - 1] < losses[0], "nothing was learned");
    let (mut same, mut all) = (0, 0);
    for stages in [1, 2, 4] {
        for kind in ["gpipe", "1f1b", "zb-h1"] {
            let equal = train(kind, stages)? == (losses.clone(), bits.clone());
            println!(
                "{stages} stages, {kind}: {}",
                if equal { "the same bits" } else { "other bits" }
            );
            same += u32::from(equal);
            all += 1;
        }
    }
    println!("exam X1 {same}/{all}");
    Ok(())
}
