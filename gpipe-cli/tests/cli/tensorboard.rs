//! The event file that TensorBoard reads, decoded here without a line of what wrote it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{parse, small};

/// What one record says: its step, and values by their tags.
type Scalars = (u64, BTreeMap<String, f32>);

#[test]
fn curves_are_the_numbers_of_the_events() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--steps",
        "3",
        "--eval-every",
        "3",
        "--stages",
        "2",
        "-q",
        "--out",
        "run",
    ];
    for more in [&[][..], &["--overwrite"]] {
        let output = small(folder.path(), "train", &[&arguments, more].concat());
        assert_eq!(output.status.code(), Some(0));
    }
    let run = folder.path().join("run");
    let [file] = &event_files(&run)[..] else {
        panic!("one file a run: {:?}", event_files(&run))
    };
    let bytes = fs::read(file).unwrap();
    let records = records(&bytes);
    let (first, rest) = records.split_first().unwrap();
    assert_eq!(
        fields(first)[1],
        (3, Value::Bytes(b"brain.Event:2")),
        "the version comes first"
    );
    let curves: Vec<Scalars> = rest.iter().map(|record| scalars(record)).collect();

    let events = parse(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    let expected: Vec<Scalars> = events
        .iter()
        .filter(|event| event["kind"] == "step" || event["kind"] == "eval")
        .map(|event| {
            let number = |key: &str| event[key].as_f64().unwrap() as f32;
            let mut values = BTreeMap::new();
            let mut put = |tag: &str, value| values.insert(tag.to_owned(), value);
            if event["kind"] == "step" {
                put("loss/train", number("loss"));
                put("optimizer/grad_norm", number("grad_norm"));
                put("optimizer/lr", number("lr"));
                put("speed/tokens_per_second", number("tokens_per_second"));
                put("speed/bubble", number("bubble"));
                for (stage, bytes) in event["peak_bytes"].as_array().unwrap().iter().enumerate() {
                    let tag = format!("memory/peak_bytes_of_stage_{stage}");
                    put(&tag, bytes.as_f64().unwrap() as f32);
                }
            } else {
                put("loss/eval", number("loss"));
                put("perplexity/eval", number("perplexity"));
                put("accuracy/eval", number("accuracy"));
            }
            (event["step"].as_u64().unwrap(), values)
        })
        .collect();
    assert_eq!(expected.len(), 4);
    assert_eq!(curves, expected);
}

fn event_files(run: &Path) -> Vec<PathBuf> {
    let files = run.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.to_string_lossy().contains("/events.out.tfevents."))
        .collect()
}

/// The data of each record; both checksums must fit.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (check, rest) = rest.split_at(4);
        assert_eq!(check, checksum(length));
        let (data, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (check, rest) = rest.split_at(4);
        assert_eq!(check, checksum(data));
        records.push(data);
        bytes = rest;
    }
    records
}

/// CRC-32C bit by bit, as the TFRecord format masks it.
fn checksum(data: &[u8]) -> [u8; 4] {
    let mut crc = !0_u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[derive(Debug, PartialEq)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message of protocol buffers.
fn fields(mut message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let take = |message: &mut &[u8], count: usize| {
            let (taken, rest) = message.split_at(count);
            *message = rest;
            taken
                .iter()
                .rev()
                .fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(take(&mut message, 8)),
            5 => Value::Number(take(&mut message, 4)),
            2 => {
                let length = varint(&mut message) as usize;
                let (taken, rest) = message.split_at(length);
                message = rest;
                Value::Bytes(taken)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn varint(message: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = message.split_first().unwrap();
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return number;
        }
    }
}

fn scalars(event: &[u8]) -> Scalars {
    let event = fields(event);
    let [
        (1, Value::Number(time)),
        (2, Value::Number(step)),
        (5, Value::Bytes(summary)),
    ] = event[..]
    else {
        panic!("{event:?}")
    };
    assert!(f64::from_bits(time) > 1.7e9, "seconds since 1970");
    let value = |(field, value): (u64, Value)| {
        assert_eq!(field, 1);
        let Value::Bytes(value) = value else {
            panic!("{value:?}")
        };
        let [(1, Value::Bytes(tag)), (2, Value::Number(bits))] = fields(value)[..] else {
            panic!("{value:?}")
        };
        (
            String::from_utf8(tag.to_vec()).unwrap(),
            f32::from_bits(bits as u32),
        )
    };
    (step, fields(summary).into_iter().map(value).collect())
}
