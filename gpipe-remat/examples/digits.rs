//! The whole system in one page: a classifier of handwritten digits on four pipeline stages.
//!
//! `cargo run --release -p gpipe-remat --example digits`

use gpipe_layers::layers::Function;
use gpipe_layers::{Decay, Flow, Loss, Optimizer, models};
use gpipe_remat::{
    Assembly, ModelCosts, ParameterBytes, Policy, Table, Target, micro_batches, update,
};
use gpipe_sched::{Item, MicroBatch, one_f_one_b};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

const STAGES: usize = 4;
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 1797 images of 8 x 8 pixels from 0 to 16; every tenth is held out.
    let digits = smartcore::dataset::digits::load_dataset();
    let (held_out, train): (Vec<usize>, Vec<usize>) =
        (0..digits.num_samples).partition(|i| i % 10 == 0);
    let host = Host::new(2)?;
    let cpu = host.device(DeviceId::Cpu)?;
    let items =
        |rows: &[usize], step: u64, train: bool| -> Result<Vec<_>, Box<dyn std::error::Error>> {
            let divisor = rows.len() as f64;
            let item = |(index, part): (usize, std::ops::Range<usize>)| {
                let rows = &rows[part.clone()];
                let pixels = rows
                    .iter()
                    .flat_map(|&i| &digits.data[i * 64..][..64])
                    .map(|x| x / 16.0);
                let labels = rows.iter().map(|&i| digits.target[i] as u32);
                let samples = part.start as u64..part.end as u64;
                Ok(Item {
                    micro_batch: MicroBatch {
                        index,
                        samples,
                        step,
                        train,
                    },
                    input: Tensors::from_iter([Tensor::from_f32(
                        &cpu,
                        [rows.len(), 64],
                        pixels.collect::<Vec<_>>(),
                    )?]),
                    target: Target {
                        values: Tensor::from_u32(&cpu, [rows.len()], labels.collect())?,
                        divisor,
                    },
                })
            };
            micro_batches(rows.len(), 8)?
                .into_iter()
                .enumerate()
                .map(item)
                .collect()
        };

    // What is computed, where, when, and what is kept in between.
    let mut layers = models::mlp(&models::MlpConfig {
        inputs: 64,
        hidden: vec![128; 3],
        outputs: 10,
        activation: Function::Relu,
        dropout: 0.0,
    })?;
    let costs = ModelCosts::new(&layers, &micro_batches(BATCH, 8)?, |n| {
        vec![Flow::f32([n, 64])]
    })?;
    let cut = gpipe_partition::balance(&costs.flops(), STAGES)?;
    println!("{cut}");
    let optimizer = Optimizer::adamw(0.9, 0.99, 1e-8, 0.01, Decay::Matrices);
    let (cut, schedule) = (cut.ranges().collect::<Vec<_>>(), one_f_one_b(STAGES, 8)?);
    let weights = ParameterBytes::new(&mut layers, Some(&optimizer));
    let assembly = Assembly {
        table: Table::new(Policy::Stage, &weights, &costs, &cut, &schedule)?,
        layers,
        cut,
        schedule,
        devices: vec![DeviceId::Cpu; STAGES],
        loss: Loss::CrossEntropy,
        optimizer: Some(optimizer.clone()),
        seed: 1,
    };
    let mut pipeline = assembly.build(&host)?.pipeline;

    for step in 0..400 {
        let batch: Vec<usize> = (0..BATCH)
            .map(|i| train[(step as usize * BATCH + i) % train.len()])
            .collect();
        let outcome = pipeline.step(items(&batch, step, true)?)?;
        update(&mut pipeline, &optimizer, 3e-3, step + 1, 1.0)?;
        if step % 50 == 0 {
            let (loss, bubble) = (
                outcome.losses.iter().sum::<f64>(),
                outcome.timeline.bubble(),
            );
            println!(
                "step {step:3}  loss {loss:.3}  bubble {:.0} %",
                100.0 * bubble
            );
        }
    }
    pipeline.forward(items(&held_out, 0, false)?)?;
    let correct = pipeline.with_turn(|turn| Ok::<_, gpipe_remat::Error>(turn.correct()))?;
    println!(
        "{correct} of {} held-out digits are recognised",
        held_out.len()
    );
    assert!(
        correct as f64 > 0.93 * held_out.len() as f64,
        "the pipeline did not learn"
    );
    Ok(())
}
