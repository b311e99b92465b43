//! The published tables: speeds, balances, and devices by their data sheets.

/// A table of a paper or of a project's benchmarks.
pub struct Table {
    pub name: &'static str,
    /// Where the numbers are published.
    pub source: &'static str,
    model: &'static [&'static str],
    device: Device,
    /// The layers of this program's model for each published one; empty where they are the same.
    layers: fn() -> Vec<usize>,
    /// The row to whose speed the others are compared.
    pub base: usize,
    pub rows: &'static [Row],
    /// Where the prediction parts from what was published, and why.
    pub note: &'static str,
}

/// A row of a table.
pub struct Row {
    pub experiment: &'static str,
    /// Samples a second, or a speed-up.
    pub published: f64,
    pub batch: usize,
    micro_batches: usize,
    /// Layers of each partition.
    balance: &'static [usize],
    remat: &'static str,
}

/// An accelerator by its data sheet.
#[derive(Clone, Copy)]
struct Device {
    flops_per_second: f64,
    /// Of its memory.
    bytes_per_second: f64,
    /// Bytes a second to its neighbour.
    link: f64,
}

/// NVIDIA Tesla P40: single precision, GDDR5, PCIe 3.0 x16.
const P40: Device = Device {
    flops_per_second: 11.76e12,
    bytes_per_second: 346e9,
    link: 15.75e9,
};

/// NVIDIA Tesla P100 (PCIe): single precision, HBM2, PCIe 3.0 x16.
const P100: Device = Device {
    flops_per_second: 9.3e12,
    bytes_per_second: 732e9,
    link: 15.75e9,
};

/// A core, half a chip, of Cloud TPU v3: bfloat16, HBM (Jouppi et al., CACM 63(7), 2020), one link.
const TPU_V3: Device = Device {
    flops_per_second: 61.5e12,
    bytes_per_second: 450e9,
    link: 82e9,
};

pub const TABLES: &[Table] = &[
    Table {
        name: "torchgpipe, ResNet-101 at 224², P40",
        source: "github.com/kakaobrain/torchgpipe, benchmarks/resnet101-speed",
        model: &["--model", "resnet101"],
        device: P40,
        layers: resnet101,
        base: 0,
        rows: &[
            row("baseline", 95.862, [118, 1], &[370], "keep"),
            row("pipeline-1", 81.796, [220, 2], &[370], "except-last"),
            row(
                "pipeline-2",
                135.539,
                [25_000, 1667],
                &[135, 235],
                "except-last",
            ),
            row(
                "pipeline-4",
                265.958,
                [5632, 256],
                &[44, 92, 124, 110],
                "except-last",
            ),
            row(
                "pipeline-8",
                411.662,
                [5400, 150],
                &[26, 22, 33, 44, 44, 66, 66, 69],
                "except-last",
            ),
        ],
        note: "Predicted from two numbers of a data sheet. Left out are what a kernel and a copy cost by themselves and that the \
               devices share PCIe, which tells most with eight devices and micro-batches of 36 samples. By FLOPs alone (`--cost-model \
               complete`) 2, 4 and 8 partitions come out at 1.24, 2.38 and 3.91: the first stages move most bytes.",
    },
    // Neither balance nor batch is published: blocks are cut evenly, and a micro-batch has the 32 samples of the
    // paper's table 1.
    Table {
        name: "GPipe, table 2, Transformer-48, TPU",
        source: "arXiv:1811.06965v5",
        model: &transformer("model.blocks=48"),
        device: TPU_V3,
        layers: Vec::new,
        base: 6,
        rows: &[
            row("K=2 M=1", 1.0, [32, 1], &EVEN_48.0, "stage"),
            row("K=4 M=1", 1.07, [32, 1], &EVEN_48.1, "stage"),
            row("K=8 M=1", 1.3, [32, 1], &EVEN_48.2, "stage"),
            row("K=2 M=4", 1.7, [128, 4], &EVEN_48.0, "stage"),
            row("K=4 M=4", 3.2, [128, 4], &EVEN_48.1, "stage"),
            row("K=8 M=4", 4.8, [128, 4], &EVEN_48.2, "stage"),
            row("K=2 M=32", 1.8, [1024, 32], &EVEN_48.0, "stage"),
            row("K=4 M=32", 3.4, [1024, 32], &EVEN_48.1, "stage"),
            row("K=8 M=32", 6.3, [1024, 32], &EVEN_48.2, "stage"),
        ],
        note: "M = 1: with one micro-batch this program recomputes nothing, as nothing is saved by it; GPipe recomputes. M = 4: what was \
               published exceeds K · M / (M + K − 1) = 2.3 and 2.9 times one device, the most that equal micro-batches allow, so these \
               batches were not of equal speed. M = 32: the head makes the last of eight stages the longest, and GPipe recomputes \
               while it waits, which is not simulated for listed workers.",
    },
    Table {
        name: "GPipe, table 3, Transformer-24, P100 without NVLink",
        source: "arXiv:1811.06965v5",
        model: &transformer("model.blocks=24"),
        device: P100,
        layers: Vec::new,
        base: 0,
        rows: &[
            row("K=2 M=32", 1.0, [1024, 32], &[25, 26], "stage"),
            row("K=4 M=32", 1.8, [1024, 32], &[13, 12, 12, 14], "stage"),
            row(
                "K=8 M=32",
                3.3,
                [1024, 32],
                &[7, 6, 6, 6, 6, 6, 6, 8],
                "stage",
            ),
        ],
        note: "M = 32: as in table 2.",
    },
];

/// 48 blocks of two layers, with the embedding before them and the head behind, cut evenly.
const EVEN_48: ([usize; 2], [usize; 4], [usize; 8]) =
    ([49, 50], [25, 24, 24, 26], [13, 12, 12, 12, 12, 12, 12, 14]);

const fn row(
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

/// The Transformer-L of the paper's table 1: with 3 blocks it has the 282.2 million parameters given there.
const fn transformer(blocks: &'static str) -> [&'static str; 18] {
    [
        "--model",
        "gpt2",
        "--tokenizer",
        "bytes",
        "--set",
        blocks,
        "--set",
        "model.width=2048",
        "--set",
        "model.heads=32",
        "--set",
        "model.vocab=32000",
        "--set",
        "model.context=1024",
        "--seq-len",
        "1024",
        "--set",
        "model.tied=false",
    ]
}

/// torchgpipe counts a projection of a skip with the sum, ours are two layers behind the fork, which begins a block;
/// and it has a layer that flattens before the last.
fn resnet101() -> Vec<usize> {
    let block = |index: usize| [if index == 0 { 3 } else { 1 }].into_iter().chain([1; 10]);
    let groups = [3, 4, 23, 3].map(|blocks| (0..blocks).flat_map(block));
    let stem = [1; 4].into_iter();
    stem.chain(groups.into_iter().flatten())
        .chain([1, 0, 1])
        .collect()
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
fn sizes(balance: &[usize], layers: &[usize]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_are_those_of_the_published_models() {
        // As many layers as torchgpipe's ResNet-101, and as `gpipe plan --model resnet101`.
        let layers = resnet101();
        assert_eq!((layers.len(), layers.iter().sum::<usize>()), (370, 377));
        assert_eq!(sizes(&[135, 235], &layers), "141,236");
        for table in TABLES {
            let whole = |row: &Row| row.balance.iter().sum::<usize>();
            let all = whole(&table.rows[0]);
            assert!(
                table.rows.iter().all(|row| whole(row) == all),
                "{}",
                table.name
            );
            assert!(table.base < table.rows.len());
        }
    }
}
