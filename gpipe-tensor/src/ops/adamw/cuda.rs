//! AdamW on a GPU.

use super::factors::Factors;
use super::kernels;
use super::update::AdamWUpdate;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::cuda::table::Table;
use crate::{DType, Result, Tensor};

impl AdamWUpdate<'_> {
    /// The type of the copy, and where all of them lie.
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
        // On the host it would be copied for the time of this one call.
        let grad = self.grad.operand(OP, gpu, single)?.at;
        Ok((stored, [value, copy, grad, first, second]))
    }

    /// The tensors, which stay as long as what this gives.
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

/// Steps that were asked for, and not yet made.
#[derive(Default)]
pub(super) struct Waiting(Vec<Group>);

/// Those of one handle that multiply with the same, and write copies of one type.
struct Group {
    gpu: Gpu,
    stored: DType,
    factors: Factors,
    table: Table,
    /// So that nothing in the table is freed.
    held: Vec<Tensor>,
}

impl Waiting {
    /// Asks for one.
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

    /// Makes all of them.
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
