//! The kernels of a training step and the time that a known GPU takes for each by the model of its kernels, a JSON object
//! a line, and the allocations of the step on the error output: `cargo run -p gpipe-train --features cuda --example launches
//! -- GPU KEY=VALUE …`. No GPU is needed. Without arguments it shows a small model on an H200.

use gpipe_train::BoxedError;

#[cfg(not(feature = "cuda"))]
fn main() -> Result<(), BoxedError> {
    eprintln!("skipped: this build has no kernels: build with `--features cuda`");
    Ok(())
}

#[cfg(feature = "cuda")]
fn main() -> Result<(), BoxedError> {
    use std::collections::BTreeMap;

    use gpipe_tensor::KnownGpu;
    use gpipe_train::{Overrides, Setting, step_launches};

    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "h200".into());
    let gpu = KnownGpu::of_name(&name).ok_or("name a GPU that plans know, such as h200")?;
    let mut settings = vec![
        Setting::new("model.name", "gpt-nano"),
        Setting::new("run.dtype", "bf16"),
        Setting::new("pipeline.devices", format!("cuda:{name}")),
        Setting::new("pipeline.remat", "keep"),
        Setting::new("pipeline.stages", 1),
        Setting::new("pipeline.micro_batches", 1),
    ];
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or("write KEY=VALUE")?;
        settings.push(Setting::text(&argument, key, value));
    }
    let config = Overrides::new().layer(settings)?.resolve()?;
    let mut kernels: BTreeMap<String, (u64, f64, f64, f64)> = BTreeMap::new();
    let traces = step_launches(&config, true)?;
    let allocations: u64 = traces.iter().map(|trace| trace.allocations).sum();
    for launch in traces.into_iter().flat_map(|trace| trace.launches) {
        let seconds = gpu.seconds(&launch, config.run.tf32);
        let (count, bytes, flops, all) = kernels.entry(launch.name).or_default();
        *count += 1;
        *bytes += launch.bytes as f64;
        *flops += launch.flops;
        *all += seconds;
    }
    for (kernel, (count, bytes, flops, seconds)) in kernels {
        let object = serde_json::json!({
            "kernel": kernel, "launches": count, "bytes": bytes, "flops": flops, "seconds": seconds,
        });
        println!("{object}");
    }
    eprintln!("{allocations} allocations");
    Ok(())
}
