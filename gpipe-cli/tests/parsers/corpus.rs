//! Inputs that have broken parsers elsewhere, made here by name: each is refused in one line that
//! says why, or understood, and none takes the program down.

use super::targets::{Target, all};

/// One hostile input: for which parser, what it is, its bytes, and a word of the answer; an empty
/// word if it may also be understood.
struct Hostile {
    parser: &'static str,
    what: String,
    bytes: Vec<u8>,
    word: &'static str,
}

fn hostile(
    parser: &'static str,
    what: impl Into<String>,
    bytes: impl Into<Vec<u8>>,
    word: &'static str,
) -> Hostile {
    Hostile {
        parser,
        what: what.into(),
        bytes: bytes.into(),
        word,
    }
}

/// Configuration files.
fn files() -> Vec<Hostile> {
    let file = |what: &str, text: &str, word| hostile("config", what, text, word);
    let deep =
        |open: &str, close: &str| format!("a = {}{}", open.repeat(100_000), close.repeat(100_000));
    let mut list = vec![
        file("arrays in arrays", &deep("[", "]"), "line 1"),
        file(
            "arrays that never end",
            &format!("a = {}", "[".repeat(100_000)),
            "line 1",
        ),
        file("tables in tables", &deep("{a=", "}"), "line 1"),
        file(
            "a key of 100000 parts",
            &format!("{}a = 1", "a.".repeat(100_000)),
            "",
        ),
        file(
            "a section of 100000 parts",
            &format!("[{}a]", "a.".repeat(100_000)),
            "",
        ),
        file("100000 sections", &"[[run]]\n".repeat(100_000), "section"),
        file("a key twice", "[run]\nsteps = 1\nsteps = 2\n", "line 3"),
        file("a section twice", "[run]\n[run]\n", "line 2"),
        file("a section as a value", "run = 3\n", "[run]"),
        file("a value as a section", "[run.steps]\n", "run.steps"),
        file(
            "a section of another program",
            "[package]\nname = \"x\"\n",
            "[package]",
        ),
        file("an empty key", "[run]\n\"\" = 1\n", "line 2"),
        file("an unfinished string", "[model]\nname = \"gpt\n", "line 2"),
        file("an unfinished section", "[run\n", "line 1"),
        file("a value without a key", "= 3\n", "line 1"),
        file("a key without a value", "[run]\nsteps\n", "line 2"),
        file("a half escape", "[model]\nname = \"\\ud800\"\n", "line 2"),
        file("a NUL", "[run]\nsteps = 1\0\n", "line 2"),
        file("a bell in a comment", "# \u{7}\n", "line 1"),
        file("a carriage return alone", "[run]\rsteps = 1", "line 1"),
        file("JSON", "{\"run\": {\"steps\": 3}}", "line 1"),
        file("YAML", "run:\n  steps: 3\n", "line 1"),
        file("HTML", "<!doctype html><html>", "line 1"),
        file("a shell script", "#!/bin/sh\nrm -rf /\n", "line 2"),
        file("a megabyte of spaces", &" ".repeat(1 << 20), ""),
        file(
            "a megabyte of a key",
            &format!("{} = 1", "k".repeat(1 << 20)),
            "unknown key",
        ),
        file(
            "a megabyte of a name",
            &format!("[model]\nname = \"{}\"", "n".repeat(1 << 20)),
            "did you mean",
        ),
        file(
            "a key that looks like another",
            "[run]\nѕteps = 1\n",
            "line 2",
        ),
        file(
            "text written right to left",
            "[run]\n\"\u{202e}spets\" = 1\n",
            "did you mean",
        ),
        file(
            "escapes of a terminal",
            "[run]\n\"\\u001b[2J\" = 1\n",
            "did you mean",
        ),
        file("a date", "[run]\nsteps = 1979-05-27\n", "whole number"),
        file(
            "both of two",
            "[pipeline]\nmicro_batches = 2\nmicro_batch_size = 2\n",
            "give one of the two",
        ),
        hostile("config", "no text", [0xff, 0xfe, 0x00], "UTF-8"),
        hostile(
            "config",
            "UTF-16",
            "\u{feff}[run]"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<u8>>(),
            "UTF-8",
        ),
        hostile(
            "config",
            "text cut within a character",
            &b"# \xe2\x82"[..],
            "UTF-8",
        ),
        hostile(
            "config",
            "a program",
            &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..],
            "line 1",
        ),
    ];
    // Every key with every kind of wrong value.
    let written = gpipe_cli::parsers::config(b"").expect("the defaults");
    let (mut section, mut keys) = ("", Vec::new());
    for line in written.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.push((section.to_owned(), key.to_owned()));
        }
    }
    assert!(keys.len() >= 30, "{keys:?}");
    let values = [
        "0",
        "-1",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "1e308",
        "1e309",
        "-0.0",
        "nan",
        "inf",
        "true",
        "''",
        "'\\u0000'",
        "[]",
        "{}",
        "07:32:00",
        "'999999999999999999999'",
    ];
    for (section, key) in keys {
        for value in values {
            let text = format!("[{section}]\n{key} = {value}\n");
            list.push(hostile("config", text.clone(), text, ""));
        }
    }
    list
}

/// Tables of schedules.
fn tables() -> Vec<Hostile> {
    let table = |what: &str, text: &str| hostile("schedule table", what, text, " ");
    vec![
        table("nothing", ""),
        table("rows without actions", ",,,\n,,,\n"),
        table("a stage beyond counting", "18446744073709551616F0\n"),
        table(
            "the last stage there can be",
            "18446744073709551615F0,0B0\n",
        ),
        table(
            "the last micro-batch there can be",
            "0F18446744073709551615\n",
        ),
        table(
            "four thousand million micro-batches",
            "0F4294967295,0B4294967295\n",
        ),
        table(
            "stages from a thousand million on",
            "1000000000F0\n1000000000B0\n",
        ),
        table("a backward pass first", "0B0,0F0\n"),
        table("an action twice", "0F0,0F0,0B0\n"),
        hostile("schedule table", "no backward pass", "0F0\n", ""),
        table("weights before inputs", "0F0,0W0,0I0\n"),
        table(
            "one waiting for the other",
            "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
        ),
        table("a stage in two places", "0F0,0B0\n0F1,0B1\n"),
        table("a minus", "-1F0\n"),
        table("a plus", "+1F0\n"),
        table("a fraction", "0.5F0\n"),
        table("a letter that is no action", "0X0\n"),
        table("sends", "0F0,0SEND_F0\n1RECV_F0\n"),
        table("half an overlap", "(0F0;0B0\n"),
        table("an overlap of nothing", "()OVERLAP_F_B\n"),
        table(
            "overlaps in overlaps",
            &format!("{}{}", "(".repeat(50_000), ")OVERLAP_F_B".repeat(50_000)),
        ),
        hostile("schedule table", "quotes", "\"0F0\",\"0B0\"\n", ""),
        table("semicolons between cells", "0F0;0B0\n"),
        table("tabs between cells", "0F0\t0B0\n"),
        table("a NUL", "0F0,\0\n"),
        table("a right-to-left mark", "0F0,\u{202e}0B0\n"),
        table("a million empty cells", &",".repeat(1_000_000)),
        table("a hundred thousand empty rows", &"\n".repeat(100_000)),
        table("a cell of a megabyte", &"9".repeat(1 << 20)),
        table("other digits", "٣F٣\n"),
    ]
}

/// Values of the command line.
fn values() -> Vec<Hostile> {
    let value = |parser, what: &str| hostile(parser, what, what, " ");
    let mut list: Vec<Hostile> = [
        "",
        ",",
        "1,",
        ",1",
        "1,,2",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "18446744073709551616",
        "1;2",
        "1 2",
        "nan",
        "٣",
        "1,\u{0}",
        "\u{feff}1",
    ]
    .map(|text| value("costs", text))
    .into();
    list.extend(
        [
            "",
            "=",
            "==",
            "a",
            "a=b",
            ".=",
            "pipeline.=1",
            ".stages=1",
            "pipeline..stages=1",
            "stages=1",
            "PIPELINE.STAGES=1",
            "pipeline.stages=",
            "pipeline.stages=0",
            "pipeline.stages=1.0",
            "pipeline.stages=0x4",
            "pipeline.stages=4 stages",
            "pipeline.stages=99999999999999999999",
            "pipeline.devices=",
            "pipeline.devices=cpu*0",
            "pipeline.devices=cpu*4294967296",
            "pipeline.devices=cpu*-1",
            "pipeline.devices=cpu**2",
            "pipeline.devices=,",
            "pipeline.devices=cuda:",
            "pipeline.devices=cuda:4294967296",
            "pipeline.devices=cpu:0",
            "pipeline.partition=,",
            "pipeline.partition=-1,2",
            "pipeline.partition=18446744073709551616",
            "pipeline.partition=1;2",
            "pipeline.schedule=interleaved:",
            "pipeline.schedule=interleaved:0",
            "pipeline.schedule=interleaved:18446744073709551616",
            "pipeline.schedule=1F1B",
            "pipeline.remat=every:",
            "pipeline.remat=every:0",
            "pipeline.remat=every:-1",
            "pipeline.remat=every:18446744073709551616",
            "model.name=",
            "model.name=../gpt2",
            "model.blocks=1000000000",
            "model.width=0",
            "model.gelu=",
            "model.dropout=1",
            "model.dropout=-0.1",
            "optimizer.lr=-1",
            "optimizer.lr=nan",
            "optimizer.lr=1e999",
            "optimizer.beta1=1",
            "run.steps=0",
            "run.seed=-1",
            "data.shuffle=maybe",
            "data.shuffle=\"true\"x",
        ]
        .map(|text| value("setting", text)),
    );
    list.extend(
        [
            "",
            "trian",
            "train\nplan",
            "--",
            "-",
            "--stages",
            "train\n--stages",
            "train\n--no-shuffle=1",
            "train\n--overwrite",
            "train\n-q\n-v",
            "train\n--color\nred",
            "train\n--json=yes",
            "plan\n--costs",
            "train\n--unknown\n\u{202e}",
            "verify\nextra",
            "train\n--steps\n1\n--\n--seed",
            "train\n--micro-batches\n2\n--micro-batch-size\n2",
        ]
        .map(|text| value("command line", text)),
    );
    list.extend(
        [
            "",
            "cuda",
            "cuda:-1",
            "cpu:0",
            "every:0",
            "every:99999999999999999999",
            "F0",
            "0F",
            "0F-1",
            "99999999999999999999F0",
            "0F0 ",
            "٣F٣",
        ]
        .map(|text| value("names", text)),
    );
    list
}

/// Weights: what the header claims against what there is.
fn weights() -> Vec<Hostile> {
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

fn corpus() -> Vec<Hostile> {
    [files(), tables(), values(), weights()]
        .into_iter()
        .flatten()
        .collect()
}

/// What an answer must be: one line, no control characters, not a copy of the input.
fn fault(answer: &Result<String, String>, hostile: &Hostile) -> Option<String> {
    let Err(line) = answer else {
        return (!hostile.word.is_empty()).then(|| "it was understood".into());
    };
    if line.trim().is_empty() {
        return Some("the answer is empty".into());
    }
    // Libraries leave that to whoever shows their errors, and so does clap.
    let ours = ["config", "setting", "costs"].contains(&hostile.parser);
    if ours && (line.chars().any(char::is_control) || line.chars().count() > 700) {
        return Some("the answer is more than a line".into());
    }
    (!line.contains(hostile.word)).then(|| {
        let start: String = line.chars().take(200).collect();
        format!("the answer does not say `{}`: {start}", hostile.word)
    })
}

#[test]
fn hostile_inputs_are_refused_by_name() {
    let targets = all();
    let corpus = corpus();
    let (mut files, mut faults) = (0, Vec::new());
    for hostile in &corpus {
        let find = |target: &&Target| target.name == hostile.parser;
        let target = targets.iter().find(find).expect("a parser");
        let fault = fault(&(target.run)(&hostile.bytes), hostile);
        faults.extend(
            fault.map(|fault| format!("{}, {:.80}: {fault}", hostile.parser, hostile.what)),
        );
        files += 1;
    }
    assert!(
        faults.is_empty(),
        "{} of {files}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(files >= 150, "{files}");
    println!("exam P3 {files}/{files}");
}

#[test]
fn a_check_that_nothing_fails_would_be_none() {
    let hostile = |word| hostile("costs", "a list", "1,x", word);
    let answers: [(Result<String, String>, &str); 6] = [
        (Err("whole\nand more".into()), "whole"),
        (Err("whole".repeat(1_000)), "whole"),
        (Ok("1".into()), "whole"),
        (Err(String::new()), ""),
        (Err(" ".into()), "whole"),
        (Err("no".into()), "whole"),
    ];
    let seen = answers
        .iter()
        .filter(|(answer, word)| fault(answer, &hostile(word)).is_some());
    assert_eq!(seen.count(), answers.len());
    assert!(fault(&Err("whole numbers".into()), &hostile("whole")).is_none());
    println!("exam P3 teeth {0}/{0}", answers.len());
}
