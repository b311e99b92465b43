//! Keys and values of earlier positions, and attention of new positions over them.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
#[cfg(test)]
mod tests;

use super::attention::Heads;
use super::rows::{dot, exponentials, max};
use super::scratch::Spare;
use crate::parallel::{for_each_on, threads_for};
use crate::simd::vectorised;
use crate::{Device, Error, Result, Tensor};

/// Positions that a cache has room for at first.
const FIRST_ROOM: usize = 64;

/// Where new positions lie: sample i of an operand continues row `first + i` of the caches, behind its
/// `past[i]` positions.
#[derive(Clone, Debug)]
pub struct CacheSpan {
    rows: usize,
    first: usize,
    past: Vec<usize>,
    /// `past` where kernels read it.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "kernels read it"))]
    on_device: Tensor,
}

impl CacheSpan {
    /// New positions behind `past` positions in the rows `first ..` of caches of `rows` rows.
    ///
    /// # Errors
    /// [`Error::Argument`] for rows beyond the last or more than 2³² positions; errors of allocation.
    pub fn new(device: &Device, rows: usize, first: usize, past: Vec<usize>) -> Result<Self> {
        let refused = |message| Error::Argument {
            op: "cache_span",
            message,
        };
        if first.checked_add(past.len()).is_none_or(|end| end > rows) {
            let count = past.len();
            return Err(refused(format!("{count} rows from {first} on, of {rows}")));
        }
        let on_device = past.iter().map(|&n| {
            u32::try_from(n).map_err(|_| refused(format!("{n} positions: 2^32 are too many")))
        });
        let on_device = on_device.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            rows,
            first,
            on_device: Tensor::from_u32(device, [past.len()], on_device)?,
            past,
        })
    }

    /// The positions that each sample has behind it.
    pub fn past(&self) -> &[usize] {
        &self.past
    }

    /// The most positions of a sample with `len` new ones; saturates.
    fn deepest(&self, len: usize) -> usize {
        self.past.iter().max().unwrap_or(&0).saturating_add(len)
    }

    /// The positions that every sample has behind it; `None` where they differ.
    pub fn common_past(&self) -> Option<usize> {
        let (&first, rest) = self.past.split_first()?;
        rest.iter().all(|&past| past == first).then_some(first)
    }
}

/// Keys and values of one layer, (rows, capacity, groups · size) each. Empty until the first
/// positions are stored; the capacity doubles when it is used up.
#[derive(Debug, Default)]
pub struct KeyValueCache(Option<[Tensor; 2]>);

impl KeyValueCache {
    /// Stores `width` elements of each position of the keys, from the given column on, and of the values.
    /// Both are (samples, len, columns), and may be the same tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the operands do not fit the span or the cache; errors of allocation.
    pub fn store(
        &mut self,
        span: &CacheSpan,
        keys: (&Tensor, usize),
        values: (&Tensor, usize),
        width: usize,
    ) -> Result<()> {
        let [_, len, _] = extents("cache_store", keys.0, span)?;
        for (x, column) in [keys, values] {
            let [_, positions, columns] = extents("cache_store", x, span)?;
            let end = column.saturating_add(width);
            if positions != len || end > columns {
                let expected = format!("{len} positions with {width} columns from {column} on");
                return Err(Error::shape("cache_store", expected, x.shape()));
            }
        }
        let longest = span.deepest(len);
        self.make_room(span.rows, longest, width, keys.0)?;
        let caches = self.0.iter_mut().flatten();
        for (cache, (x, column)) in caches.zip([keys, values]) {
            store(cache, x, column, span)?;
        }
        Ok(())
    }

    /// softmax(q·kᵀ/√size)·v of the new positions, whose keys and values are stored, over the positions
    /// up to each one's own: from queries (samples, len, columns), heads side by side from `column` on,
    /// to (samples, len, heads · size).
    ///
    /// # Errors
    /// [`Error::Shape`] if the queries do not fit the span, the heads or the cache; errors of allocation.
    pub fn attend(
        &self,
        span: &CacheSpan,
        (x, column): (&Tensor, usize),
        heads: impl Into<Heads>,
    ) -> Result<Tensor> {
        const OP: &str = "cached_attention";
        let [samples, len, columns] = extents(OP, x, span)?;
        let Heads {
            queries: count,
            groups,
            window,
        } = heads.into();
        let [keys, values] = self
            .0
            .as_ref()
            .ok_or_else(|| Error::shape(OP, "a cache with positions", "an empty one".to_owned()))?;
        let &[rows, capacity, width] = keys.shape().dims() else {
            return Err(Error::shape(OP, "a cache", keys.shape()));
        };
        let deepest = span.deepest(len);
        let divides = groups > 0 && count.is_multiple_of(groups) && width.is_multiple_of(groups);
        let size = width / groups.max(1);
        let end = count.saturating_mul(size).saturating_add(column);
        if !divides
            || size == 0
            || count == 0
            || end > columns
            || rows != span.rows
            || deepest > capacity
        {
            let expected = format!("heads of a cache of shape {}", keys.shape());
            return Err(Error::shape(OP, expected, x.shape()));
        }
        let shared_by = count / groups;
        let window = window.unwrap_or(usize::MAX).max(1);
        let mut out = x.empty_like([samples, len, count * size])?;
        if out.elements() == 0 {
            return Ok(out);
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = x.gpu() {
            let place = place(keys, x, column, span)?;
            let heads = kernels::HeadSizes {
                heads: count,
                shared_by,
                size,
                window,
            };
            let caches = [keys, values];
            cuda::attend(gpu, x, &span.on_device, caches, &mut out, place, heads)?;
            return Ok(out);
        }
        let (queries, keys, values) = (x.f32s()?, keys.f32s()?, values.f32s()?);
        let scale = 1.0 / (size as f32).sqrt();
        let items = samples * len * count;
        let scratch = Spare::new(x.device(), items, deepest)?;
        let work = items.saturating_mul(2 * size * deepest);
        for_each_on(
            threads_for(x.device(), work),
            x.device(),
            out.f32s_mut()?.chunks_mut(size).enumerate(),
            |(item, out)| {
                let (head, position) = (item % count, item / count);
                let sample = position / len;
                let reach = span.past[sample] + position % len + 1;
                let first = reach.saturating_sub(window);
                let query = position * columns + column + head * size;
                let query = &queries[query..query + size];
                let cached = ((span.first + sample) * capacity + first) * width;
                let cached = cached + head / shared_by * size;
                let rows = Rows { width, size };
                scratch.lend(|scores| {
                    let scores = &mut scores[..reach - first];
                    rows.attend(
                        query,
                        &keys[cached..],
                        &values[cached..],
                        scale,
                        scores,
                        out,
                    );
                });
            },
        );
        Ok(out)
    }

    /// Row i becomes what row `rows[i]` was: for beams, and for samples that have ended. An error leaves the cache as it
    /// was.
    ///
    /// # Errors
    /// [`Error::Index`] for a row beyond the last; errors of allocation.
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        if let Some([keys, values]) = &self.0 {
            let chosen = [chosen_rows(keys, rows)?, chosen_rows(values, rows)?];
            self.0 = Some(chosen);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn tensors(&self) -> Option<[&Tensor; 2]> {
        self.0.as_ref().map(|[keys, values]| [keys, values])
    }

    /// Bytes of the keys and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().flatten().map(Tensor::bytes).sum()
    }

    /// Makes the cache, or doubles its capacity until `longest` positions fit.
    fn make_room(
        &mut self,
        rows: usize,
        longest: usize,
        width: usize,
        like: &Tensor,
    ) -> Result<()> {
        let expected = |cache: &Tensor| {
            let expected = format!("{rows} rows of positions of {width} elements");
            Error::shape("cache_store", expected, cache.shape())
        };
        if let Some([keys, _]) = &self.0 {
            match keys.shape().dims() {
                &[count, capacity, elements] if count == rows && elements == width => {
                    if longest <= capacity {
                        return Ok(());
                    }
                }
                _ => return Err(expected(keys)),
            }
        }
        let capacity = longest.max(FIRST_ROOM).checked_next_power_of_two();
        let capacity = capacity.ok_or_else(|| Error::Size {
            op: "cache_store",
            shape: [rows, longest, width].into(),
        })?;
        // Zeros, since copies of whole rows, here and in `select`, take positions along in which nothing is stored.
        let zeros = || Tensor::zeros_of(like.device(), [rows, capacity, width], like.dtype());
        let mut new = [zeros()?, zeros()?];
        // Rows without elements, of which there may be any number, have nothing to copy.
        if let Some(old) = self.0.as_ref().filter(|_| width > 0) {
            let whole = CacheSpan::new(like.device(), rows, 0, vec![0; rows])?;
            for (new, old) in new.iter_mut().zip(old) {
                store(new, old, 0, &whole)?;
            }
        }
        self.0 = Some(new);
        Ok(())
    }
}

/// The samples, new positions and columns of an operand.
fn extents(op: &'static str, x: &Tensor, span: &CacheSpan) -> Result<[usize; 3]> {
    match x.shape().dims() {
        &[samples, len, columns] if samples == span.past.len() => Ok([samples, len, columns]),
        _ => {
            let expected = format!("({}, positions, columns)", span.past.len());
            Err(Error::shape(op, expected, x.shape()))
        }
    }
}

#[cfg(feature = "cuda")]
fn place(cache: &Tensor, x: &Tensor, column: usize, span: &CacheSpan) -> Result<kernels::Place> {
    let [samples, len, columns] = extents("cache_store", x, span)?;
    Ok(kernels::Place {
        samples,
        len,
        columns,
        column,
        capacity: cache.shape().dims().get(1).copied().unwrap_or(0),
        first: span.first,
    })
}

/// The keys or values whose row i is row `rows[i]` of these.
fn chosen_rows(cache: &Tensor, rows: &[usize]) -> Result<Tensor> {
    let &[count, capacity, width] = cache.shape().dims() else {
        return Err(Error::shape("cache_select", "a cache", cache.shape()));
    };
    // A row beyond 32 bits is none of the cache's either.
    let ids = rows.iter().map(|&row| u32::try_from(row));
    let ids: Vec<u32> = ids.map(|row| row.unwrap_or(u32::MAX)).collect();
    let ids = Tensor::from_u32(cache.device(), [rows.len()], ids)?;
    let table = cache.reshape([count, capacity * width])?;
    super::embedding(&ids, &table)?.reshape([rows.len(), capacity, width])
}

/// Stores as many columns of the operand, from `column` on, as a position of the cache has.
fn store(cache: &mut Tensor, x: &Tensor, column: usize, span: &CacheSpan) -> Result<()> {
    let [_, len, columns] = extents("cache_store", x, span)?;
    let (capacity, width) = match cache.shape().dims() {
        &[_, capacity, width] => (capacity, width),
        _ => return Err(Error::shape("cache_store", "a cache", cache.shape())),
    };
    if len == 0 || width == 0 {
        return Ok(());
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        let place = place(cache, x, column, span)?;
        return cuda::store(gpu, x, &span.on_device, cache, place, width);
    }
    let floats = x.f32s()?.chunks(len * columns);
    let cached = cache.f32s_mut()?;
    let cached = cached.chunks_mut(capacity * width).skip(span.first);
    for ((x, cached), past) in floats.zip(cached).zip(&span.past) {
        let positions = x.chunks(columns);
        for (x, cached) in positions.zip(cached[past * width..].chunks_mut(width)) {
            cached.copy_from_slice(&x[column..column + width]);
        }
    }
    Ok(())
}

/// Cached rows of one head: `size` elements every `width`.
#[derive(Clone, Copy)]
struct Rows {
    width: usize,
    size: usize,
}

impl Rows {
    /// The result of one query over as many positions as there are `scores`, which are scratch.
    fn attend(
        self,
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scale: f32,
        scores: &mut [f32],
        out: &mut [f32],
    ) {
        vectorised!({
            for (key, score) in keys.chunks(self.width).zip(scores.iter_mut()) {
                *score = dot(query, &key[..self.size]) * scale;
            }
            let sum = exponentials(scores, max(scores));
            out.fill(0.0);
            for (value, weight) in values.chunks(self.width).zip(scores.iter()) {
                for (out, value) in out.iter_mut().zip(&value[..self.size]) {
                    *out = weight.mul_add(*value, *out);
                }
            }
            let factor = (1.0 / sum) as f32;
            out.iter_mut().for_each(|out| *out *= factor);
        });
    }
}
