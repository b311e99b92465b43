//! AdamW on a GPU: launches.

use super::factors::Factors;
use super::kernels;
use super::update::AdamWUpdate;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::cuda::table::Table;
use crate::{DType, Result, Tensor};

const OP: &str = "adamw";

impl AdamWUpdate<'_> {
    /// The type of the copy, and the addresses of all tensors, with that of the gradient.
    fn places(&mut self, gpu: &Gpu, grad: Pointer) -> Result<(DType, [Pointer; 5])> {
        let single = DType::F32;
        let value = self.value.written(OP, gpu, single)?;
        let (stored, copy) = match &mut self.copy {
            Some(copy) => {
                let stored = copy.dtype();
                (stored, copy.written(OP, gpu, stored)?)
            }
            None => (single, Pointer::NULL),
        };
        let first = self.first.written(OP, gpu, single)?;
        let second = self.second.written(OP, gpu, single)?;
        Ok((stored, [value, copy, grad, first, second]))
    }

    /// Clones of the tensors, which keep their buffers alive.
    fn held(&self) -> impl Iterator<Item = Tensor> + use<> {
        let copy = self.copy.as_deref().cloned();
        let others = [&*self.value, self.grad, &*self.first, &*self.second];
        others.map(Tensor::clone).into_iter().chain(copy)
    }
}

/// One step.
pub(super) fn adamw(gpu: &Gpu, mut update: AdamWUpdate<'_>, factors: &Factors) -> Result<()> {
    let n = update.value.elements();
    // What it may hold for a gradient on the host lives until the launch.
    let operand = update.grad.operand(OP, gpu, DType::F32)?;
    let (stored, [value, copy, grad, first, second]) = update.places(gpu, operand.at)?;
    let states = [first, second];
    // SAFETY: all live on this handle and have n elements: their shapes were compared.
    unsafe {
        gpu.launch(&kernels::adamw(
            stored, value, copy, grad, states, n, factors,
        ))
    }
}

/// Steps that are collected, and not launched yet.
#[derive(Default)]
pub(super) struct Waiting(Vec<Group>);

/// Steps of one handle with the same factors and the same type of copies.
struct Group {
    gpu: Gpu,
    stored: DType,
    factors: Factors,
    table: Table,
    /// Keeps the buffers in the table alive.
    held: Vec<Tensor>,
}

impl Waiting {
    /// Collects a step, whose tensors are all on the GPU.
    pub fn add(&mut self, gpu: &Gpu, mut update: AdamWUpdate<'_>, factors: Factors) -> Result<()> {
        let n = update.value.elements();
        let grad = update.grad.operand(OP, gpu, DType::F32)?;
        let (stored, places) = update.places(gpu, grad.at)?;
        let is_it =
            |group: &Group| group.gpu.is(gpu) && group.stored == stored && group.factors == factors;
        let place = match self.0.iter().position(is_it) {
            Some(place) => place,
            None => {
                self.0.push(Group {
                    gpu: gpu.clone(),
                    stored,
                    factors,
                    table: Table::default(),
                    held: Vec::new(),
                });
                self.0.len() - 1
            }
        };
        self.0[place].table.push(&places, n);
        self.0[place].held.extend(update.held());
        Ok(())
    }

    /// Launches all steps.
    pub fn run(self) -> Result<()> {
        for group in self.0 {
            let table = group.gpu.upload(group.table.bytes())?;
            let launch =
                kernels::adamw_rows(group.stored, &group.table, table.at(0), &group.factors);
            // SAFETY: all tensors in the table live on this handle, held by the group, and the tensors
            // of each row have as many elements as the row says: their shapes were compared.
            unsafe { group.gpu.launch(&launch) }?;
            drop(group.held);
        }
        Ok(())
    }
}
