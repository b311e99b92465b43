//! The launches of one training step of GPT-2 on the first GPU, each between two events of the device: a JSON object for the
//! step, then one for each kernel and each form of a product, those that take the most time first.
//!
//! `launches SAMPLES LEN WIDTH HEADS WORDS BLOCKS MICRO_BATCHES [bf16|tf32]`, in single precision without the last. Without a
//! GPU it says so.

use std::collections::BTreeMap;
use std::error::Error;

use gpipe_layers::models::{GptConfig, gpt};
use gpipe_layers::{AdamW, Flow, Optimizer, compute_in, round_to_tf32};
use gpipe_remat::{Assembly, Policy, Trainer};
use gpipe_sched::one_f_one_b;
use gpipe_tensor::{DType, DeviceId, Host, LaunchTrace, Tensor, find_cuda};

/// Steps before the one that is traced: the first makes handles and fills the pool.
const WARM_UP: usize = 3;

/// All launches of one name in a step.
#[derive(Default)]
struct Sum {
    count: u64,
    seconds: f64,
    bytes: f64,
    flops: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Err(why) = find_cuda() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [samples, len, width, heads, vocab, blocks, micro_batches] = numbers[..] else {
        return Err(
            "usage: launches SAMPLES LEN WIDTH HEADS WORDS BLOCKS MICRO_BATCHES [bf16|tf32]".into(),
        );
    };
    let asked = |name: &str| words.iter().any(|word| word == name);
    let host = Host::new(1)?.with_traced_launches();
    let host = match asked("tf32") {
        true => host.with_tf32(),
        false => host,
    };
    let mut layers = gpt(&GptConfig {
        vocab,
        context: len,
        width,
        blocks,
        heads,
        ..GptConfig::default()
    })?;
    if asked("bf16") {
        layers
            .iter_mut()
            .for_each(|layer| compute_in(layer.as_mut(), DType::BF16));
    }
    if asked("tf32") {
        layers
            .iter_mut()
            .for_each(|layer| round_to_tf32(layer.as_mut()));
    }
    let optimizer = Optimizer::from(AdamW::default());
    let run = Assembly::builder(layers)
        .batch(samples, move |samples| vec![Flow::u32([samples, len])])
        .devices([DeviceId::Cuda(0)])
        .micro_batches(micro_batches)
        .schedule(one_f_one_b)
        .policy(Policy::Keep)
        .optimizer(&optimizer)
        .build(&host)?;
    let device = run.devices[0].clone();
    let mut trainer = Trainer::new(run, optimizer, |_| 3e-4);
    let cpu = host.device(DeviceId::Cpu)?;
    // Every fifth token is the same one, as a space in a text is.
    let token = |i: usize| match i % 5 {
        0 => 7 % vocab as u32,
        _ => (i * 7919 % vocab) as u32,
    };
    let tokens = |first: usize| {
        let ids = (first..first + samples * len).map(token).collect();
        Tensor::from_u32(&cpu, [samples, len], ids)
    };
    let (inputs, targets) = ([tokens(0)?], tokens(1)?);
    for _ in 0..WARM_UP {
        trainer.step(&inputs, &targets)?;
    }
    device.take_launches()?;
    trainer.step(&inputs, &targets)?;
    let trace = device
        .take_launches()?
        .ok_or("the launches were not traced")?;
    let pool = device.most_reserved_bytes()?.unwrap_or(0);
    print(&trace, micro_batches, pool);
    Ok(())
}

fn print(trace: &LaunchTrace, micro_batches: usize, pool: u64) {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for launch in &trace.launches {
        let sum = sums.entry(&launch.name).or_default();
        sum.count += 1;
        sum.seconds += launch.seconds;
        sum.bytes += launch.bytes as f64;
        sum.flops += launch.flops;
    }
    let mut sums: Vec<(&str, Sum)> = sums.into_iter().collect();
    sums.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    let seconds: f64 = sums.iter().map(|(_, sum)| sum.seconds).sum();
    let (launches, allocations) = (trace.launches.len(), trace.allocations);
    println!(
        r#"{{"kind":"step","micro_batches":{micro_batches},"launches":{launches},"allocations":{allocations},"pool_bytes":{pool},"seconds":{seconds}}}"#
    );
    for (name, sum) in sums {
        let Sum {
            count,
            seconds,
            bytes,
            flops,
        } = sum;
        println!(
            r#"{{"kind":"launch","launch":"{name}","count":{count},"seconds":{seconds},"bytes":{bytes},"flops":{flops}}}"#
        );
    }
}
