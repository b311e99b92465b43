//! Round trips, and files that claim what they do not hold.

use proptest::prelude::*;

use super::elements::from_f16;
use super::*;
use crate::testing::{bits, device, random};

/// A file with this header and number of bytes of data.
pub fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn refusal(bytes: &[u8]) -> String {
    match load(bytes, &device()) {
        Err(Error::Format(message)) => message,
        other => panic!("no format error: {other:?}"),
    }
}

fn sample() -> Vec<u8> {
    let device = device();
    let ids = Tensor::from_u32(&device, [2], vec![7, u32::MAX]).unwrap();
    let tensors = [
        ("w".to_owned(), random(&device, [2, 3], 1)),
        ("b".to_owned(), random(&device, [3], 2)),
        ("ids".to_owned(), ids),
        ("none".to_owned(), random(&device, [0, 4], 3)),
    ];
    save(&tensors, &[("step".to_owned(), "12".to_owned())]).unwrap()
}

#[test]
fn what_could_not_be_loaded_is_not_saved() {
    let device = device();
    let named = |name: String, tensor: Tensor| save(&[(name, tensor)], &[]);
    assert!(named("w".repeat(1024), random(&device, [1], 1)).is_ok());
    assert!(named("w".repeat(1025), random(&device, [1], 1)).is_err());
    assert!(named("w".into(), random(&device, [1; 8], 1)).is_ok());
    assert!(named("w".into(), random(&device, [1; 9], 1)).is_err());
}

#[test]
fn what_is_saved_is_loaded_bit_for_bit() {
    let device = device();
    let weights = random(&device, [4, 3], 1);
    let named = |tensor: &Tensor| vec![("w".to_owned(), tensor.clone())];
    // A view saves its own rows only.
    for tensor in [weights.clone(), weights.rows(1..3).unwrap()] {
        let loaded = load(&save(&named(&tensor), &[]).unwrap(), &device).unwrap();
        assert_eq!(loaded[0].0, "w");
        assert_eq!(loaded[0].1.shape(), tensor.shape());
        assert_eq!(bits(&loaded[0].1), bits(&tensor));
    }
    let bytes = sample();
    assert_eq!(bytes, sample());
    let loaded = load(&bytes, &device).unwrap();
    let mut names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "ids", "none", "w"]);
    let (_, ids) = loaded.iter().find(|(name, _)| name == "ids").unwrap();
    assert_eq!(ids.u32s().unwrap(), [7, u32::MAX]);
    let pairs = load_metadata(&bytes).unwrap();
    assert_eq!(pairs, [("step".to_owned(), "12".to_owned())]);
    assert!(load_metadata(&save(&[], &[]).unwrap()).unwrap().is_empty());
}

#[test]
fn names_must_be_distinct_and_not_reserved() {
    let device = device();
    let tensor = |name: &str| (name.to_owned(), random(&device, [1], 1));
    let pair = ("k".to_owned(), String::new());
    let message = |tensors: &[_], pairs: &[_]| save(tensors, pairs).unwrap_err().to_string();
    assert_eq!(
        message(&[tensor("a"), tensor("a")], &[]),
        "safetensors: two tensors are named `a`"
    );
    assert_eq!(
        message(&[tensor("__metadata__")], &[]),
        "safetensors: no tensor can be named `__metadata__`"
    );
    assert_eq!(
        message(&[], &[pair.clone(), pair]),
        "safetensors: the key `k` occurs twice"
    );
}

#[test]
fn half_precision_becomes_single() {
    let header = r#"{"f":{"dtype":"F16","shape":[8],"data_offsets":[0,16]},
                     "b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}}"#;
    let halves: [u16; 10] = [
        0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000, 0x7C00, 0x3555, // f16
        0x3F80, 0xC0A0, // bf16
    ];
    let data: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let loaded = load(&file(header, &data), &device()).unwrap();
    let small = 2f32.powi(-24);
    let wanted = [
        1.0,
        -2.0,
        65504.0,
        small * 1024.0,
        small,
        -0.0,
        f32::INFINITY,
        0.333_251_95,
    ];
    assert_eq!(bits(&loaded[0].1), wanted.map(f32::to_bits),);
    assert_eq!(loaded[1].1.f32s().unwrap(), [1.0, -5.0]);
    assert!(from_f16(0x7E00).is_nan() && from_f16(0xFC01).is_nan());
}

#[test]
fn half_precision_is_written_as_single() {
    let device = device();
    let bits: Vec<u16> = vec![0x3F80, 0xC0A0, 0x8000, 0x7F80, 0x0001, 0x4049];
    let half = Tensor::from_bf16(&device, [2, 3], bits).unwrap();
    let last = half.rows(1..2).unwrap();
    let floats = [half.to_f32s().unwrap(), last.to_f32s().unwrap()];
    let named = [("a".to_owned(), half), ("b".to_owned(), last)];
    let loaded = load(&save(&named, &[]).unwrap(), &device).unwrap();
    for ((_, loaded), wanted) in loaded.iter().zip(&floats) {
        assert_eq!(loaded.f32s().unwrap(), wanted);
    }
    assert_eq!(loaded[1].1.shape().dims(), [1, 3]);
}

#[test]
fn hostile_headers_are_refused() {
    let whole = sample();
    for length in 0..whole.len() {
        refusal(&whole[..length]);
    }
    let mut longer = whole;
    longer.push(0);
    refusal(&longer);
    for header in [
        // The product of the extents, then the number of bytes, overflows.
        r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]}}"#,
        // The extents, the offsets and the data contradict each other.
        r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
        // Two tensors of one name; two on the same bytes.
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
        // No such type, no shape at all, no object, no JSON.
        r#"{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","data_offsets":[0,8]}}"#,
        "[]",
        "{",
    ] {
        refusal(&file(header, &[0; 8]));
    }
    let header = r#"{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#;
    assert_eq!(
        refusal(&file(header, &[0; 8])),
        "`a` holds I64 elements: only F32, F16, BF16 and U32 can be read"
    );
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = sample();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // Either outcome will do, but it is the same for header and tensors.
        if load(&bytes, &device()).is_ok() {
            prop_assert!(load_metadata(&bytes).is_ok());
        }
    }
}

#[test]
fn sizes_that_overflow_are_not_written() {
    let stored = |shape: [usize; 2]| Stored::later(DType::F32, shape.into(), || panic!("unread"));
    let tensors = [
        ("a".to_owned(), stored([1, 1])),
        ("b".to_owned(), stored([usize::MAX, 2])),
    ];
    assert!(contents(&tensors, &[]).is_err());
}
