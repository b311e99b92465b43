//! Weights: headers that contradict the file.

use super::{Hostile, hostile};

pub fn all() -> Vec<Hostile> {
    let file = |length: u64, header: &str, data: usize| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    };
    let tensor = |what: &str, header: &str, data| {
        hostile(
            "safetensors",
            what,
            file(header.len() as u64, header, data),
            "safetensors",
        )
    };
    let one = |shape: &str, start: u64, end: u64| {
        format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}}}"#)
    };
    let mut list = vec![
        hostile("safetensors", "nothing", [], "safetensors"),
        hostile("safetensors", "seven bytes", [0; 7], "safetensors"),
    ];
    for length in [1, 100_000_001, 1 << 32, 1 << 63, u64::MAX] {
        let what = format!("a header of {length} bytes that is not there");
        list.push(hostile(
            "safetensors",
            what,
            file(length, "{}", 0),
            "safetensors",
        ));
    }
    list.extend([
        tensor("more elements than bytes", &one("[4]", 0, 8), 8),
        tensor("fewer elements than bytes", &one("[1]", 0, 8), 8),
        tensor("bytes beyond the end", &one("[2]", 0, 8), 4),
        tensor("bytes that nobody claims", &one("[1]", 0, 4), 8),
        tensor("an end before the start", &one("[1]", 4, 0), 4),
        tensor(
            "an offset beyond counting",
            &one("[1]", u64::MAX - 3, u64::MAX),
            4,
        ),
        tensor(
            "a shape that overflows",
            &one("[4294967296,4294967296]", 0, 0),
            0,
        ),
        tensor(
            "a shape that overflows to 1",
            &one("[9223372036854775809,2]", 0, 8),
            8,
        ),
        tensor(
            "a huge extent beside an empty one",
            &one("[18446744073709551615,2,0]", 0, 0),
            0,
        ),
        tensor("a negative extent", &one("[-1]", 0, 4), 4),
        tensor("half an extent", &one("[0.5]", 0, 4), 4),
        tensor("an array as a header", "[]", 0),
        tensor("a header that is cut", r#"{"w":{"dtype":"F32""#, 0),
        tensor("nesting", &"[".repeat(100_000), 0),
        tensor(
            "an element type of tomorrow",
            &one("[1]", 0, 4).replace("F32", "F33"),
            4,
        ),
        tensor("integers", &one("[1]", 0, 4).replace("F32", "I32"), 4),
        tensor("no data offsets", r#"{"w":{"dtype":"F32","shape":[1]}}"#, 4),
        tensor("numbers in the metadata", r#"{"__metadata__":{"a":1}}"#, 0),
    ]);
    let twice = r#""dtype":"F32","shape":[1],"data_offsets""#;
    list.push(tensor(
        "two tensors over each other",
        &format!(r#"{{"a":{{{twice}:[0,4]}},"b":{{{twice}:[0,4]}}}}"#),
        4,
    ));
    list.push(tensor(
        "a hole",
        &format!(r#"{{"a":{{{twice}:[0,4]}},"b":{{{twice}:[8,12]}}}}"#),
        12,
    ));
    list
}
