//! Operands on one device, and the results of the operations on them.

use gpipe_tensor::ops;
use gpipe_tensor::philox::Key;
use gpipe_tensor::{DType, Device, DeviceId, Host, Result, Shape, Tensor};

/// Values in −1..1 that are a function of (seed, element), and numbers of this type.
fn values(seed: u64, n: usize, stored: DType) -> Vec<f32> {
    let stream = Key::new(seed, "operations", 0).sample(0);
    let uniform = (0..n).map(|i| 2.0 * stream.uniform(i as u64) - 1.0);
    let upper = |value: f32| f32::from_bits(value.to_bits() & 0xffff_0000);
    match stored {
        DType::F32 => uniform.collect(),
        _ => uniform.map(upper).collect(),
    }
}

/// How large tensors are.
#[derive(Clone, Copy)]
pub enum Sizes {
    /// Up to more than are copied at once.
    All,
    /// For a tool that watches every access.
    Small,
    /// Those of GPT-2 with 124 million parameters: as many positions, heads and words, fewer samples.
    Real,
}

/// Makes the operands of an operation on one device, and keeps its results.
pub struct Bench {
    pub device: Device,
    /// What the values are numbers of, and what a GPU stores them in.
    pub stored: DType,
    seed: u64,
    /// Elements of the largest tensors: more than are copied at once, unless every access is watched.
    pub largest: usize,
    pub results: Vec<Vec<f32>>,
}

impl Bench {
    pub fn new(host: &Host, id: DeviceId, sizes: Sizes, stored: DType) -> Result<Self> {
        let device = host.device(id)?;
        let results = Vec::new();
        Ok(Self {
            device,
            stored,
            seed: 0,
            largest: match sizes {
                Sizes::All => 4_200_000,
                Sizes::Small | Sizes::Real => 20_000,
            },
            results,
        })
    }

    /// A tensor of numbers of the stored type, in that type if the device has it.
    fn made(&self, shape: Shape, values: Vec<f32>) -> Result<Tensor> {
        let tensor = Tensor::from_f32(&self.device, shape, values)?;
        match self.device.id() {
            DeviceId::Cpu => Ok(tensor),
            _ => tensor.to_dtype(self.stored),
        }
    }

    /// Random values; every other time as the middle of a larger buffer.
    pub fn random(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.seed += 1;
        let shape: Shape = shape.into();
        let n = shape.elements()?;
        if self.seed.is_multiple_of(2) {
            return self.made(shape, values(self.seed, n, self.stored));
        }
        let around = self.made([3, n].into(), values(self.seed, 3 * n, self.stored))?;
        around.rows(1..2)?.reshape(shape)
    }

    /// Random values in a buffer of their own, to be changed in place.
    pub fn own(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.seed += 1;
        let shape: Shape = shape.into();
        let values = values(self.seed, shape.elements()?, self.stored);
        self.made(shape, values)
    }

    /// The same in single precision: what sums are kept in.
    pub fn single(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.own(shape)?.to_dtype(DType::F32)
    }

    pub fn keep(&mut self, tensor: &Tensor) -> Result<()> {
        self.results.push(tensor.to_f32s()?);
        Ok(())
    }

    /// Keeps a sum that another operation made on the way: it has the bits of the sum of its parts.
    pub fn keep_sum(&mut self, sum: &Tensor, [a, b]: [&Tensor; 2]) -> Result<()> {
        let bits = |tensor: &Tensor| {
            tensor
                .to_f32s()
                .map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        assert_eq!(bits(sum)?, bits(&ops::add(a, b)?)?);
        self.keep(sum)
    }

    pub fn keep_number(&mut self, number: f64) {
        self.results.push(vec![number as f32]);
    }
}
