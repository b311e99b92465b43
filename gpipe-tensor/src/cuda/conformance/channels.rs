//! Kernels of the normalization of channels.

use super::memory::{Memory, near, random};
use super::reference::{SINGLE, floats, tensor};
use super::{EDGES, Gpu, Outcome};
use crate::DType;
use crate::cuda::entry::Pointer;
use crate::ops::channel_norm::kernels;
use crate::ops::channel_norm::plan::Extents;
use crate::ops::{self, ChannelNorm};

pub(super) fn channel_norm(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for channels in EDGES.into_iter().skip(1) {
        for (groups, rows) in [(1, 2), (2, 31), (3, 33), (1, 70)] {
            let extents = Extents {
                groups,
                rows,
                channels,
            };
            normalized(gpu, stored, extents)?;
        }
    }
    // More runs of rows than a warp has lanes.
    normalized(
        gpu,
        stored,
        Extents {
            groups: 1,
            rows: 33 * 32 + 5,
            channels: 3,
        },
    )?;
    EDGES.into_iter().try_for_each(|n| statistics(gpu, n))
}

fn normalized(gpu: &Gpu<'_>, stored: DType, extents: Extents) -> Outcome {
    let Extents {
        groups,
        rows,
        channels,
    } = extents;
    let (n, all) = (groups * rows * channels, groups * channels);
    let [x, dy] = [1, 2].map(|seed| random(stored, n, seed));
    let [gain, bias] = [3, 4].map(|seed| random(stored, channels, seed));
    let [tx, tdy] = [&x, &dy].map(|values| tensor([groups * rows, channels], values));
    let [tgain, tbias] = [&gain, &bias].map(|values| tensor([channels], values));
    let [mx, mdy, mgain, mbias] =
        [&x, &dy, &gain, &bias].map(|values| Memory::floats(stored, values));
    let partials = Memory::room(SINGLE, kernels::partials(extents));
    let stats = Memory::room(SINGLE, 2 * all);
    let launches = kernels::statistics(stored, mx.at(), partials.at(), stats.at(), extents);
    gpu.run(launches, [&mx, &partials, &stats])?;
    let wanted = ops::channel_statistics(&tx, groups).expect("equal groups");
    near("statistics", SINGLE, &stats, floats(&wanted), 2e-6)?;
    // By the very statistics that the kernels read.
    let stats = stats.values(SINGLE);
    let [mean, variance] = [&stats[..all], &stats[all..]];
    let [tmean, tvariance] = [mean, variance].map(|values| tensor([groups, channels], values));
    let [mmean, mvariance] = [mean, variance].map(|values| Memory::floats(SINGLE, values));
    for gain_and_bias in [None, Some([&tgain, &tbias])] {
        let norm = ChannelNorm {
            mean: &tmean,
            variance: &tvariance,
            gain_and_bias,
            // The variance of two rows may be small, and so are its digits.
            eps: 1e-2,
        };
        let at = |memory: &Memory| gain_and_bias.map_or(Pointer::NULL, |_| memory.at());
        let pointers = kernels::Norm {
            mean: mmean.at(),
            variance: mvariance.at(),
            gain: at(&mgain),
            bias: at(&mbias),
            eps: norm.eps,
        };
        let params = [&mmean, &mvariance, &mgain, &mbias];
        let (y, dx) = (Memory::room(stored, n), Memory::room(stored, n));
        let launch = kernels::normalize(stored, mx.at(), pointers, y.at(), extents);
        gpu.run([launch], params.into_iter().chain([&mx, &y]))?;
        let wanted = ops::channel_norm(&tx, &norm).expect("operands fit");
        near("channel_norm", stored, &y, floats(&wanted), 2e-6)?;
        let sums = Memory::room(SINGLE, 2 * all);
        let operands = kernels::Gradients {
            x: mx.at(),
            dy: mdy.at(),
            partials: partials.at(),
            sums: sums.at(),
            dx: dx.at(),
        };
        let launches = kernels::gradients(stored, operands, pointers, extents);
        let memories = [&mx, &mdy, &partials, &sums, &dx];
        gpu.run(launches, params.into_iter().chain(memories))?;
        let (wanted, of_params) = ops::channel_norm_grad(&tx, &tdy, &norm).expect("operands fit");
        near("sums", SINGLE, &sums, floats(&of_params), 1e-5)?;
        near("channel_norm_grad", stored, &dx, floats(&wanted), 2e-5)?;
    }
    Ok(())
}

/// Statistics merged, and their average.
fn statistics(gpu: &Gpu<'_>, channels: usize) -> Outcome {
    let [mean, variance, average] = [1, 2, 3].map(|seed| random(SINGLE, channels, seed));
    let part = random(SINGLE, 2 * channels, 4);
    let [mut tmean, mut tvariance, mut taverage] =
        [&mean, &variance, &average].map(|values| tensor([channels], values));
    let tpart = tensor([2, channels], &part);
    let [mmean, mvariance, maverage, mpart] =
        [&mean, &variance, &average, &part].map(|values| Memory::floats(SINGLE, values));
    let into = [&mut tmean, &mut tvariance];
    ops::merge_channel_statistics(into, 3, &tpart, 1).expect("operands fit");
    let weights = [0.25, 0.1875];
    let launch = kernels::merge(mmean.at(), mvariance.at(), mpart.at(), channels, weights);
    gpu.run([launch], [&mmean, &mvariance, &mpart])?;
    near("merged mean", SINGLE, &mmean, floats(&tmean), 1e-6)?;
    near(
        "merged variance",
        SINGLE,
        &mvariance,
        floats(&tvariance),
        1e-6,
    )?;
    ops::moving_average(&mut taverage, &tmean, 0.1, 1.5).expect("operands fit");
    let launch = kernels::average(maverage.at(), mmean.at(), channels, 0.1, 1.5);
    gpu.run([launch], [&maverage, &mmean])?;
    near("average", SINGLE, &maverage, floats(&taverage), 1e-6)
}
