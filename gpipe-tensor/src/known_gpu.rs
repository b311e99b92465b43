//! GPUs by name: what their vendor promises, and a model of the time that a launch takes on them.
//!
//! Peaks are the vendor's. The shares of them that kernels reach are those of a step of GPT-2 that was measured on an H200
//! (GPU.md). Other GPUs are taken to reach the same shares: every time that follows for them, and for other models, is a
//! prediction. On an H100, the same step took 0.96 to 1.03 of the time that it had given.

use crate::dtype::DType;
use crate::launch_trace::{Arithmetic, TracedLaunch};

/// A GPU as its vendor describes it, without structured sparsity.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct KnownGpu {
    /// The name that plans know it by, a word of the driver's name for it.
    pub name: &'static str,
    /// FLOP/s of products of bf16 with sums in f32, on tensor cores.
    pub bf16: f64,
    /// FLOP/s of products of factors rounded to TF32, on tensor cores.
    pub tf32: f64,
    /// FLOP/s in f32, without tensor cores.
    pub f32: f64,
    /// Bytes a second of its memory.
    pub bandwidth: f64,
    /// Bytes of its memory.
    pub memory: u64,
    /// Whether it has products of warpgroups, as compute capability 9.0 alone.
    pub warpgroups: bool,
    /// Where these numbers are from.
    pub source: &'static str,
}

/// The GPUs that plans know.
pub const KNOWN_GPUS: [KnownGpu; 4] = [
    KnownGpu {
        name: "H200",
        bf16: 989.4e12,
        tf32: 494.7e12,
        f32: 66.9e12,
        bandwidth: 4.8e12,
        memory: 141_000_000_000,
        warpgroups: true,
        source: "H200 SXM: NVIDIA H200 Tensor Core GPU data sheet (2024) for the memory; arithmetic, which is that of \
                 H100 SXM, from NVIDIA H100 Tensor Core GPU Architecture (2022), table of peak rates",
    },
    KnownGpu {
        name: "H100",
        bf16: 989.4e12,
        tf32: 494.7e12,
        f32: 66.9e12,
        bandwidth: 3.35e12,
        memory: 80_000_000_000,
        warpgroups: true,
        source: "H100 SXM: NVIDIA H100 Tensor Core GPU Architecture (2022), table of peak rates; NVIDIA H100 data \
                 sheet (2023) for the memory",
    },
    KnownGpu {
        name: "A100",
        bf16: 312e12,
        tf32: 156e12,
        f32: 19.5e12,
        bandwidth: 2.039e12,
        memory: 80_000_000_000,
        warpgroups: false,
        source: "A100 80 GB SXM: NVIDIA A100 80 GB data sheet (2021)",
    },
    KnownGpu {
        name: "4090",
        bf16: 165.2e12,
        tf32: 82.6e12,
        f32: 82.6e12,
        bandwidth: 1.008e12,
        memory: 24_000_000_000,
        warpgroups: false,
        source: "GeForce RTX 4090: NVIDIA Ada GPU Architecture (2022), appendix A",
    },
];

/// What kernels reach of a GPU's peaks, from 0 to 1: measured on an H200 (driver 580.159, cuBLAS 13.1, 2026-11-26 and 27), for GPT-2
/// of 124 million parameters and 32 samples of 1,024 tokens.
mod reached {
    /// Of products in bf16: the 24.3 TFLOP of a step in 34.1 ms.
    pub const PRODUCTS: f64 = 0.72;
    /// The same where rows begin at odd places: 0.32 TFLOP in 2.1 to 3.6 ms.
    pub const ODD_PRODUCTS: f64 = 0.12;
    /// Of products in f32: the 24.3 TFLOP of a step in 490 ms.
    pub const SINGLE_PRODUCTS: f64 = 0.74;
    /// Of those in TF32: the same in 88 ms.
    pub const TF32_PRODUCTS: f64 = 0.56;
    /// Of those in TF32 where rows begin at odd places: 7.6 TFLOP in 60 ms.
    pub const ODD_TF32_PRODUCTS: f64 = 0.26;
    /// Of attention on tensor cores, in bf16: 0.62 TFLOP in 3.4 ms; with TF32 in 8.1, 0.16 of its own peak.
    pub const ATTENTION: f64 = 0.18;
    /// Of its gradient: 2.17 TFLOP in 12.2 ms.
    pub const ATTENTION_GRADIENT: f64 = 0.18;
    /// Of attention by warpgroups: 0.62 TFLOP in 2.5 ms.
    pub const WARPGROUP_ATTENTION: f64 = 0.25;
    /// Of its gradient: 2.17 TFLOP in 7.9 ms.
    pub const WARPGROUP_ATTENTION_GRADIENT: f64 = 0.28;
    /// Of attention without tensor cores, as a share of f32's peak: both together, 2.79 TFLOP in 300 ms.
    pub const PLAIN_ATTENTION: f64 = 0.14;
    /// Of the memory: GELU, normalization, sums, the cross-entropy and AdamW, 45 GB in 13 ms.
    pub const BYTES: f64 = 0.72;
}

/// Seconds between two kernels of a stream, in which neither runs.
const BETWEEN: f64 = 2e-6;

impl KnownGpu {
    /// The GPU that a name means: its own in any case, or a longer one of the driver's.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        let name = name.to_uppercase();
        KNOWN_GPUS
            .iter()
            .find(|gpu| name.split([' ', '-']).any(|word| word == gpu.name))
    }

    /// The seconds that a launch takes by the model: those of its bytes or of its arithmetic, whichever are more, and
    /// those before it. `tf32` if products in f32 round their factors so.
    pub fn seconds(&self, launch: &TracedLaunch, tf32: bool) -> f64 {
        let flops = match launch.arithmetic {
            Arithmetic::Little => f64::INFINITY,
            Arithmetic::Product {
                factors: DType::F32,
                is_aligned: false,
                ..
            } if tf32 => reached::ODD_TF32_PRODUCTS * self.tf32,
            Arithmetic::Product {
                factors: DType::F32,
                ..
            } => match tf32 {
                true => reached::TF32_PRODUCTS * self.tf32,
                false => reached::SINGLE_PRODUCTS * self.f32,
            },
            Arithmetic::Product { is_aligned, .. } => {
                self.bf16
                    * match is_aligned {
                        true => reached::PRODUCTS,
                        false => reached::ODD_PRODUCTS,
                    }
            }
            Arithmetic::Attention {
                on_tensor_cores: false,
                ..
            } => reached::PLAIN_ATTENTION * self.f32,
            Arithmetic::Attention {
                by_warpgroups: true,
                is_gradient,
                ..
            } if self.warpgroups => {
                self.bf16
                    * match is_gradient {
                        true => reached::WARPGROUP_ATTENTION_GRADIENT,
                        false => reached::WARPGROUP_ATTENTION,
                    }
            }
            Arithmetic::Attention {
                factors,
                is_gradient,
                ..
            } => {
                let peak = match (factors, tf32) {
                    (DType::F32, true) => self.tf32,
                    // Three products of TF32 make one of f32.
                    (DType::F32, false) => self.tf32 / 3.0,
                    _ => self.bf16,
                };
                peak * match is_gradient {
                    true => reached::ATTENTION_GRADIENT,
                    false => reached::ATTENTION,
                }
            }
        };
        let bytes = launch.bytes as f64 / (reached::BYTES * self.bandwidth);
        BETWEEN + bytes.max(launch.arithmetic.flops() / flops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_and_of_people_mean_the_same_gpu() {
        for (name, bandwidth) in [
            ("NVIDIA H100 80GB HBM3", Some(3.35e12)),
            ("NVIDIA A100-SXM4-80GB", Some(2.039e12)),
            ("NVIDIA GeForce RTX 4090", Some(1.008e12)),
            ("h200", Some(4.8e12)),
            ("Emulated GPU 0", None),
            ("14090", None),
        ] {
            let found = KnownGpu::of_name(name).map(|gpu| gpu.bandwidth);
            assert_eq!(found, bandwidth, "{name}");
        }
    }

    /// The parts that the shares were taken from come out as they went in.
    #[test]
    fn the_shares_give_back_what_they_were_taken_from() {
        let h200 = KnownGpu::of_name("h200").unwrap();
        let milliseconds_of = |bytes: u64, arithmetic: Arithmetic, tf32: bool| {
            let launch = TracedLaunch {
                name: String::new(),
                seconds: 0.0,
                bytes,
                flops: arithmetic.flops(),
                arithmetic,
            };
            1e3 * h200.seconds(&launch, tf32)
        };
        let milliseconds = |bytes, arithmetic| milliseconds_of(bytes, arithmetic, false);
        let product = |is_aligned: bool, flops: f64| Arithmetic::Product {
            factors: DType::BF16,
            is_aligned,
            flops,
        };
        let attention = |[on_tensor_cores, by_warpgroups, is_gradient]: [bool; 3], flops: f64| {
            Arithmetic::Attention {
                on_tensor_cores,
                by_warpgroups,
                factors: DType::BF16,
                is_gradient,
                flops,
            }
        };
        for (arithmetic, wanted) in [
            (product(true, 24.3e12), 34.1),
            (product(false, 0.32e12), 2.7),
            (attention([true, false, false], 0.62e12), 3.44),
            (attention([true, false, true], 2.17e12), 12.17),
            (attention([true, true, false], 0.62e12), 2.5),
            (attention([true, true, true], 2.17e12), 7.9),
            (attention([false, false, true], 2.79e12), 300.0),
        ] {
            let got = milliseconds(0, arithmetic);
            assert!((got / wanted - 1.0).abs() < 0.02, "{arithmetic:?}: {got}");
        }
        let odd = Arithmetic::Product {
            factors: DType::F32,
            is_aligned: false,
            flops: 7.6e12,
        };
        assert!((milliseconds_of(0, odd, true) / 60.0 - 1.0).abs() < 0.02);
        // Bytes bound what has little arithmetic, and small products.
        assert!((milliseconds(3_456_000_000, Arithmetic::Little) - 1.002).abs() < 1e-9);
        assert!((milliseconds(3_456_000_000, product(true, 1e9)) - 1.002).abs() < 1e-9);
        assert!(milliseconds(0, Arithmetic::Little) > 0.0);
    }
}
