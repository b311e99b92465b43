//! The speed-ups in tables 2 and 3 of GPipe's paper.

use super::tables::{P100, Row, TPU_V2, TPU_V3, Table, row};
use super::torchgpipe::AMOEBANET;

pub const TABLES: &[Table] = &[
    // Neither balance nor batch is published: those of torchgpipe.
    Table {
        name: "GPipe, table 2, AmoebaNet-D (18, 256), TPU",
        source: "arXiv:1811.06965v5; balances and batches of torchgpipe",
        model: &["--model", "amoebanetd:18,256"],
        device: TPU_V2,
        layers: Vec::new,
        base: 2,
        rows: &amoebanet([1.0, 1.07, 1.21, 1.13, 1.26, 1.84, 1.38, 1.72, 3.48]),
        note: "M = 1: the published speed grows with the devices although one works at a time: larger batches fit \
               more of them, and the unpublished batches may differ from these.",
    },
    Table {
        name: "GPipe, table 3, AmoebaNet-D (18, 128), P100 without NVLink",
        source: "arXiv:1811.06965v5; balances and batches of torchgpipe",
        model: &["--model", "amoebanetd:18,128"],
        device: P100,
        layers: Vec::new,
        base: 0,
        rows: &many(amoebanet([0.0, 0.0, 1.0, 0.0, 0.0, 1.7, 0.0, 0.0, 2.7])),
        note: "",
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

/// The experiments of torchgpipe with other speeds; everything is recomputed.
const fn amoebanet(published: [f64; 9]) -> [Row; 9] {
    let mut rows = AMOEBANET;
    let mut index = 0;
    while index < rows.len() {
        rows[index].published = published[index];
        rows[index].remat = "stage";
        index += 1;
    }
    rows
}

/// The experiments with 32 micro-batches.
const fn many([_, _, two, _, _, four, _, _, eight]: [Row; 9]) -> [Row; 3] {
    [two, four, eight]
}

/// 48 blocks of two layers, with the embedding before them and the head behind, cut evenly.
const EVEN_48: ([usize; 2], [usize; 4], [usize; 8]) =
    ([49, 50], [25, 24, 24, 26], [13, 12, 12, 12, 12, 12, 12, 14]);

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
