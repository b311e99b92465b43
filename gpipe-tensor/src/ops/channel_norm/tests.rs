//! Statistics, values and gradients against plain loops.

use super::*;
use crate::testing::{
    assert_close, assert_same_bits_for_any_threads, bits, device, f64s, numeric_gradient, random,
};

const EPS: f32 = 1e-3;

/// (groups, rows of a group, channels): rows around the fours of a block, and more than a block of rows.
const SIZES: [[usize; 3]; 6] = [
    [1, 2, 1],
    [1, 7, 3],
    [3, 5, 2],
    [2, 8, 17],
    [2, 33, 16],
    [1, 5, 40],
];

/// Means and biased variances, (2, groups, channels).
fn plain_statistics(x: &[f64], [groups, rows, channels]: [usize; 3]) -> Vec<f64> {
    let of =
        |group: usize, c: usize| (0..rows).map(move |row| x[(group * rows + row) * channels + c]);
    let all = || (0..groups).flat_map(|group| (0..channels).map(move |c| (group, c)));
    let mean = |group, c| of(group, c).sum::<f64>() / rows as f64;
    let variance = |group, c| {
        let mean = mean(group, c);
        of(group, c).map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64
    };
    let means = all().map(|(group, c)| mean(group, c));
    means
        .chain(all().map(|(group, c)| variance(group, c)))
        .collect()
}

fn plain(x: &[f64], params: Option<[&[f64]; 2]>, sizes: [usize; 3]) -> Vec<f64> {
    let [groups, rows, channels] = sizes;
    let statistics = plain_statistics(x, sizes);
    let y = x.iter().enumerate().map(|(i, x)| {
        let (c, at) = (i % channels, i / channels / rows * channels + i % channels);
        let variance = statistics[groups * channels + at];
        let normal = (x - statistics[at]) / (variance + f64::from(EPS)).sqrt();
        params.map_or(normal, |[gain, bias]| normal * gain[c] + bias[c])
    });
    y.collect()
}

/// Calls `run` with a normalization by the statistics of x.
fn with_norm<R>(
    x: &Tensor,
    groups: usize,
    gain_and_bias: Option<[&Tensor; 2]>,
    run: impl FnOnce(&ChannelNorm<'_>) -> R,
) -> R {
    let statistics = channel_statistics(x, groups).unwrap();
    run(&ChannelNorm {
        mean: &statistics.rows(0..1).unwrap(),
        variance: &statistics.rows(1..2).unwrap(),
        gain_and_bias,
        eps: EPS,
    })
}

#[test]
fn values_and_gradients_equal_a_plain_loop() {
    let device = device();
    for sizes in SIZES {
        let [groups, rows, channels] = sizes;
        let shape = [groups, rows, channels];
        // Stretched, so that two rows are not close to constant.
        let x = crate::ops::scale(&random(&device, shape, 1), 3.0).unwrap();
        let dy = random(&device, shape, 2);
        let [gain, bias] = [3, 4].map(|seed| random(&device, [channels], seed));
        let statistics = channel_statistics(&x, groups).unwrap();
        assert_close(&statistics, &plain_statistics(&f64s(&x), sizes), 1e-6);
        let [xs, gains, biases, weights] = [&x, &gain, &bias, &dy].map(f64s);
        let inner = |y: Vec<f64>| y.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
        for params in [None, Some([&gain, &bias])] {
            let (y, (dx, sums)) = with_norm(&x, groups, params, |norm| {
                (
                    channel_norm(&x, norm).unwrap(),
                    channel_norm_grad(&x, &dy, norm).unwrap(),
                )
            });
            let plain_params = params.map(|_| [gains.as_slice(), biases.as_slice()]);
            assert_close(&y, &plain(&xs, plain_params, sizes), 2e-6);
            let wanted = numeric_gradient(&xs, |x| inner(plain(x, plain_params, sizes)));
            assert_close(&dx, &wanted, 1e-5);
            if groups == 1 && params.is_some() {
                let mut wanted = numeric_gradient(&gains, |gain| {
                    inner(plain(&xs, Some([gain, &biases]), sizes))
                });
                wanted.extend(numeric_gradient(&biases, |bias| {
                    inner(plain(&xs, Some([&gains, bias]), sizes))
                }));
                assert_close(&sums, &wanted, 1e-5);
            }
        }
    }
}

#[test]
fn values_far_from_zero_keep_their_digits() {
    let device = device();
    // More rows than a block has.
    let (rows, channels) = (20_000, 3);
    let x: Vec<f32> = (0..rows * channels)
        .map(|i| 1000.0 + (i / channels % 2) as f32)
        .collect();
    let x = Tensor::from_f32(&device, [rows, channels], x).unwrap();
    let statistics = channel_statistics(&x, 1).unwrap();
    assert_close(
        &statistics,
        &[1000.5, 1000.5, 1000.5, 0.25, 0.25, 0.25],
        1e-6,
    );
}

#[test]
fn merged_statistics_are_those_of_all_rows() {
    let device = device();
    let x = random(&device, [24, 5], 1);
    let all = channel_statistics(&x, 1).unwrap();
    for parts in [vec![24], vec![1, 23], vec![8, 8, 8], vec![5, 2, 17]] {
        let [mut mean, mut variance] = [0; 2].map(|_| Tensor::zeros(&device, [5]).unwrap());
        let mut rows = 0;
        for part in parts {
            let statistics = channel_statistics(&x.rows(rows..rows + part).unwrap(), 1).unwrap();
            let into = [&mut mean, &mut variance];
            merge_channel_statistics(into, rows as u64, &statistics, part as u64).unwrap();
            rows += part;
        }
        assert_close(&mean, &f64s(&all)[..5], 1e-6);
        assert_close(&variance, &f64s(&all)[5..], 1e-6);
    }
}

#[test]
fn an_average_moves_by_its_momentum() {
    let device = device();
    let mut value = Tensor::from_f32(&device, [2], [1.0, -4.0]).unwrap();
    let new = Tensor::from_f32(&device, [2], [2.0, 8.0]).unwrap();
    moving_average(&mut value, &new, 0.25, 0.5).unwrap();
    assert_eq!(value.f32s().unwrap(), [1.0, -2.0]);
}

#[test]
fn threads_do_not_change_the_bits() {
    for groups in [1, 3] {
        let run = |device: &crate::Device| {
            let x = random(device, [3, 500, 70], 1);
            let dy = random(device, [3, 500, 70], 2);
            let [gain, bias] = [3, 4].map(|seed| random(device, [70], seed));
            with_norm(&x, groups, Some([&gain, &bias]), |norm| {
                let y = channel_norm(&x, norm).unwrap();
                let (dx, sums) = channel_norm_grad(&x, &dy, norm).unwrap();
                [y, dx, sums]
            })
        };
        for result in 0..3 {
            assert_same_bits_for_any_threads(|device| run(device)[result].clone());
        }
    }
}

#[test]
fn instances_do_not_see_each_other() {
    let device = device();
    let x = random(&device, [3, 4, 4, 5], 1);
    let y = with_norm(&x, 3, None, |norm| channel_norm(&x, norm).unwrap());
    let second = x.rows(1..2).unwrap();
    let alone = with_norm(&second, 1, None, |norm| {
        channel_norm(&second, norm).unwrap()
    });
    assert_eq!(bits(&alone), bits(&y.rows(1..2).unwrap()));
}

#[test]
fn no_elements_are_fine() {
    let device = device();
    for shape in [[0, 4], [4, 0]] {
        let x = random(&device, shape, 1);
        with_norm(&x, 1, None, |norm| {
            assert_eq!(channel_norm(&x, norm).unwrap().shape(), x.shape());
            let (dx, _) = channel_norm_grad(&x, &x, norm).unwrap();
            assert_eq!(dx.shape(), x.shape());
        });
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    let x = random(&device, [6, 4], 1);
    let message = channel_statistics(&x, 4).unwrap_err().to_string();
    assert_eq!(
        message,
        "channel_statistics: rows in 4 equal groups, got [6, 4]"
    );
    assert!(channel_statistics(&x, 0).is_err());
    let [gain, short] = [4, 3].map(|n| random(&device, [n], 2));
    let message = with_norm(&x, 1, Some([&gain, &short]), |norm| channel_norm(&x, norm));
    assert_eq!(
        message.unwrap_err().to_string(),
        "channel_norm: a gain and a bias of 4 elements, got [3]"
    );
    with_norm(&x, 1, None, |norm| {
        assert!(channel_norm_grad(&x, &gain, norm).is_err());
        assert!(channel_norm(&random(&device, [6, 5], 1), norm).is_err());
    });
    let mut mean = random(&device, [4], 1);
    let mut variance = random(&device, [4], 1);
    assert!(merge_channel_statistics([&mut mean, &mut variance], 1, &gain, 1).is_err());
    assert!(moving_average(&mut mean, &short, 0.5, 1.0).is_err());
}
