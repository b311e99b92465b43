//! The speeds of torchgpipe, on Tesla P40s.

use super::tables::{P40, Row, Table, row};

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
    Table {
        name: "torchgpipe, U-Net (5, 64) at 192², P40",
        source: "github.com/kakaobrain/torchgpipe, benchmarks/unet-speed",
        model: &["--model", "unet:5,64"],
        device: P40,
        layers: Vec::new,
        base: 0,
        rows: &[
            row("baseline", 28.500, [40, 1], &[241], "keep"),
            row("pipeline-1", 24.456, [80, 2], &[241], "except-last"),
            row("pipeline-2", 35.502, [512, 32], &[104, 137], "except-last"),
            row(
                "pipeline-4",
                67.042,
                [512, 16],
                &[30, 66, 84, 61],
                "except-last",
            ),
            row(
                "pipeline-8",
                88.497,
                [640, 40],
                &[16, 27, 31, 44, 22, 57, 27, 17],
                "except-last",
            ),
        ],
        note: "Every layer is predicted at the same share of the rate. A library has several ways to convolve 3 × 3, which \
               are not equally fast for large images of few channels and small ones of many; a balance that was tuned \
               on the device follows them. By FLOPs alone the speed-ups are 1.26, 1.80 and 2.73.",
    },
    Table {
        name: "torchgpipe, AmoebaNet-D (18, 256) at 224², P40",
        source: "github.com/kakaobrain/torchgpipe, benchmarks/amoebanetd-speed",
        model: &["--model", "amoebanetd:18,256"],
        device: P40,
        layers: Vec::new,
        base: 2,
        rows: &AMOEBANET,
        note: "M = 1: with one micro-batch this program recomputes nothing, as nothing is saved by it; torchgpipe \
               recomputes, which takes about a third more.",
    },
];

/// The speeds of the AmoebaNet-D (18, 256), with their balances.
pub const AMOEBANET: [Row; 9] = [
    row("n=2 m=1", 26.733, [96, 1], &[7, 17], "stage"),
    row("n=2 m=4", 41.133, [256, 4], &[9, 15], "except-last"),
    row("n=2 m=32", 47.386, [1280, 32], &[9, 15], "except-last"),
    row("n=4 m=1", 26.827, [160, 1], &[3, 4, 5, 12], "stage"),
    row("n=4 m=4", 44.543, [360, 4], &[3, 6, 7, 8], "except-last"),
    row("n=4 m=32", 72.412, [1152, 32], &[3, 6, 7, 8], "except-last"),
    row(
        "n=8 m=1",
        24.918,
        [196, 1],
        &[2, 2, 2, 2, 2, 3, 4, 7],
        "stage",
    ),
    row(
        "n=8 m=4",
        70.065,
        [480, 4],
        &[2, 2, 2, 3, 3, 4, 4, 4],
        "except-last",
    ),
    row(
        "n=8 m=32",
        132.413,
        [1280, 32],
        &[2, 2, 2, 3, 3, 4, 4, 4],
        "except-last",
    ),
];

/// torchgpipe counts a projection of a skip with the sum, ours are two layers behind the fork, which begins a block;
/// and it has a layer that flattens before the last.
pub fn resnet101() -> Vec<usize> {
    let block = |index: usize| [if index == 0 { 3 } else { 1 }].into_iter().chain([1; 10]);
    let groups = [3, 4, 23, 3].map(|blocks| (0..blocks).flat_map(block));
    let stem = [1; 4].into_iter();
    stem.chain(groups.into_iter().flatten())
        .chain([1, 0, 1])
        .collect()
}
