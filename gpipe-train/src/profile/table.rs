//! The table of measured layers.

use gpipe_remat::Work;
use gpipe_report::numbers;

use super::speed::KindTimes;
use crate::text_table::table_within;

/// The times of every kind of layer and of all layers as text, within `width` characters where possible.
pub fn table_of(kinds: &[KindTimes], width: usize) -> String {
    let mut rows = Vec::new();
    let (mut all, mut all_flops, mut all_layers) = ([0.0; 4], 0, 0);
    for kind in kinds {
        let Work {
            forward,
            input_grad,
            weight_grad,
            update,
            ..
        } = kind.work;
        let seconds = [forward, input_grad, weight_grad, update];
        for (sum, seconds) in all.iter_mut().zip(seconds) {
            *sum += seconds * kind.layers as f64;
        }
        all_flops += kind.flops * kind.layers as u64;
        all_layers += kind.layers;
        rows.push(row(&kind.layer, kind.layers, kind.flops, seconds));
    }
    rows.push(row("all", all_layers, all_flops, all));
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
    table_within(width, &heading, &["layer"], &rows)
}

/// A row of the table; recomputation is a part of the forward pass and has no column.
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
