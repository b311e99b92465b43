//! What the tests of the operations share: seeded values, comparisons, finite differences.

use crate::{Device, DeviceId, Host, InstructionSet, Shape, Tensor};

/// Thread counts for which every operation must give the same bits.
pub(crate) const THREADS: [usize; 4] = [1, 2, 3, 8];

/// A handle of a host of one thread.
pub(crate) fn device() -> Device {
    device_with(1)
}

/// A handle of a host of `threads` threads.
pub(crate) fn device_with(threads: usize) -> Device {
    Host::new(threads)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("the host's processor is a device")
}

/// `n` values in -1..1 from a linear congruential generator: independent of the crate's own.
pub(crate) fn random_values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// A tensor of [`random_values`].
pub(crate) fn random(device: &Device, shape: impl Into<Shape>, seed: u64) -> Tensor {
    let shape = shape.into();
    let n = shape.elements().expect("test shapes are small");
    Tensor::from_f32(device, shape, random_values(n, seed)).expect("as many values as elements")
}

/// The elements in double precision, for reference computations.
pub(crate) fn f64s(tensor: &Tensor) -> Vec<f64> {
    let floats = tensor.f32s().expect("a tensor of floats");
    floats.iter().map(|&v| f64::from(v)).collect()
}

/// The elements' bits, for comparisons that must be exact (and tell -0 from 0).
pub(crate) fn bits(tensor: &Tensor) -> Vec<u32> {
    let floats = tensor.f32s().expect("a tensor of floats");
    floats.iter().map(|v| v.to_bits()).collect()
}

/// Fails unless every element is within `tolerance · max(1, |wanted|)` of what is wanted.
#[track_caller]
pub(crate) fn assert_close(got: &Tensor, wanted: &[f64], tolerance: f64) {
    let got = f64s(got);
    assert_eq!(got.len(), wanted.len(), "number of elements");
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs();
        assert!(
            error <= tolerance * wanted.abs().max(1.0),
            "element {i}: got {got}, wanted {wanted}"
        );
    }
}

/// Fails unless `compute` gives the same bits with every number of [`THREADS`].
#[track_caller]
pub(crate) fn assert_same_bits_for_any_threads(compute: impl Fn(&Device) -> Tensor) {
    let wanted = bits(&compute(&device()));
    for threads in THREADS {
        assert!(
            bits(&compute(&device_with(threads))) == wanted,
            "{threads} threads change the bits"
        );
    }
}

/// The gradient of `f` at `at` by central differences.
pub(crate) fn numeric_gradient(at: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut point = at.to_vec();
    (0..at.len())
        .map(|i| {
            point[i] = at[i] + STEP;
            let above = f(&point);
            point[i] = at[i] - STEP;
            let below = f(&point);
            point[i] = at[i];
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

/// Fails to compile if the type implements the trait: two implementations would then fit the call.
#[cfg(any(target_arch = "x86_64", feature = "cuda"))]
macro_rules! assert_not_impl {
    ($type:ty: $trait:ident) => {
        const _: fn() = || {
            trait Fits<A> {
                fn once() {}
            }
            impl<T: ?Sized> Fits<()> for T {}
            impl<T: ?Sized + $trait> Fits<u8> for T {}
            <$type as Fits<_>>::once();
        };
    };
}
#[cfg(any(target_arch = "x86_64", feature = "cuda"))]
pub(crate) use assert_not_impl;

/// A device of the processor whose products are limited to these instructions.
pub(crate) fn limited(threads: usize, instructions: InstructionSet) -> Device {
    let host = Host::new(threads)
        .and_then(|host| host.with_instruction_set(instructions))
        .unwrap();
    host.device(DeviceId::Cpu).unwrap()
}
