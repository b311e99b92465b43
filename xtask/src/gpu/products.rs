//! Ceilings of the device, and the matrix products of the model's linear layers alone.

use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::limit;
use super::programs::Programs;
use super::results::{Results, Verdict};
use super::sizes::{MICRO_BATCHES, Sizes};

/// The columns of a table of products.
const COLUMNS: [&str; 6] = ["product", "layout", "precision", "by", "ms", "TFLOP/s"];

/// A product of matrices and its time.
pub struct Product<'a> {
    /// gpipe or PyTorch.
    pub program: &'a str,
    /// What is multiplied: bf16, tf32 or f32.
    pub precision: &'a str,
    /// Rows, columns and terms.
    pub sizes: [u64; 3],
    /// Which of the factors are transposed.
    pub layout: &'a str,
    /// Of one product.
    pub seconds: f64,
}

impl Product<'_> {
    /// Adds its row.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn row(&self, results: &mut Results) -> anyhow::Result<()> {
        let [m, n, k] = self.sizes;
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        let cells = [
            format!("{m} x {n} x {k}"),
            self.layout.to_owned(),
            self.precision.to_owned(),
            self.program.to_owned(),
            format!("{:.3}", 1e3 * self.seconds),
            format!("{:.1}", flops / self.seconds / 1e12),
        ];
        let object = json!({
            "kind": "product", "program": self.program, "precision": self.precision, "layout": self.layout,
            "m": m, "n": n, "k": k, "seconds": self.seconds,
        });
        results.row(&COLUMNS, &cells, object)
    }
}

/// A product, of what a program printed.
///
/// # Errors
/// If something of it is missing.
pub fn product<'a>(
    program: &'a str,
    precision: &'a str,
    object: &'a Value,
) -> anyhow::Result<Product<'a>> {
    let size = |key: &str| {
        object[key]
            .as_u64()
            .with_context(|| format!("a product without {key}: {object}"))
    };
    Ok(Product {
        program,
        precision,
        sizes: [size("m")?, size("n")?, size("k")?],
        layout: object["layout"].as_str().unwrap_or_default(),
        seconds: object["seconds"]
            .as_f64()
            .with_context(|| format!("a product without seconds: {object}"))?,
    })
}

/// The model's products in a precision, each a row as it is known.
///
/// # Errors
/// If the program cannot be run or prints what is no product, or a file cannot be written.
pub fn measure(
    programs: &Programs,
    sizes: &Sizes,
    precision: &str,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut command = Command::new(&programs.products);
    let numbers = [
        sizes.tokens() / MICRO_BATCHES,
        sizes.width,
        sizes.vocabulary,
    ];
    command
        .args(numbers.map(|size| size.to_string()))
        .arg(precision);
    let ended = limit::run_heard(&mut command, &mut |line| {
        product("gpipe", precision, &read(line)?)?.row(results)
    })?;
    match ended.is_right() {
        true => Ok(()),
        false => results.failed(&format!("products in {precision}"), Verdict::Wrong, &ended),
    }
}

/// The most bytes and FLOPs a second that this device reaches: a copy, and a large product in each precision.
///
/// # Errors
/// As [`measure`].
pub fn ceilings(programs: &Programs, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    results.section("Ceilings")?;
    for precision in ["bf16", "tf32", "f32"] {
        let mut command = Command::new(&programs.products);
        command.args(["ceilings", &sizes.extent.to_string(), precision]);
        let ended = limit::run_heard(&mut command, &mut |line| {
            let object = read(line)?;
            let number = |key: &str| {
                object[key]
                    .as_f64()
                    .with_context(|| format!("`{line}` has no {key}"))
            };
            let (seconds, bytes, flops) = (number("seconds")?, number("bytes")?, number("flops")?);
            let cells = [
                object["ceiling"].as_str().unwrap_or_default().to_owned(),
                format!("{:.3}", 1e3 * seconds),
                format!("{:.0}", bytes / seconds / 1e9),
                format!("{:.1}", flops / seconds / 1e12),
            ];
            results.row(&["ceiling", "ms", "GB/s", "TFLOP/s"], &cells, object)
        })?;
        if !ended.is_right() {
            results.failed(&format!("ceilings in {precision}"), Verdict::Wrong, &ended)?;
        }
    }
    Ok(())
}

fn read(line: &str) -> anyhow::Result<Value> {
    serde_json::from_str(line).with_context(|| format!("the program of products printed `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_read() {
        let object =
            read("{\"layout\":\"Nn\",\"m\":1000,\"n\":20,\"k\":30,\"seconds\":0.001}").unwrap();
        let read = product("gpipe", "f32", &object).unwrap();
        assert_eq!(
            (read.sizes, read.layout, read.seconds),
            ([1000, 20, 30], "Nn", 0.001)
        );
        assert!(product("gpipe", "f32", &json!({})).is_err());
        assert!(super::read("no json").is_err());
    }
}
