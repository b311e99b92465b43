//! The whole system in one page: a classifier of handwritten digits on four pipeline stages.
//!
//! `cargo run --release -p gpipe-remat --example digits`

use gpipe_layers::layers::Function;
use gpipe_layers::{AdamW, Decay, Flow, Optimizer, models};
use gpipe_remat::{Assembly, Policy, Target, batch_items, optimizer_step};
use gpipe_sched::one_f_one_b;
use gpipe_tensor::{DeviceId, Host, Tensor};

const STAGES: usize = 4;
const BATCH: usize = 64;
const MICRO_BATCHES: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 1797 images of 8 x 8 pixels from 0 to 16; every tenth is held out.
    let digits = smartcore::dataset::digits::load_dataset();
    let (held_out, train): (Vec<usize>, Vec<usize>) =
        (0..digits.num_samples).partition(|i| i % 10 == 0);
    let host = Host::new(2)?;
    let cpu = host.device(DeviceId::Cpu)?;
    let items = |rows: &[usize], step: u64, train: bool| {
        let pixels = rows.iter().flat_map(|&i| &digits.data[i * 64..][..64]);
        let pixels: Vec<f32> = pixels.map(|x| x / 16.0).collect();
        let pixels = Tensor::from_f32(&cpu, [rows.len(), 64], pixels)?;
        let labels = rows.iter().map(|&i| digits.target[i] as u32).collect();
        let labels = Tensor::from_u32(&cpu, [rows.len()], labels)?;
        batch_items(&[pixels], MICRO_BATCHES, step, train, |part| {
            let values = labels.rows(part)?;
            let divisor = rows.len() as f64;
            Ok(Target { values, divisor })
        })
    };

    // What is computed, where, when, and what is kept in between.
    let layers = models::mlp(&models::MlpConfig {
        inputs: 64,
        hidden: vec![128; 3],
        outputs: 10,
        activation: Function::Relu,
        dropout: 0.0,
    })?;
    let optimizer = Optimizer::from(AdamW {
        beta2: 0.99,
        decay: Decay::Matrices,
        ..AdamW::default()
    });
    let assembly = Assembly::builder(layers)
        .batch(BATCH, |samples| vec![Flow::f32([samples, 64])])
        .stages(STAGES)
        .micro_batches(MICRO_BATCHES)
        .schedule(one_f_one_b)
        .policy(Policy::Stage)
        .optimizer(&optimizer)
        .seed(1)
        .plan(host.threads())?;
    println!("{:?}", assembly.cut);
    let mut pipeline = assembly.build(&host)?.pipeline;

    for step in 0..400 {
        let batch: Vec<usize> = (0..BATCH)
            .map(|i| train[(step as usize * BATCH + i) % train.len()])
            .collect();
        let outcome = pipeline.step(items(&batch, step, true)?)?;
        let stats = optimizer_step(&mut pipeline, &optimizer, 3e-3, step, 0.0)?;
        if step % 50 == 0 {
            let (loss, bubble) = (
                outcome.losses.iter().sum::<f64>(),
                outcome.timeline.bubble(),
            );
            println!(
                "step {step:3}  loss {loss:.3}  norm {:.2}  bubble {:.0} %",
                stats.grad_norm,
                100.0 * bubble
            );
        }
    }
    pipeline.forward(items(&held_out, 0, false)?)?;
    let correct = pipeline.with_loss_stage(|end| Ok::<_, gpipe_remat::Error>(end.correct()))?;
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
