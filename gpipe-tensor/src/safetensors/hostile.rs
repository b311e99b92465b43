//! Files made to hurt: each is refused in one short line, before anything of the size that it
//! claims is allocated; and what is accepted is what the crate `safetensors` reads.

use safetensors::SafeTensors;

use super::tests::file;
use super::*;
use crate::testing::device;

/// An entry of a header.
fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

/// Headers over eight bytes of data, none of which fits them.
fn headers() -> Vec<String> {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!("{{{}}}", entry("a", dtype, shape, offsets))
    };
    let max = u64::MAX;
    let mut headers = vec![
        // Products and sums that overflow.
        one("F32", "[4294967296,4294967296]", "[0,8]"),
        one("F32", "[9223372036854775807]", "[0,8]"),
        one("F32", "[4611686018427387905]", "[0,4]"),
        one("F64", "[2305843009213693952,8]", "[0,8]"),
        one("U8", "[18446744073709551615,2]", "[0,8]"),
        one("U8", "[0,18446744073709551615,2]", "[8,0]"),
        one("F32", "[65536,65536,65536,65536]", "[0,0]"),
        one("U8", "[18446744073709551616]", "[0,8]"),
        one("F32", "[2]", &format!("[{},{max}]", max - 7)),
        one("F32", "[2]", &format!("[{max},7]")),
        one("F32", "[2]", &format!("[0,{max}]")),
        one("F32", "[2]", "[0,18446744073709551616]"),
        // Sizes that contradict each other or the data.
        one("F32", "[3]", "[0,8]"),
        one("F32", "[2]", "[8,0]"),
        one("F32", "[2]", "[4,12]"),
        one("F32", "[4]", "[0,16]"),
        one("F32", "[1]", "[0,4]"),
        one("F32", "[]", "[0,8]"),
        one("F32", "[0]", "[0,8]"),
        one("F16", "[2]", "[0,8]"),
        one("BOOL", "[9]", "[0,9]"),
        one("F4", "[15]", "[0,8]"),
        one("F4", "[17]", "[0,8]"),
        one("F32", "[1000000000000]", "[0,4000000000000]"),
        // Numbers that are none.
        one("F32", "[-2]", "[0,8]"),
        one("F32", "[2.0]", "[0,8]"),
        one("F32", "[2e0]", "[0,8]"),
        one("F32", "[\"2\"]", "[0,8]"),
        one("F32", "[null]", "[0,8]"),
        one("F32", "[true]", "[0,8]"),
        one("F32", "2", "[0,8]"),
        one("F32", "null", "[0,8]"),
        one("F32", "[2]", "[0]"),
        one("F32", "[2]", "[0,8,8]"),
        one("F32", "[2]", "[0,\"8\"]"),
        one("F32", "[2]", "[-8,0]"),
        one("F32", "[2]", "null"),
        one("F32", "[1e400]", "[0,8]"),
        one("F32", "[NaN]", "[0,8]"),
        // Types that there are not.
        one("F33", "[2]", "[0,8]"),
        one("f32", "[2]", "[0,8]"),
        one("", "[2]", "[0,8]"),
        one(&"F".repeat(100_000), "[2]", "[0,8]"),
        // Too many extents, too long a name.
        one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"),
        one("F32", &format!("[{}2]", "1,".repeat(64)), "[0,8]"),
        one("F32", &format!("[{}2]", "1,".repeat(100_000)), "[0,8]"),
        format!("{{{}}}", entry(&"n".repeat(1025), "F32", "[2]", "[0,8]")),
        // Keys that are missing or twice there.
        r#"{"a":{"dtype":"F32","data_offsets":[0,8]}}"#.into(),
        r#"{"a":{"shape":[2],"data_offsets":[0,8]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[2]}}"#.into(),
        r#"{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4],"data_offsets":[0,8]}}"#.into(),
        // Not what it should be at all.
        String::new(),
        " ".into(),
        "{".into(),
        "{}".into(),
        "[]".into(),
        "null".into(),
        "{}{}".into(),
        "{\"a\":[]}".into(),
        "{\"a\":null}".into(),
        "{\"a\":\"F32\"}".into(),
        "{\"a\":{}}".into(),
        "{\"\\ud800\":{}}".into(),
        "{\"__metadata__\":{\"k\":1}}".into(),
        "{\"__metadata__\":{\"k\":null}}".into(),
        "{\"__metadata__\":[]}".into(),
        "{\"__metadata__\":\"pt\"}".into(),
        format!(" {}", one("F32", "[2]", "[0,8]")),
        format!("{},", one("F32", "[2]", "[0,8]")),
        format!("{}\0", one("F32", "[2]", "[0,8]")),
        format!("\u{FEFF}{}", one("F32", "[2]", "[0,8]")),
        // Depth.
        format!("{{\"a\":{}", "[".repeat(100_000)),
        format!("{{\"a\":{}", "{\"a\":".repeat(100_000)),
        format!("{{\"__metadata__\":{{\"k\":{}", "[".repeat(100_000)),
        one("F32", &"[".repeat(100_000), "[0,8]"),
    ];
    // Two tensors: of one name, on the same bytes, with a gap, in the wrong order.
    for (names, [first, second]) in [
        (["a", "a"], ["[0,4]", "[4,8]"]),
        (["a", "\\u0061"], ["[0,4]", "[4,8]"]),
        (["a", "b"], ["[0,4]", "[0,4]"]),
        (["a", "b"], ["[0,4]", "[2,6]"]),
        (["a", "b"], ["[4,8]", "[4,8]"]),
        (["a", "b"], ["[1,5]", "[5,9]"]),
        (["a", "b"], ["[0,4]", "[8,12]"]),
    ] {
        let [left, right] = [(names[0], first), (names[1], second)]
            .map(|(name, offsets)| entry(name, "F32", "[1]", offsets));
        headers.push(format!("{{{left},{right}}}"));
    }
    let good = entry("a", "F32", "[2]", "[0,8]");
    headers.push(format!(
        r#"{{"__metadata__":{{}},"__metadata__":{{}},{good}}}"#
    ));
    headers.push(format!(r#"{{"__metadata__":{{"k":"1","k":"2"}},{good}}}"#));
    headers
}

/// Whole files that are none.
fn files() -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = headers()
        .iter()
        .map(|header| file(header, &[0; 8]))
        .collect();
    for length in [
        9,
        1 << 20,
        LONGEST,
        LONGEST + 1,
        100_000_001,
        1 << 40,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
    ] {
        files.push([&length.to_le_bytes()[..], b"{}"].concat());
    }
    files.push(vec![0; 8]);
    files.push(vec![0xFF; 1000]);
    files.push(file("{\"a\":\u{1}}", &[]));
    files.push([&[3, 0, 0, 0, 0, 0, 0, 0][..], b"{\xFF}"].concat());
    // Another format: a zip archive, a pickle.
    files.push(b"PK\x03\x04\x14\0\0\0\0\0archive".to_vec());
    files.push(b"\x80\x02}q\0.\x80\x02}q\0.\x80\x02}q\0.".to_vec());
    files
}

#[test]
fn every_file_is_refused_in_one_short_line() {
    let files = files();
    assert!(files.len() >= 90, "{}", files.len());
    for bytes in files {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
        let Err(error) = load(&bytes, &device()) else {
            panic!("accepted: {start}");
        };
        let line = error.to_string();
        assert!(
            line.len() < 1_500 && !line.contains('\n'),
            "{start}: {line}"
        );
        assert!(load_metadata(&bytes).is_err(), "{start}");
    }
}

#[test]
fn what_is_accepted_is_what_the_crate_reads() {
    let good = |shape: &str, dtype: &str, end: usize| {
        (
            format!("{{{}}}", entry("a", dtype, shape, &format!("[0,{end}]"))),
            end,
        )
    };
    for (header, bytes) in [
        good("[2]", "F32", 8),
        good("[]", "F32", 4),
        good("[0,7]", "F32", 0),
        good("[1,1,1,1,1,1,1,2]", "BF16", 4),
        ("{}".to_owned(), 0),
        ("{}   ".to_owned(), 0),
    ] {
        let bytes = file(&header, &vec![0; bytes]);
        let ours = load(&bytes, &device()).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(ours.len(), theirs.len(), "{header}");
        for (name, tensor) in ours {
            assert_eq!(
                tensor.shape().dims(),
                theirs.tensor(&name).unwrap().shape(),
                "{header}"
            );
        }
    }
}
