//! Rotary position embedding (Su et al., arXiv:2104.09864), together with the packing of queries, keys and
//! values into the one tensor that attention reads.

pub(crate) mod angles;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod plan;
mod scaling;

use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};
use plan::Plan;

pub use plan::Rope;
pub use scaling::RopeScaling;

/// Queries (B, T, heads·H), keys and values (B, T, groups·H) side by side in one tensor
/// (B, T, (heads + 2·groups)·H), the queries and keys turned by their positions.
///
/// In each head, element i of the first half and element i of the second half are a pair (a, b), which
/// becomes (a·cos − b·sin, b·cos + a·sin).
///
/// # Errors
/// [`Error::Shape`] unless the extents are those above; [`Error::Argument`] for a theta that is not above
/// 0, a scaling that [`RopeScaling::check`] refuses, or angles of 2⁴⁸ turns and more; errors of allocation.
pub fn rope(q: &Tensor, k: &Tensor, v: &Tensor, rope: &Rope) -> Result<Tensor> {
    const OP: &str = "rope";
    let widths = [q.shape().last(), k.shape().last()];
    let plan = Plan::new(OP, rope, q.shape().dims(), widths)?;
    let narrow = [plan.batch, plan.len, widths[1]].into();
    for tensor in [k, v] {
        if *tensor.shape() != narrow {
            let expected = format!("keys and values of shape {narrow}");
            return Err(Error::shape(OP, expected, tensor.shape()));
        }
    }
    let packed = plan.packed();
    let mut qkv = q.empty_like([plan.batch, plan.len, packed])?;
    if qkv.elements() == 0 {
        return Ok(qkv);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = q.gpu() {
        cuda::forward(gpu, &plan, [q, k, v], &mut qkv)?;
        return Ok(qkv);
    }
    let table = plan.table(q)?;
    let rows = rows_per_chunk(packed);
    let [wide, narrow] = widths.map(|width| rows * width);
    let operands = q
        .f32s()?
        .chunks(wide)
        .zip(k.f32s()?.chunks(narrow).zip(v.f32s()?.chunks(narrow)));
    let items = operands.zip(qkv.f32s_mut()?.chunks_mut(rows * packed));
    for_each(
        q.device(),
        items.enumerate(),
        |(chunk, ((q, (k, v)), qkv))| {
            cpu::pack(plan.size, widths, &table, chunk * rows, [q, k, v], qkv);
        },
    );
    Ok(qkv)
}

/// The gradients with respect to q, k and v from that of [`rope`]'s result, where keys and values have
/// `groups` heads: those of queries and keys turned back.
///
/// # Errors
/// [`Error::Shape`] unless `dqkv` is (B, T, (heads + 2·groups)·H); errors of allocation.
pub fn rope_grad(dqkv: &Tensor, groups: usize, rope: &Rope) -> Result<[Tensor; 3]> {
    const OP: &str = "rope_grad";
    let narrow = groups.saturating_mul(rope.size);
    let columns = dqkv.shape().last();
    let wide = columns.saturating_sub(narrow.saturating_mul(2));
    let plan = Plan::new(OP, rope, dqkv.shape().dims(), [wide, narrow])?;
    let part = |width| dqkv.empty_like([plan.batch, plan.len, width]);
    let (mut dq, mut dk, mut dv) = (part(wide)?, part(narrow)?, part(narrow)?);
    if dqkv.elements() == 0 {
        return Ok([dq, dk, dv]);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dqkv.gpu() {
        cuda::backward(gpu, &plan, dqkv, [&mut dq, &mut dk, &mut dv])?;
        return Ok([dq, dk, dv]);
    }
    let table = plan.table(dqkv)?;
    let rows = rows_per_chunk(columns);
    let parts = dq.f32s_mut()?.chunks_mut(rows * wide).zip(
        dk.f32s_mut()?
            .chunks_mut(rows * narrow)
            .zip(dv.f32s_mut()?.chunks_mut(rows * narrow)),
    );
    let items = dqkv.f32s()?.chunks(rows * columns).zip(parts);
    for_each(
        dqkv.device(),
        items.enumerate(),
        |(chunk, (dqkv, (dq, (dk, dv))))| {
            let parts = [dq, dk, dv];
            cpu::unpack(plan.size, [wide, narrow], &table, chunk * rows, dqkv, parts);
        },
    );
    Ok([dq, dk, dv])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, f64s, random,
    };

    /// Sizes (B, T, heads, groups, H).
    const SIZES: [[usize; 5]; 4] = [
        [1, 1, 1, 1, 2],
        [2, 3, 2, 1, 4],
        [1, 70, 6, 3, 64],
        [2, 300, 4, 4, 10],
    ];

    fn operands(device: &Device, [batch, len, heads, groups, size]: [usize; 5]) -> [Tensor; 3] {
        let part = |heads, seed| random(device, [batch, len, heads * size], seed);
        [part(heads, 1), part(groups, 2), part(groups, 3)]
    }

    fn some_rope(size: usize) -> Rope {
        Rope {
            size,
            theta: 1e4,
            scaling: RopeScaling::Unscaled,
            first: 5,
        }
    }

    /// Every head of x (rows, heads·H) turned by its position, backwards for `sign` −1.
    fn plain(x: &[f64], len: usize, width: usize, rope: &Rope, sign: f64) -> Vec<f64> {
        let half = rope.size / 2;
        let mut y = x.to_vec();
        for (row, y) in y.chunks_mut(width).enumerate() {
            let position = (row % len) as f64 + rope.first as f64;
            for head in y.chunks_mut(rope.size) {
                for i in 0..half {
                    let angle = position * rope.theta.powf(-2.0 * i as f64 / rope.size as f64);
                    let (sin, cos) = (sign * angle).sin_cos();
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * cos - b * sin;
                    head[i + half] = b * cos + a * sin;
                }
            }
        }
        y
    }

    #[test]
    fn heads_are_turned_and_packed() {
        for sizes @ [_, len, heads, groups, size] in SIZES {
            let [q, k, v] = operands(&device(), sizes);
            let at = some_rope(size);
            let qkv = rope(&q, &k, &v, &at).unwrap();
            let [wide, narrow] = [heads * size, groups * size];
            let q = plain(&f64s(&q), len, wide, &at, 1.0);
            let k = plain(&f64s(&k), len, narrow, &at, 1.0);
            let v = f64s(&v);
            let rows = q.chunks(wide).zip(k.chunks(narrow)).zip(v.chunks(narrow));
            let wanted: Vec<f64> = rows.flat_map(|((q, k), v)| [q, k, v].concat()).collect();
            assert_close(&qkv, &wanted, 3e-7);
        }
    }

    #[test]
    fn the_gradient_turns_back() {
        for [batch, len, heads, groups, size] in SIZES {
            let (device, at) = (device(), some_rope(size));
            let [wide, narrow] = [heads * size, groups * size];
            let dqkv = random(&device, [batch, len, wide + 2 * narrow], 4);
            let [dq, dk, dv] = rope_grad(&dqkv, groups, &at).unwrap();
            let rows = f64s(&dqkv);
            let part = |from: usize, to: usize| {
                let rows = rows.chunks(wide + 2 * narrow);
                rows.flat_map(|row| row[from..to].to_vec())
                    .collect::<Vec<_>>()
            };
            let wanted = plain(&part(0, wide), len, wide, &at, -1.0);
            assert_close(&dq, &wanted, 3e-7);
            let wanted = plain(&part(wide, wide + narrow), len, narrow, &at, -1.0);
            assert_close(&dk, &wanted, 3e-7);
            assert_close(&dv, &part(wide + narrow, wide + 2 * narrow), 0.0);
        }
    }

    #[test]
    fn a_row_depends_on_its_position_alone() {
        let device = device();
        let [q, k, v] = operands(&device, [1, 9, 2, 1, 6]);
        let whole = rope(&q, &k, &v, &some_rope(6)).unwrap();
        let tail = |x: &Tensor| {
            let width = x.shape().last();
            let floats = &x.f32s().unwrap()[4 * width..];
            Tensor::from_f32(&device, [1, 5, width], floats).unwrap()
        };
        let later = Rope {
            first: 9,
            ..some_rope(6)
        };
        let part = rope(&tail(&q), &tail(&k), &tail(&v), &later).unwrap();
        assert_eq!(bits(&part), bits(&tail(&whole)));
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let [q, k, v] = operands(device, [3, 200, 4, 2, 16]);
            let qkv = rope(&q, &k, &v, &some_rope(16)).unwrap();
            let [dq, _, _] = rope_grad(&qkv, 2, &some_rope(16)).unwrap();
            dq
        });
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let device = device();
        let [q, k, v] = operands(&device, [2, 3, 2, 1, 4]);
        assert!(rope(&q, &k, &q, &some_rope(4)).is_err());
        assert!(rope(&q, &k, &v, &some_rope(3)).is_err());
        assert!(rope(&q, &k, &v, &some_rope(0)).is_err());
        let flat = Rope {
            theta: 0.0,
            ..some_rope(4)
        };
        let message = rope(&q, &k, &v, &flat).unwrap_err().to_string();
        assert_eq!(message, "rope: a theta of 0: use a number above 0");
        assert!(rope_grad(&q, 1, &some_rope(4)).is_err());
        let faster = Rope {
            scaling: RopeScaling::Linear { factor: 0.5 },
            ..some_rope(4)
        };
        let message = rope(&q, &k, &v, &faster).unwrap_err().to_string();
        assert!(message.starts_with("rope: turns slower by a factor of 0.5"));
        for (theta, first) in [(1e4, u64::MAX - 100), (1e-30, 1 << 40), (1e-3, 1 << 52)] {
            let far = Rope {
                theta,
                first,
                ..some_rope(4)
            };
            let outcome = rope(&q, &k, &v, &far);
            assert!(matches!(outcome, Err(Error::Argument { .. })), "{far:?}");
        }
        let wide = Tensor::zeros(&device, [0, 3, usize::MAX - 1]).unwrap();
        let outcome = rope(&wide, &wide, &wide, &some_rope(2));
        assert!(matches!(outcome, Err(Error::Size { .. })));
        let empty = operands(&device, [0, 3, 2, 1, 4]);
        let qkv = rope(&empty[0], &empty[1], &empty[2], &some_rope(4)).unwrap();
        assert_eq!(qkv.shape().dims(), [0, 3, 16]);
    }
}
