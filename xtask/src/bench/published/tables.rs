//! A published table: speeds, balances and devices, and the flags of `gpipe plan` for a row.

/// A table of a paper or of a project's benchmarks.
pub struct Table {
    pub name: &'static str,
    /// Where the numbers are published.
    pub source: &'static str,
    pub model: &'static [&'static str],
    pub device: Device,
    /// The layers of this program's model for each published one; empty where they are the same.
    pub layers: fn() -> Vec<usize>,
    /// The row to whose speed the others are compared.
    pub base: usize,
    pub rows: &'static [Row],
    /// Where the prediction parts from what was published, and why.
    pub note: &'static str,
}

/// A row of a table.
#[derive(Clone, Copy)]
pub struct Row {
    pub experiment: &'static str,
    /// Samples a second, or a speed-up.
    pub published: f64,
    pub batch: usize,
    pub micro_batches: usize,
    /// Layers of each partition.
    pub balance: &'static [usize],
    pub remat: &'static str,
}

/// An accelerator by its data sheet.
#[derive(Clone, Copy)]
pub struct Device {
    flops_per_second: f64,
    /// Of its memory.
    bytes_per_second: f64,
    /// Bytes a second to its neighbour.
    link: f64,
}

/// NVIDIA Tesla P40: single precision, GDDR5, PCIe 3.0 x16.
pub const P40: Device = Device {
    flops_per_second: 11.76e12,
    bytes_per_second: 346e9,
    link: 15.75e9,
};

/// NVIDIA Tesla P100 (PCIe): single precision, HBM2, PCIe 3.0 x16.
pub const P100: Device = Device {
    flops_per_second: 9.3e12,
    bytes_per_second: 732e9,
    link: 15.75e9,
};

/// A core, half a chip, of Cloud TPU v2: bfloat16, HBM (Jouppi et al., CACM 63(7), 2020), one link.
pub const TPU_V2: Device = Device {
    flops_per_second: 23e12,
    bytes_per_second: 350e9,
    link: 62e9,
};

/// The same of Cloud TPU v3.
pub const TPU_V3: Device = Device {
    flops_per_second: 61.5e12,
    bytes_per_second: 450e9,
    link: 82e9,
};

/// A row: its published speed, samples and micro-batches of a step, balance and policy.
pub const fn row(
    experiment: &'static str,
    published: f64,
    [batch, micro_batches]: [usize; 2],
    balance: &'static [usize],
    remat: &'static str,
) -> Row {
    Row {
        experiment,
        published,
        batch,
        micro_batches,
        balance,
        remat,
    }
}

impl Table {
    /// The flags of `gpipe plan` for a row.
    pub fn arguments(&self, row: &Row) -> Vec<String> {
        let Device {
            flops_per_second,
            bytes_per_second,
            link,
        } = self.device;
        let stages = row.balance.len();
        let text = |text: &str| text.to_owned();
        let mut arguments: Vec<String> = self.model.iter().copied().map(text).collect();
        arguments.extend(["--optimizer", "sgd", "--schedule", "gpipe"].map(text));
        let given = [
            ("--workers", format!("{stages}*{flops_per_second}")),
            ("--link", format!("0:{link}")),
            (
                "--cost-model",
                format!("time:{:.0}", flops_per_second / bytes_per_second),
            ),
            ("--stages", stages.to_string()),
            ("--partition", sizes(row.balance, &(self.layers)())),
            ("--batch-size", row.batch.to_string()),
            ("--micro-batches", row.micro_batches.to_string()),
            ("--remat", text(row.remat)),
        ];
        for (flag, value) in given {
            arguments.extend([text(flag), value]);
        }
        arguments
    }
}

/// A balance in layers of this program, by their number for each published layer.
pub fn sizes(balance: &[usize], layers: &[usize]) -> String {
    let mut first = 0;
    let size = |&published: &usize| {
        let last = first + published;
        let size = layers
            .get(first..last)
            .map_or(published, |own| own.iter().sum());
        first = last;
        size.to_string()
    };
    let sizes: Vec<String> = balance.iter().map(size).collect();
    sizes.join(",")
}
