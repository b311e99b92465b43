//! The table of `gpipe plan --profile`.

use gpipe_remat::{ModelCosts, Work};

use super::Speed;
use crate::args::Talk;
use crate::fail::Result;
use crate::output::{Event, numbers, print, table_within, terminal_width};

impl Speed {
    /// Prints what was measured: a row a kind of layer, for the first micro-batch, on the threads that
    /// a worker has while all of them are busy.
    pub fn show(&self, costs: &ModelCosts, workers: usize, talk: Talk) -> Result<()> {
        let Self::Measured(measured) = self else {
            return Ok(());
        };
        let threads = (measured.profile.threads / workers.max(1)).max(1);
        let samples = costs.samples(0);
        let times = self.times(costs, measured.profile.threads);
        let mut rows = Vec::new();
        let mut all = [0.0; 4];
        let mut all_flops = 0;
        for kind in &measured.kinds.list {
            let Work {
                forward,
                input_grad,
                weight_grad,
                update,
                ..
            } = times.on(threads)[kind.layer];
            let cost = &costs.of(0)[kind.layer];
            let flops = cost.flops();
            let seconds = [forward, input_grad, weight_grad, update];
            for (sum, seconds) in all.iter_mut().zip(seconds) {
                *sum += seconds * kind.count as f64;
            }
            all_flops += flops * kind.count as u64;
            if talk.json {
                let event = Event::Profile {
                    layer: kind.name.clone(),
                    layers: kind.count,
                    samples,
                    threads,
                    flops,
                    forward_seconds: forward,
                    input_grad_seconds: input_grad,
                    weight_grad_seconds: weight_grad,
                    update_seconds: update,
                };
                print(&event.to_json()?)?;
            }
            rows.push(row(&kind.name, kind.count, flops, seconds));
        }
        if talk.json {
            return Ok(());
        }
        rows.push(row("all", measured.kinds.of_layer.len(), all_flops, all));
        let heading = [
            "layer",
            "",
            "FLOPs",
            "F ms",
            "I ms",
            "W ms",
            "GFLOP/s",
            "update ms",
        ];
        let text = table_within(terminal_width(), &heading, &["layer"], &rows);
        print(&format!(
            "{text}micro-batches of {samples} on {threads} of {} threads; {:.1} µs more an action; {}\n",
            measured.profile.threads,
            1e6 * measured.profile.action_seconds,
            measured.path.display()
        ))
    }
}

/// Recomputing is forward passing again, so it has no column.
fn row(name: &str, count: usize, flops: u64, seconds: [f64; 4]) -> Vec<String> {
    let milliseconds = |seconds: f64| format!("{:.3}", 1e3 * seconds);
    let [forward, input_grad, weight_grad, update] = seconds;
    let passes = forward + input_grad + weight_grad;
    let rate = match passes > 0.0 {
        true => format!("{:.1}", flops as f64 / passes / 1e9),
        false => String::new(),
    };
    vec![
        name.to_owned(),
        format!("×{count}"),
        numbers::short(flops as f64),
        milliseconds(forward),
        milliseconds(input_grad),
        milliseconds(weight_grad),
        rate,
        milliseconds(update),
    ]
}
