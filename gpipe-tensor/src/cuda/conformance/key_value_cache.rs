//! The kernels of the key-value cache.

use super::memory::{Memory, near, random, same};
use super::{Gpu, Outcome};
use crate::ops::key_value_cache::kernels::{self, HeadSizes, Place};
use crate::ops::{CacheSpan, Heads, KeyValueCache};
use crate::testing::device;
use crate::{DType, Tensor};

/// Room of a cache that nothing was stored in before.
const CAPACITY: usize = 64;

pub(super) fn key_value_cache(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (len, size, shared_by, window) in [
        (1, 1, 1, None),
        (1, 33, 2, Some(9)),
        (5, 64, 3, None),
        (2, 100, 1, Some(1)),
    ] {
        attend(gpu, stored, [len, size, shared_by], window)?;
    }
    Ok(())
}

/// `len` new positions of two samples behind 40 and 3 in the last two of three rows.
fn attend(
    gpu: &Gpu<'_>,
    stored: DType,
    [len, size, shared_by]: [usize; 3],
    window: Option<usize>,
) -> Outcome {
    let (samples, kv_heads, past) = (2, 2, [40, 3]);
    let (width, queries) = (kv_heads * size, kv_heads * shared_by * size);
    let columns = queries + 2 * width;
    let host = |values: &[f32], len| {
        let shape = [samples, len, columns];
        Tensor::from_f32(&device(), shape, values).expect("as many values as elements")
    };
    let span =
        |past: [usize; 2]| CacheSpan::new(&device(), 3, 1, past.to_vec()).expect("three rows");
    let mut cache = KeyValueCache::default();
    let [mut m_keys, mut m_values] =
        [0; 2].map(|_| Memory::floats(stored, &vec![0.0; 3 * CAPACITY * width]));
    let place = |len, column| Place {
        samples,
        len,
        columns,
        column,
        capacity: CAPACITY,
        first: 1,
    };
    for (past, len, seed) in [([0, 0], 40, 1), (past, len, 2)] {
        let x = random(stored, samples * len * columns, seed);
        let (tx, span) = (host(&x, len), span(past));
        cache
            .store(&span, (&tx, queries), (&tx, queries + width), width)
            .expect("operands fit");
        let m_x = Memory::floats(stored, &x);
        let m_past = Memory::indices(&past.map(|past| past as u32));
        for (memory, column) in [(&mut m_keys, queries), (&mut m_values, queries + width)] {
            let pointers = [m_x.at(), m_past.at(), memory.at()];
            let launch = kernels::store(stored, pointers, place(len, column), width);
            gpu.run([launch], [&m_x, &m_past, &*memory])?;
        }
        let heads = Heads {
            queries: kv_heads * shared_by,
            groups: kv_heads,
            window,
        };
        let wanted = cache.attend(&span, (&tx, 0), heads).expect("operands fit");
        let m_out = Memory::room(stored, samples * len * queries);
        let pointers = [&m_x, &m_past, &m_keys, &m_values, &m_out];
        let heads = HeadSizes {
            heads: kv_heads * shared_by,
            shared_by,
            size,
            window: window.unwrap_or(usize::MAX),
        };
        let launch = kernels::attend(stored, pointers.map(Memory::at), place(len, 0), heads);
        gpu.run(launch, pointers)?;
        near(
            "cached attention",
            stored,
            &m_out,
            wanted.f32s().expect("floats"),
            4e-6,
        )?;
        let kept = cache
            .tensors()
            .expect("stored")
            .map(|x| x.f32s().expect("floats").to_vec());
        for (memory, kept) in [&m_keys, &m_values].into_iter().zip(&kept) {
            // The first row belongs to no sample.
            let got = memory.values(stored).split_off(CAPACITY * width);
            let of = |start: usize, past: usize| start * width..(start + past + len) * width;
            for (start, past) in [(0, past[0]), (CAPACITY, past[1])] {
                let got = Memory::floats(stored, &got[of(start, past)]);
                let kept = &kept[CAPACITY * width..][of(start, past)];
                same("stored", stored, &got, kept)?;
            }
        }
    }
    Ok(())
}
