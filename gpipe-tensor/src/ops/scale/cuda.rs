//! Multiplication by a number, and zeros, on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::cuda::table::Table;
use crate::{DType, Result, Tensor};

/// a · by.
pub(super) fn scale(gpu: &Gpu, a: &Tensor, by: f32) -> Result<Tensor> {
    const OP: &str = "scale";
    let stored = a.dtype();
    let mut out = a.empty_like(a.shape().clone())?;
    let to = out.written(OP, gpu, stored)?;
    let x = a.operand(OP, gpu, stored)?;
    // SAFETY: both live on this handle, and have as many elements.
    unsafe { gpu.launch(&kernels::scale(stored, x.at, to, a.elements(), by)) }?;
    Ok(out)
}

/// a *= by.
pub(super) fn scale_assign(gpu: &Gpu, a: &mut Tensor, by: f32) -> Result<()> {
    let (n, stored) = (a.elements(), a.dtype());
    let at = a.written("scale_assign", gpu, stored)?;
    // SAFETY: it lives on this handle, and has n elements.
    unsafe { gpu.launch(&kernels::scale(stored, at, at, n, by)) }
}

/// Tensors of single precision that are to become zeros.
#[derive(Default)]
pub(super) struct Waiting(Vec<Group>);

/// Those of one handle.
struct Group {
    gpu: Gpu,
    table: Table,
    /// Keeps the buffers in the table alive.
    held: Vec<Tensor>,
}

impl Waiting {
    /// Collects a tensor.
    pub fn add(&mut self, gpu: &Gpu, tensor: &mut Tensor) -> Result<()> {
        // A tensor of single precision has no room between its rows.
        let at = tensor.written("fill", gpu, DType::F32)?;
        let place = match self.0.iter().position(|group| group.gpu.is(gpu)) {
            Some(place) => place,
            None => {
                self.0.push(Group {
                    gpu: gpu.clone(),
                    table: Table::default(),
                    held: Vec::new(),
                });
                self.0.len() - 1
            }
        };
        self.0[place].table.push(&[at], tensor.elements());
        self.0[place].held.push(tensor.clone());
        Ok(())
    }

    /// Writes all zeros.
    pub fn run(self) -> Result<()> {
        for Group { gpu, table, held } in self.0 {
            if table.blocks() > 0 {
                let rows = gpu.upload(table.bytes())?;
                // SAFETY: all tensors in the table live on this handle, held by the group, and have as many floats as
                // their rows say.
                unsafe { gpu.launch(&kernels::zeros(&table, rows.at(0))) }?;
            }
            drop(held);
        }
        Ok(())
    }
}
