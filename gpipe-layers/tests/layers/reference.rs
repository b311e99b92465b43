//! Forward passes in double precision, written as plainly as can be.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use gpipe_layers::layers::Layout;

/// x (…, inputs) times the weight, plus the bias.
pub fn linear(x: &[f64], inputs: usize, weight: &[f64], bias: &[f64], layout: Layout) -> Vec<f64> {
    let outputs = weight.len() / inputs;
    let mut y = Vec::new();
    for row in x.chunks(inputs) {
        for o in 0..outputs {
            let mut sum = bias.get(o).copied().unwrap_or(0.0);
            for i in 0..inputs {
                sum += row[i]
                    * match layout {
                        Layout::InOut => weight[i * outputs + o],
                        Layout::OutIn => weight[o * inputs + i],
                    };
            }
            y.push(sum);
        }
    }
    y
}

/// Rows of mean 0 and variance 1, times the gain, plus the bias.
pub fn layer_norm(x: &[f64], gain: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let width = gain.len();
    let mut y = Vec::new();
    for row in x.chunks(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        for ((x, gain), bias) in row.iter().zip(gain).zip(bias) {
            y.push((x - mean) / (variance + eps).sqrt() * gain + bias);
        }
    }
    y
}

/// Causal attention of (batch, time, 3·width).
pub fn attention(qkv: &[f64], time: usize, width: usize, heads: usize) -> Vec<f64> {
    let size = width / heads;
    let batch = qkv.len() / (3 * width * time);
    let at = |b: usize, t: usize, part: usize, h: usize, c: usize| {
        qkv[(b * time + t) * 3 * width + part * width + h * size + c]
    };
    let mut y = vec![0.0; batch * time * width];
    for b in 0..batch {
        for h in 0..heads {
            for i in 0..time {
                let score = |j: usize| -> f64 {
                    let product: f64 = (0..size)
                        .map(|c| at(b, i, 0, h, c) * at(b, j, 1, h, c))
                        .sum();
                    (product / (size as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..=i).map(score).collect();
                let total: f64 = scores.iter().sum();
                for c in 0..size {
                    let sum: f64 = (0..=i).map(|j| scores[j] * at(b, j, 2, h, c)).sum();
                    y[(b * time + i) * width + h * size + c] = sum / total;
                }
            }
        }
    }
    y
}

/// Rows of the table.
pub fn embedding(ids: &[u32], table: &[f64], width: usize) -> Vec<f64> {
    let row = |&id: &u32| table[id as usize * width..][..width].to_vec();
    ids.iter().flat_map(row).collect()
}

/// ½x(1 + tanh(√(2/π)(x + 0.044715x³)))
pub fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// ½x(1 + erf(x/√2)), with the error function by its Taylor series.
pub fn gelu_erf(x: f64) -> f64 {
    let z = x * FRAC_1_SQRT_2;
    let (mut power, mut erf) = (z, 0.0);
    for n in 0..80 {
        let n = f64::from(n);
        erf += power / (2.0 * n + 1.0);
        power *= -z * z / (n + 1.0);
    }
    0.5 * x * (1.0 + 2.0 / PI.sqrt() * erf)
}

/// The sum, element by element; `b` repeats.
pub fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b.iter().cycle()).map(|(a, b)| a + b).collect()
}
