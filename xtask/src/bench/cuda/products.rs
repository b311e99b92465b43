//! The matrix products of the model's linear layers, alone.

use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::peer::Peer;
use super::sizes::{MICRO_BATCHES, Sizes};
use crate::gpu::limit;
use crate::gpu::programs::Programs;

/// A product of matrices, and PyTorch's time for the same one.
pub struct Product {
    pub precision: &'static str,
    pub sizes: [u64; 3],
    pub layout: String,
    pub seconds: f64,
    pub theirs: Option<f64>,
}

impl Product {
    /// Billions of FLOPs a second, for a product that takes a time in seconds.
    pub fn gflops(&self, seconds: f64) -> f64 {
        let [m, n, k] = self.sizes.map(|size| size as f64);
        2.0 * m * n * k / seconds / 1e9
    }
}

/// The products of the model's linear layers.
pub fn measured(
    programs: &Programs,
    sizes: &Sizes,
    only: Option<&str>,
    peer: Option<&Peer>,
) -> anyhow::Result<Vec<Product>> {
    let mut products = Vec::new();
    let tokens = sizes.tokens() / MICRO_BATCHES;
    for precision in ["f32", "tf32", "bf16"] {
        if only.is_some_and(|only| only != precision) {
            continue;
        }
        eprintln!("matrix products in {precision}");
        let mut command = Command::new(&programs.products);
        command.args([tokens, sizes.width, sizes.vocabulary].map(|size| size.to_string()));
        let output = limit::output(command.arg(precision)).context("running the products")?;
        if !output.status.success() {
            eprintln!("products: {}", String::from_utf8_lossy(&output.stderr));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            products.push(product(precision, line)?);
        }
    }
    if let Some(peer) = peer {
        for product in &mut products {
            product.theirs = peer.product(product.precision, product.sizes, &product.layout)?;
        }
    }
    Ok(products)
}

fn product(precision: &'static str, line: &str) -> anyhow::Result<Product> {
    let object: Value =
        serde_json::from_str(line).with_context(|| format!("products printed `{line}`"))?;
    let size = |key: &str| {
        object[key]
            .as_u64()
            .with_context(|| format!("a product without {key}"))
    };
    Ok(Product {
        precision,
        sizes: [size("m")?, size("n")?, size("k")?],
        layout: object["layout"].as_str().unwrap_or_default().to_owned(),
        seconds: object["seconds"]
            .as_f64()
            .context("a product without seconds")?,
        theirs: None,
    })
}

/// A line for each.
pub fn drawn(products: &[Product]) -> Vec<[String; 6]> {
    let heading = [
        "m x n x k",
        "layout",
        "precision",
        "ms",
        "GFLOP/s",
        "of PyTorch",
    ];
    let mut drawn = vec![heading.map(str::to_owned)];
    for product in products {
        let [m, n, k] = product.sizes;
        drawn.push([
            format!("{m} x {n} x {k}"),
            product.layout.clone(),
            product.precision.to_owned(),
            format!("{:.3}", product.seconds * 1e3),
            format!("{:.0}", product.gflops(product.seconds)),
            product.theirs.map_or_else(String::new, |theirs| {
                format!("{:.3}", theirs / product.seconds)
            }),
        ]);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_read_and_its_speed_worked_out() {
        let line = "{\"layout\":\"Nn\",\"m\":1000,\"n\":20,\"k\":30,\"seconds\":0.001}";
        let product = product("f32", line).unwrap();
        let drawn = drawn(&[product]);
        assert_eq!(
            (drawn[1][0].as_str(), drawn[1][4].as_str()),
            ("1000 x 20 x 30", "1")
        );
        assert!(super::product("f32", "{}").is_err());
    }
}
