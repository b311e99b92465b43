//! Rows of a table, by index.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod segments;

use crate::parallel::{for_each, for_each_on, rows_per_chunk, threads_over};
use crate::{Error, Result, Shape, Tensor};

/// Number of runs of rows into which the table is divided for its gradient.
const RUNS: usize = 16;

/// The row of `table` (V, d) that each of the indices `ids` names: (…) gives (…, d), on the handle of
/// the table.
///
/// # Errors
/// [`Error::Index`] for an index that is not below V; [`Error::Shape`] unless the table is a matrix;
/// [`Error::DType`] unless `ids` are indices and the table floats; errors of allocation.
pub fn embedding(ids: &Tensor, table: &Tensor) -> Result<Tensor> {
    let width = check("embedding", ids, table)?;
    let shape = shape_of_rows(ids, table);
    let mut out = table.empty_like(shape)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = table.gpu() {
        cuda::forward(gpu, ids, table, &mut out)?;
        return Ok(out);
    }
    let (indices, floats) = (ids.u32s()?, table.f32s()?);
    if width == 0 {
        return Ok(out);
    }
    let rows = rows_per_chunk(width);
    let chunks = out.f32s_mut()?.chunks_mut(rows * width);
    for_each(
        table.device(),
        chunks.zip(indices.chunks(rows)),
        |(out, ids)| {
            cpu::gather(ids, floats, width, out);
        },
    );
    Ok(out)
}

/// Adds dL/dy to the gradient of the table: every row of `dy` (…, d) to the row that its index in
/// `ids` (…) names, in ascending order of the rows of `dy`. A GPU does the same for an index of at most 32 rows; those of
/// another one it sums up by 32, and these sums in an order that their number determines.
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
    #[cfg(feature = "cuda")]
    if let Some(gpu) = table_grad.gpu().cloned() {
        return cuda::backward(&gpu, ids, dy, table_grad);
    }
    let (indices, dy, device) = (ids.u32s()?, dy.f32s()?, table_grad.device().clone());
    let rows = table_grad.shape().rows().div_ceil(RUNS);
    // Each run of the table's rows has one writer, which reads all indices: no two threads meet.
    let runs = table_grad.f32s_mut()?.chunks_mut((rows * width).max(1));
    let threads = threads_over(&device, dy.len());
    for_each_on(threads, &device, runs.enumerate(), |(index, table)| {
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

/// The width of the table; an error unless it is a matrix that contains all indices.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, f64s, random,
    };

    /// Indices below `len`, in no order, with repetitions.
    fn indices(device: &crate::Device, shape: &[usize], len: usize) -> Tensor {
        let ids = (0..shape.iter().product()).map(|i: usize| (i * 7919 % 1009 % len) as u32);
        Tensor::from_u32(device, shape, ids.collect()).unwrap()
    }

    #[test]
    fn rows_are_copied_by_index() {
        let device = device();
        let table = random(&device, [3, 2], 1);
        let ids = Tensor::from_u32(&device, [2, 2], vec![2, 0, 2, 1]).unwrap();
        let y = embedding(&ids, &table).unwrap();
        assert_eq!(y.shape().dims(), [2, 2, 2]);
        let t = table.f32s().unwrap();
        let wanted = [t[4], t[5], t[0], t[1], t[4], t[5], t[2], t[3]];
        assert_eq!(y.f32s().unwrap(), wanted);
    }

    #[test]
    fn gradients_of_repeated_indices_are_added_to_what_is_there() {
        let device = device();
        for (len, width) in [(1, 1), (3, 15), (16, 16), (17, 17), (33, 33), (500, 5)] {
            let ids = indices(&device, &[5, 20], len);
            let dy = random(&device, [5, 20, width], 2);
            let mut sums = random(&device, [len, width], 3);
            let mut wanted = f64s(&sums);
            for (&id, dy) in ids.u32s().unwrap().iter().zip(f64s(&dy).chunks(width)) {
                let row = &mut wanted[id as usize * width..][..width];
                row.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
            embedding_grad(&ids, &dy, &mut sums).unwrap();
            assert_close(&sums, &wanted, 1e-5);
        }
    }

    #[test]
    fn no_elements_are_fine() {
        let device = device();
        for (ids, len, width) in [(0, 0, 4), (0, 3, 4), (2, 3, 0)] {
            let ids = indices(&device, &[ids], len.max(1));
            let mut table = random(&device, [len, width], 1);
            let before = bits(&table);
            let y = embedding(&ids, &table).unwrap();
            assert_eq!(y.elements(), 0);
            embedding_grad(&ids, &y, &mut table).unwrap();
            assert_eq!(bits(&table), before);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let ids = indices(device, &[8, 250], 300);
            let mut table = random(device, [300, 100], 1);
            let y = embedding(&ids, &table).unwrap();
            embedding_grad(&ids, &y, &mut table).unwrap();
            table
        });
    }

    #[test]
    fn an_index_without_a_row_is_named() {
        let device = device();
        let mut table = random(&device, [3, 2], 1);
        let ids = Tensor::from_u32(&device, [2], vec![1, 3]).unwrap();
        let message = embedding(&ids, &table).unwrap_err().to_string();
        assert_eq!(message, "embedding: index 3 is outside of 0..3");
        let dy = random(&device, [2, 2], 2);
        let outcome = embedding_grad(&ids, &dy, &mut table);
        assert!(matches!(
            outcome,
            Err(Error::Index {
                index: 3,
                len: 3,
                ..
            })
        ));
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let device = device();
        let mut table = random(&device, [3, 2], 1);
        let ids = indices(&device, &[2], 3);
        assert!(matches!(
            embedding(&table, &table),
            Err(Error::DType { .. })
        ));
        assert!(embedding(&ids, &random(&device, [3], 1)).is_err());
        assert!(embedding_grad(&ids, &random(&device, [2, 3], 1), &mut table).is_err());
    }
}
