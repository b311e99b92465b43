//! AdamW on a GPU: launches.

use super::factors::Factors;
use super::kernels;
use super::update::AdamWUpdate;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::cuda::table::Table;
use crate::{DType, Result, Tensor};

impl AdamWUpdate<'_> {
    /// The type of the copy, and the addresses of all tensors.
    fn places(&mut self, gpu: &Gpu) -> Result<(DType, [Pointer; 5])> {
        const OP: &str = "adamw";
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
        // A gradient on the host would be copied for this call only.
        let grad = self.grad.operand(OP, gpu, single)?.at;
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
    let (stored, [value, copy, grad, first, second]) = update.places(gpu)?;
    let states = [first, second];
    gpu.launch(&kernels::adamw(
        stored, value, copy, grad, states, n, factors,
    ))
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
    /// Collects a step.
    pub fn add(&mut self, gpu: &Gpu, mut update: AdamWUpdate<'_>, factors: Factors) -> Result<()> {
        let n = update.value.elements();
        let (stored, places) = update.places(gpu)?;
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
            group.gpu.launch(&launch)?;
            drop(group.held);
        }
        Ok(())
    }
}
