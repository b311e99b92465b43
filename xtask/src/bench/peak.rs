//! What the machine can do at most.

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

/// FLOPs a second of a number of threads at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Of fused multiplications and additions of floats in registers.
    pub fused: f64,
    /// Of the best matrix product.
    pub product: f64,
    /// Which that is.
    pub name: String,
}

impl Peak {
    /// Measures it.
    pub fn measure(shell: &Shell, threads: usize) -> anyhow::Result<Self> {
        eprintln!("what {threads} threads can do at most");
        let count = threads.to_string();
        let output = cmd!(
            shell,
            "cargo run --release --quiet -p gpipe-tensor --example peak -- {count} --json"
        );
        Self::read(&output.quiet().read()?, threads)
    }

    /// The better of two.
    pub fn max(self, other: Self) -> Self {
        let fused = self.fused.max(other.fused);
        let best = match self.product >= other.product {
            true => self,
            false => other,
        };
        Self { fused, ..best }
    }

    /// The two in words.
    pub fn named(&self) -> String {
        format!(
            "{:.0} GFLOP/s of fused multiply-add, {:.0} of the best product ({})",
            self.fused / 1e9,
            self.product / 1e9,
            self.name
        )
    }

    fn read(output: &str, threads: usize) -> anyhow::Result<Self> {
        let lines = output
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let of_threads = |line: &Value| line["threads"].as_u64() == Some(threads as u64);
        let line: Value = lines
            .into_iter()
            .find(of_threads)
            .with_context(|| format!("the example says nothing of {threads} threads"))?;
        let number = |key: &str| line[key].as_f64().with_context(|| format!("no {key}"));
        Ok(Self {
            fused: number("fused_flops_per_second")?,
            product: number("product_flops_per_second")?,
            name: line["product"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_threads_counts() {
        let line = |threads: usize, product: f64| {
            format!(
                "{{\"kind\":\"peak\",\"threads\":{threads},\"fused_flops_per_second\":2e11,\
                 \"product_flops_per_second\":{product},\"product\":\"Nn 1x2x3\"}}\n"
            )
        };
        let both = [line(1, 1e11), line(2, 3e11)].concat();
        let peak = Peak::read(&both, 2).unwrap();
        assert_eq!(
            peak.named(),
            "200 GFLOP/s of fused multiply-add, 300 of the best product (Nn 1x2x3)"
        );
        let better = Peak::read(&both, 1).unwrap().max(peak.clone());
        assert_eq!(better, peak);
        assert!(Peak::read(&both, 4).is_err());
    }
}
