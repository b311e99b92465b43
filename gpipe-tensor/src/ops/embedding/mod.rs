//! Rows of a table, by index.

mod cpu;

use crate::parallel::{each, rows_per_chunk};
use crate::{Error, Result, Shape, Tensor};

/// Into how many runs of rows the table is cut for its gradient.
const RUNS: usize = 16;

/// The row of `table` (V, d) that each of the indices `ids` names: (…) gives (…, d).
///
/// # Errors
/// [`Error::Index`] for an index that is not below V; [`Error::Shape`] unless the table is a matrix;
/// [`Error::DType`] unless `ids` are indices and the table floats; errors of allocation.
pub fn embedding(ids: &Tensor, table: &Tensor) -> Result<Tensor> {
    let width = check("embedding", ids, table)?;
    let shape = shape_of_rows(ids, table);
    let mut out = Tensor::empty(table.device(), shape)?;
    let (indices, floats) = (ids.u32s()?, table.f32s()?);
    if width == 0 {
        return Ok(out);
    }
    let rows = rows_per_chunk(width);
    let chunks = out.f32s_mut()?.chunks_mut(rows * width);
    each(
        table.device(),
        chunks.zip(indices.chunks(rows)),
        |(out, ids)| {
            cpu::gather(ids, floats, width, out);
        },
    );
    Ok(out)
}

/// Adds dL/dy to the gradient of the table: every row of `dy` (…, d) to the row that its index in
/// `ids` (…) names, in ascending order of the rows of `dy`.
///
/// # Errors
/// [`Error::Index`] for an index that is not below V; [`Error::Shape`] if the shapes do not fit;
/// [`Error::Shared`] if something else holds `table_grad`.
pub fn embedding_grad(ids: &Tensor, dy: &Tensor, table_grad: &mut Tensor) -> Result<()> {
    const OP: &str = "embedding_grad";
    let width = check(OP, ids, table_grad)?;
    let expected = shape_of_rows(ids, table_grad);
    if *dy.shape() != expected {
        return Err(Error::shape(
            OP,
            format!("a gradient of shape {expected}"),
            dy.shape(),
        ));
    }
    let (indices, dy, device) = (ids.u32s()?, dy.f32s()?, table_grad.device().clone());
    let rows = table_grad.shape().rows().div_ceil(RUNS);
    // Each run of the table's rows has one writer, which reads all indices: no two threads meet.
    let runs = table_grad.f32s_mut()?.chunks_mut((rows * width).max(1));
    each(&device, runs.enumerate(), |(index, table)| {
        cpu::scatter_add(indices, dy, width, index * rows, table);
    });
    Ok(())
}

fn shape_of_rows(ids: &Tensor, table: &Tensor) -> Shape {
    Shape::from(
        [ids.shape().dims(), &[table.shape().last()]]
            .concat()
            .as_slice(),
    )
}

/// The width of the table, if it is one and has every row that is asked for.
fn check(op: &'static str, ids: &Tensor, table: &Tensor) -> Result<usize> {
    let &[len, width] = table.shape().dims() else {
        return Err(Error::shape(op, "a table (V, d)", table.shape()));
    };
    match ids.u32s()?.iter().find(|&&id| id as usize >= len) {
        Some(&id) => Err(Error::Index {
            op,
            index: u64::from(id),
            len: len as u64,
        }),
        None => Ok(width),
    }
}
