//! GGUF files that are damaged, or claim what they have not.

use super::*;

fn fault_of(file: &Writer) -> String {
    Header::parse(file.0.as_slice(), file.0.len() as u64).unwrap_err()
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let whole = model().0;
    for length in 0..whole.len() {
        let fault = Header::parse(&whole[..length], length as u64).unwrap_err();
        assert!(!fault.contains('\n'), "{fault}");
    }
    assert!(Header::parse(whole.as_slice(), whole.len() as u64).is_ok());
}

#[test]
fn a_header_changed_anywhere_ends_in_a_line_or_a_header() {
    let whole = model().0;
    for place in 0..whole.len().min(1500) {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut changed = whole.clone();
            changed[place] = value;
            if let Ok(header) = Header::parse(changed.as_slice(), changed.len() as u64) {
                let _ = (header.describe(None), header.located(), header.tokenizer());
            }
        }
    }
}

#[test]
fn claims_of_more_than_there_is_are_refused() {
    assert!(fault_of(&begin(u64::MAX, 0)).contains("claims 18446744073709551615 tensors"));
    assert!(fault_of(&begin(0, 1 << 40)).contains("keys, but its header has"));
    let mut long = begin(0, 1);
    long.u64(1 << 50);
    let mut padded = long.clone();
    padded.0.resize(200, 0);
    assert!(fault_of(&padded).contains("claims 1125899906842624 bytes"));
    let mut list = begin(0, 1);
    list.text("k").u32(9).u32(8).u64(1 << 19);
    assert!(fault_of(&list).contains("elements of a list"));
    let mut list = begin(0, 1);
    list.text("k").u32(9).u32(0).u64(1 << 40);
    assert!(fault_of(&list).contains("are the most that is read"));
    for (shape, kind, offset) in [
        (&[1 << 40, 1 << 40][..], 0, 0),
        (&[33], 8, 0),
        (&[8], 0, 32),
        (&[8], 0, 1),
        (&[8], 0, u64::MAX - 31),
        (&[1; 5], 0, 0),
    ] {
        let mut file = begin(1, 0);
        file.tensor("t", shape, kind, offset);
        file.0.resize(file.0.len().next_multiple_of(32) + 32, 0);
        assert!(fault_of(&file).contains("`t`"), "{shape:?}");
    }
}

#[test]
fn tensors_that_share_bytes_or_leave_a_gap_are_refused() {
    for (first, second) in [(0, 0), (32, 0), (32, 64), (0, 64)] {
        let mut file = begin(2, 0);
        file.tensor("a", &[8], 0, first)
            .tensor("b", &[8], 0, second);
        file.0.resize(file.0.len().next_multiple_of(32) + 96, 0);
        let fault = fault_of(&file);
        assert!(fault.contains("begin at byte"), "{first} {second}: {fault}");
    }
}

#[test]
fn unknown_types_nested_lists_and_duplicates_are_refused() {
    let mut nested = begin(0, 1);
    nested.text("k").u32(9).u32(9).u64(1);
    assert!(fault_of(&nested).contains("list of lists"));
    let mut unknown = begin(0, 1);
    unknown.text("k").u32(77).u64(1);
    assert!(fault_of(&unknown).contains("unknown type 77"));
    let mut twice = begin(0, 2);
    twice.whole("k", 1).whole("k", 1);
    assert!(fault_of(&twice).contains("key `k` twice"));
    let mut twice = begin(2, 0);
    twice.tensor("t", &[8], 0, 0).tensor("t", &[8], 0, 0);
    twice.0.resize(1000, 0);
    assert!(fault_of(&twice).contains("tensor `t` twice"));
    let mut quantized = begin(1, 0);
    quantized.tensor("t", &[256], 10, 0);
    assert!(fault_of(&quantized).contains("holds Q2_K elements"));
    let mut old = Writer(b"GGUF".to_vec());
    old.u32(2).u64(0).u64(0);
    assert!(fault_of(&old).contains("version 2"));
    assert!(fault_of(&Writer(b"{\"model_type\": 1}".to_vec())).contains("no GGUF file"));
}
