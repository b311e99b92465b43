//! What came out, for people and for programs.

use serde_json::json;

use super::peer;
use super::products::Product;
use super::sizes::Sizes;
use crate::bench::summary::Summary;

/// One precision and one way.
pub struct Row {
    pub precision: &'static str,
    pub devices: &'static str,
    pub micro_batches: usize,
    pub seconds: Vec<f64>,
    pub asking: Vec<f64>,
    pub working: Vec<f64>,
    pub bytes: u64,
}

/// A line for each way, and for each of PyTorch's.
pub fn rows(sizes: &Sizes, rows: &[Row], theirs: &[peer::Row]) -> Vec<[String; 10]> {
    let heading = [
        "",
        "precision",
        "M",
        "ms a step",
        "tokens/s",
        "TFLOP/s",
        "of one stage",
        "asking / device ms",
        "GB",
        "of PyTorch",
    ];
    let mut drawn = vec![heading.map(str::to_owned)];
    let eager = |precision: &str, micro_batches: usize| {
        let is_it = |row: &&peer::Row| {
            row.precision == precision && row.micro_batches == micro_batches && !row.compiled
        };
        theirs.iter().find(is_it).map(|row| median(&row.seconds))
    };
    for row in rows {
        let seconds = median(&row.seconds);
        let one = rows.iter().find(|one| {
            one.devices == "cuda:0"
                && (one.precision, one.micro_batches) == (row.precision, row.micro_batches)
        });
        let of_one = one.map_or(f64::NAN, |one| median(&one.seconds) / seconds);
        let (asking, working) = (median(&row.asking), median(&row.working));
        drawn.push([
            row.devices.to_owned(),
            row.precision.to_owned(),
            row.micro_batches.to_string(),
            format!("{:.1}", seconds * 1e3),
            format!("{:.0}", sizes.tokens() as f64 / seconds),
            format!("{:.1}", sizes.flops() / seconds / 1e12),
            format!("{of_one:.3}"),
            format!(
                "{:.1} / {:.1} = {:.2}",
                asking * 1e3,
                working * 1e3,
                asking / working
            ),
            format!("{:.1}", row.bytes as f64 / 1e9),
            eager(row.precision, row.micro_batches)
                .map_or_else(String::new, |eager| format!("{:.3}", eager / seconds)),
        ]);
    }
    for row in theirs {
        let seconds = median(&row.seconds);
        let name = if row.compiled {
            "PyTorch, compiled"
        } else {
            "PyTorch, eager"
        };
        drawn.push([
            name.to_owned(),
            row.precision.to_owned(),
            row.micro_batches.to_string(),
            format!("{:.1}", seconds * 1e3),
            format!("{:.0}", sizes.tokens() as f64 / seconds),
            format!("{:.1}", sizes.flops() / seconds / 1e12),
            String::new(),
            String::new(),
            format!("{:.1}", row.bytes as f64 / 1e9),
            eager(row.precision, row.micro_batches)
                .map_or_else(String::new, |eager| format!("{:.3}", eager / seconds)),
        ]);
    }
    drawn
}

/// An object for each.
pub fn json_lines(
    sizes: &Sizes,
    rows: &[Row],
    theirs: &[peer::Row],
    products: &[Product],
) -> String {
    let ours = rows.iter().map(|row| {
        let seconds = median(&row.seconds);
        json!({
            "kind": "bench", "family": "cuda", "devices": row.devices, "precision": row.precision,
            "micro_batches": row.micro_batches, "median_seconds": seconds,
            "tokens_per_second": sizes.tokens() as f64 / seconds, "asking_seconds": median(&row.asking),
            "working_seconds": median(&row.working), "peak_bytes": row.bytes,
        })
    });
    let theirs = theirs.iter().map(|row| {
        let seconds = median(&row.seconds);
        json!({
            "kind": "peer", "family": "cuda", "compiled": row.compiled, "precision": row.precision,
            "micro_batches": row.micro_batches, "median_seconds": seconds,
            "tokens_per_second": sizes.tokens() as f64 / seconds, "peak_bytes": row.bytes,
        })
    });
    let products = products.iter().map(|product| {
        let [m, n, k] = product.sizes;
        json!({
            "kind": "product", "family": "cuda", "layout": product.layout, "precision": product.precision,
            "m": m, "n": n, "k": k, "seconds": product.seconds,
            "gflops_per_second": product.gflops(product.seconds), "peer_seconds": product.theirs,
        })
    });
    ours.chain(theirs)
        .chain(products)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn median(times: &[f64]) -> f64 {
    Summary::of(times).map_or(f64::NAN, |summary| summary.median)
}
