//! Attention over a cache against attention over everything at once, and the cache's rows.

use super::*;
use crate::ops::attention;
use crate::testing::{assert_close, assert_same_bits_for_any_threads, bits, device, f64s, random};

const HEADS: usize = 3;
const SIZE: usize = 5;

/// Positions `range` of (B, T, columns).
fn positions(x: &Tensor, range: std::ops::Range<usize>) -> Tensor {
    let &[batch, len, columns] = x.shape().dims() else {
        panic!("three extents");
    };
    let floats = x.f32s().unwrap().chunks(len * columns);
    let part = floats.flat_map(|x| &x[range.start * columns..range.end * columns]);
    let part: Vec<f32> = part.copied().collect();
    Tensor::from_f32(x.device(), [batch, range.len(), columns], part).unwrap()
}

/// The results of all positions, given to the cache in parts of these lengths.
fn in_parts(qkv: &Tensor, parts: &[usize]) -> Vec<f64> {
    let batch = qkv.shape().dims()[0];
    let width = HEADS * SIZE;
    let mut cache = KeyValueCache::default();
    let (mut results, mut past) = (vec![Vec::new(); batch], 0);
    for &len in parts {
        let part = positions(qkv, past..past + len);
        let span = CacheSpan::new(qkv.device(), batch, 0, vec![past; batch]).unwrap();
        cache
            .store(&span, (&part, width), (&part, 2 * width), width)
            .unwrap();
        let out = cache.attend(&span, (&part, 0), HEADS).unwrap();
        for (result, out) in results.iter_mut().zip(f64s(&out).chunks(len * width)) {
            result.extend_from_slice(out);
        }
        past += len;
    }
    results.concat()
}

#[test]
fn parts_of_any_length_equal_the_whole() {
    let qkv = random(&device(), [2, 150, 45], 1);
    let (whole, _) = attention(&qkv, 3, None).unwrap();
    // The capacity doubles twice on the way.
    for parts in [vec![150], vec![1; 150], vec![70, 1, 1, 60, 18]] {
        assert_close(&whole, &in_parts(&qkv, &parts), 1e-5);
    }
}

#[test]
fn rows_of_different_lengths_stay_apart() {
    let device = device();
    let qkv = random(&device, [2, 9, 45], 1);
    let mut cache = KeyValueCache::default();
    let rows: Vec<Tensor> = (0..2)
        .map(|row| qkv.reshape([18, 45]).unwrap().rows(9 * row..9 * row + 9))
        .map(|row| row.unwrap().reshape([1, 9, 45]).unwrap())
        .collect();
    for (row, len) in [(0, 8), (1, 3)] {
        let part = positions(&rows[row], 0..len);
        let span = CacheSpan::new(&device, 2, row, vec![0]).unwrap();
        cache.store(&span, (&part, 15), (&part, 30), 15).unwrap();
    }
    let ends = [positions(&rows[0], 8..9), positions(&rows[1], 3..4)];
    let both: Vec<f32> = ends
        .iter()
        .flat_map(|x| x.f32s().unwrap())
        .copied()
        .collect();
    let both = Tensor::from_f32(&device, [2, 1, 45], both).unwrap();
    let span = CacheSpan::new(&device, 2, 0, vec![8, 3]).unwrap();
    cache.store(&span, (&both, 15), (&both, 30), 15).unwrap();
    let out = cache.attend(&span, (&both, 0), HEADS).unwrap();
    for (row, len) in [(0, 9), (1, 4)] {
        let (whole, _) = attention(&positions(&rows[row], 0..len), 3, None).unwrap();
        let last = &f64s(&whole)[(len - 1) * 15..];
        let out = out.reshape([2, 15]).unwrap().rows(row..row + 1).unwrap();
        assert_close(&out, last, 1e-5);
    }
    // The rows change places.
    cache.select(&[1, 0, 1]).unwrap();
    let span = CacheSpan::new(&device, 3, 1, vec![8]).unwrap();
    let swapped = cache.attend(&span, (&ends[0], 0), HEADS).unwrap();
    assert_eq!(bits(&swapped), bits(&out)[..15]);
    assert!(cache.select(&[3]).is_err());
}

#[test]
fn query_heads_share_heads_and_a_window_hides_the_past() {
    let device = device();
    let (len, size) = (7, 4);
    let q = random(&device, [1, len, 4 * size], 1);
    let kv = random(&device, [1, len, 4 * size], 2);
    let span = CacheSpan::new(&device, 1, 0, vec![0]).unwrap();
    let mut cache = KeyValueCache::default();
    let width = 2 * size;
    cache.store(&span, (&kv, 0), (&kv, width), width).unwrap();
    let heads = Heads {
        queries: 4,
        groups: 2,
        window: Some(3),
    };
    let out = cache.attend(&span, (&q, 0), heads).unwrap();
    let (q, kv) = (f64s(&q), f64s(&kv));
    let mut wanted = vec![0.0; len * 4 * size];
    for (i, head) in (0..len).flat_map(|i| (0..4).map(move |head| (i, head))) {
        let seen = (i + 1).saturating_sub(3)..i + 1;
        let at = |row: usize| row * 4 * size + head / 2 * size;
        let query = &q[i * 4 * size + head * size..][..size];
        let weights: Vec<f64> = seen
            .clone()
            .map(|j| {
                let products = query.iter().zip(&kv[at(j)..]).map(|(q, k)| q * k);
                (products.sum::<f64>() / 2.0).exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        for (j, weight) in seen.zip(&weights) {
            for c in 0..size {
                wanted[(i * 4 + head) * size + c] += weight / total * kv[at(j) + width + c];
            }
        }
    }
    assert_close(&out, &wanted, 1e-5);
}

#[test]
fn threads_do_not_change_the_bits() {
    assert_same_bits_for_any_threads(|device| {
        let x = random(device, [2, 300, 45], 1);
        let span = CacheSpan::new(device, 2, 0, vec![0; 2]).unwrap();
        let mut cache = KeyValueCache::default();
        cache.store(&span, (&x, 15), (&x, 30), 15).unwrap();
        cache.attend(&span, (&x, 0), HEADS).unwrap()
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = device();
    let x = random(&device, [2, 3, 45], 1);
    assert!(CacheSpan::new(&device, 2, 1, vec![0; 2]).is_err());
    let span = CacheSpan::new(&device, 2, 0, vec![0; 2]).unwrap();
    let mut cache = KeyValueCache::default();
    assert!(cache.attend(&span, (&x, 0), HEADS).is_err());
    assert!(cache.store(&span, (&x, 15), (&x, 31), 15).is_err());
    cache.store(&span, (&x, 15), (&x, 30), 15).unwrap();
    assert!(cache.store(&span, (&x, 15), (&x, 30), 14).is_err());
    let deeper = CacheSpan::new(&device, 2, 0, vec![70; 2]).unwrap();
    assert!(cache.attend(&deeper, (&x, 0), HEADS).is_err());
    assert!(cache.attend(&span, (&x, 0), 2).is_err());
}

#[test]
fn a_cache_that_cannot_grow_keeps_its_positions() {
    let device = device();
    let width = HEADS * SIZE;
    let qkv = random(&device, [1, FIRST_ROOM + 1, 3 * width], 1);
    let store = |cache: &mut KeyValueCache, range: std::ops::Range<usize>| {
        let span = CacheSpan::new(&device, 1, 0, vec![range.start])?;
        let part = positions(&qkv, range);
        cache.store(&span, (&part, width), (&part, 2 * width), width)?;
        cache.attend(&span, (&part, 0), HEADS)
    };
    let [mut cache, mut other] = [(); 2].map(|()| KeyValueCache::default());
    for cache in [&mut cache, &mut other] {
        store(cache, 0..FIRST_ROOM).unwrap();
    }
    let wanted = store(&mut other, FIRST_ROOM..FIRST_ROOM + 1).unwrap();
    device.set_limit(device.live_bytes() + 4 * 3 * width as u64 + 1000);
    let full = store(&mut cache, FIRST_ROOM..FIRST_ROOM + 1).unwrap_err();
    assert!(matches!(full, Error::Limit { .. }), "{full}");
    device.set_limit(u64::MAX);
    let got = store(&mut cache, FIRST_ROOM..FIRST_ROOM + 1).unwrap();
    assert_eq!(bits(&got), bits(&wanted));
}

#[test]
fn wrong_rows_and_columns_are_refused() {
    let device = device();
    let x = random(&device, [1, 2, 12], 1);
    let span = CacheSpan::new(&device, 1, 0, vec![0]).unwrap();
    let mut cache = KeyValueCache::default();
    assert!(cache.store(&span, (&x, 0), (&x, usize::MAX), 4).is_err());
    let longer = random(&device, [1, 3, 12], 1);
    assert!(cache.store(&span, (&longer, 0), (&x, 0), 4).is_err());
    cache.store(&span, (&x, 0), (&x, 4), 4).unwrap();
    assert!(cache.attend(&span, (&x, usize::MAX), 2).is_err());
    for queries in [0, usize::MAX - 1] {
        let heads = Heads {
            queries,
            groups: 2,
            window: None,
        };
        assert!(cache.attend(&span, (&x, 0), heads).is_err(), "{queries}");
    }
    assert!(cache.select(&[1 << 32]).is_err());
}

#[test]
fn positions_beyond_any_memory_are_refused() {
    let device = device();
    // Without samples, or without columns, no elements are as many positions.
    for (past, shape) in [(vec![], [0, usize::MAX, 12]), (vec![5], [1, usize::MAX, 0])] {
        let x = Tensor::zeros(&device, shape).unwrap();
        let span = CacheSpan::new(&device, past.len(), 0, past).unwrap();
        let mut cache = KeyValueCache::default();
        let stored = cache.store(&span, (&x, 0), (&x, 0), shape[2]);
        assert!(matches!(stored, Err(Error::Size { .. })), "{stored:?}");
        assert!(cache.attend(&span, (&x, 0), 1).is_err());
    }
    let error = CacheSpan::new(&device, 1, 0, vec![1 << 32]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cache_span: 4294967296 positions: 2^32 are too many"
    );
}

/// A search that goes on behind an error must not attend to the keys of one text and the values of another.
#[test]
fn a_change_of_rows_that_fails_changes_nothing() {
    let device = device();
    let qkv = random(&device, [2, 4, 45], 1);
    let span = CacheSpan::new(&device, 2, 0, vec![0; 2]).unwrap();
    let mut cache = KeyValueCache::default();
    cache.store(&span, (&qkv, 15), (&qkv, 30), 15).unwrap();
    let before = bits(&cache.attend(&span, (&qkv, 0), HEADS).unwrap());
    // Room for the keys in their new order, not for the values as well.
    let half = cache.bytes() as u64 / 2;
    device.set_limit(device.live_bytes() + half + half / 2);
    cache.select(&[1, 0]).unwrap_err();
    device.set_limit(u64::MAX);
    let after = cache.attend(&span, (&qkv, 0), HEADS).unwrap();
    assert_eq!(bits(&after), before);
}

/// Rows of no elements have no bytes, however many there are.
#[test]
fn many_rows_of_no_columns_are_no_panic() {
    let device = device();
    let none = Tensor::zeros(&device, [0, 1, 3]).unwrap();
    let mut cache = KeyValueCache::default();
    for len in [1, FIRST_ROOM + 1] {
        let new = Tensor::zeros(&device, [0, len, 3]).unwrap();
        let span = CacheSpan::new(&device, usize::MAX, 0, Vec::new()).unwrap();
        cache.store(&span, (&new, 0), (&new, 0), 0).unwrap();
        cache.attend(&span, (&none, 0), HEADS).unwrap_err();
    }
}
