//! One function from bytes to an answer for every parser, and good inputs to begin with.

use gpipe_cli::parsers;
use gpipe_remat::Policy;
use gpipe_sched::{Action, Schedule};
use gpipe_tensor::{Device, DeviceId, Host, Tensor, safetensors};

/// A parser under test.
pub struct Target {
    pub name: &'static str,
    /// Inputs that are understood.
    pub seeds: Vec<Vec<u8>>,
    /// What its language is made of.
    pub words: &'static [&'static str],
    /// Gives the answer; panics if the parser does, or if what it accepted is not what it should be.
    pub run: fn(&[u8]) -> Result<String, String>,
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1e308",
    "1e309",
    "-0.0",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "00",
];

/// All parsers.
pub fn all() -> Vec<Target> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    vec![
        Target {
            name: "config",
            seeds: texts(&[
                "",
                "[run]\nsteps = 3\nseed = 7\n[optimizer]\nlr = 1e-3\nlr_schedule = \"cosine\"\n",
                "[model]\nname = \"gpt2\"\nblocks = 12\ntied = false\ngelu = \"erf\"\ndropout = 0.1\n",
                "[pipeline]\nstages = 4\ndevices = \"cpu*4\"\nschedule = \"1f1b\"\nremat = \"every:2\"\n",
                "[pipeline]\npartition = '3,3,3,2'\nmicro_batch_size = 2\n# a comment\n[data]\nsource = \"\"\"\na\"\"\"\n",
                "run = { steps = 2, eval_every = 0 }\ndata.seq_len = 8\n",
            ]),
            words: &[
                "[model]",
                "[data]",
                "[pipeline]",
                "[optimizer]",
                "[run]",
                "[",
                "]",
                "[[",
                "]]",
                "{",
                "}",
                "=",
                ".",
                ",",
                "\"",
                "'",
                "\"\"\"",
                "#",
                "\n",
                "\\u0000",
                "true",
                "1979-05-27T07:32:00Z",
                "name",
                "blocks",
                "width",
                "stages",
                "micro_batches",
                "micro_batch_size",
                "\u{feff}",
                "\0",
                "\u{202e}",
            ],
            run: config,
        },
        Target {
            name: "setting",
            seeds: texts(&[
                "pipeline.stages=3",
                "pipeline.devices=cpu*2",
                "pipeline.partition=3,4,4",
                "pipeline.schedule=interleaved:2",
                "pipeline.remat=every:3",
                "optimizer.lr=0.5",
                "model.name=gpt-mini",
                "data.shuffle=false",
                "run.seed=9",
                "optimizer.decay=all",
                "pipeline.cost_model=lingvo",
                "data.source=\"a b\"",
            ]),
            words: &[
                "=",
                ".",
                ",",
                ":",
                "*",
                "cpu",
                "cuda:0",
                "every",
                "budget",
                "GiB",
                "balance",
                "histogram",
                "zb-v",
                "1f1b",
                "looped-bfs",
                "pipeline.",
                "\"",
                "'",
                "\n",
                "\0",
            ],
            run: |bytes| setting(&lossy(bytes)),
        },
        Target {
            name: "command line",
            seeds: texts(&[
                "train\n--stages\n4\n--steps=2\n-q",
                "plan\n--costs\n1,2,3\n--json",
                "verify\n--set\nrun.seed=1",
                "train\n--help",
                "--version",
                "help\ntrain",
                "train\n--config\na.toml\n--out\nb\n--overwrite",
            ]),
            words: &[
                "\n",
                "--",
                "-",
                "=",
                "--set",
                "--json",
                "--quiet",
                "--verbose",
                "--color",
                "always",
                "help",
                "train",
                "plan",
                "verify",
                "--no-shuffle",
                "-vvvv",
                "--stages=-1",
                "\0",
                "\u{202e}",
            ],
            run: |bytes| parsers::command_line(lossy(bytes).split('\n')),
        },
        Target {
            name: "costs",
            seeds: texts(&["1", "10,40,30,10,20,50,10", " 1 , 2 ", "0,0"]),
            words: &[",", " ", "\n", "+", "-", "."],
            run: |bytes| costs(&lossy(bytes)),
        },
        Target {
            name: "names",
            seeds: texts(&["cpu", "cuda:3", "every:2", "keep", "2F0", "13W7", "1B2"]),
            words: &[
                ":", "cpu", "cuda", "every", "F", "B", "I", "W", "R", "+", "-",
            ],
            run: |bytes| names(&lossy(bytes)),
        },
        Target {
            name: "schedule table",
            seeds: texts(&[
                "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n",
                include_str!("../../../gpipe-sched/tests/fixtures/gpipe.csv"),
                include_str!("../../../gpipe-sched/tests/fixtures/zb_v.csv"),
                include_str!("../../../gpipe-sched/tests/fixtures/dualpipe_v.csv"),
            ]),
            words: &[
                ",",
                "\n",
                "\r\n",
                "F",
                "B",
                "I",
                "W",
                "0F0",
                "(0F7;7B3)OVERLAP_F_B",
                ")OVERLAP_F_B",
                "(",
                ";",
                "REDUCE_GRAD",
                "WAIT_REDUCE_GRAD",
                "SEND_F",
                "\"",
            ],
            run: |bytes| table(&lossy(bytes)),
        },
        Target {
            name: "safetensors",
            seeds: weights(),
            words: &[
                "{",
                "}",
                "[",
                "]",
                ":",
                ",",
                "\"",
                "\"dtype\"",
                "\"F32\"",
                "\"F16\"",
                "\"I64\"",
                "\"shape\"",
                "\"data_offsets\"",
                "\"__metadata__\"",
                "null",
                "true",
                "[[[[[[[[",
                "\\ud800",
            ],
            run: tensors,
        },
    ]
    .into_iter()
    .chain(super::folders::all())
    .collect()
}

/// Numbers that every language may trip over.
pub fn numbers() -> &'static [&'static str] {
    NUMBERS
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What was understood can be written, and understood again as the same.
fn config(bytes: &[u8]) -> Result<String, String> {
    let written = parsers::config(bytes)?;
    assert_eq!(parsers::config(written.as_bytes()).as_ref(), Ok(&written));
    Ok(written)
}

fn setting(text: &str) -> Result<String, String> {
    let written = parsers::setting(text)?;
    assert_eq!(parsers::config(written.as_bytes()).as_ref(), Ok(&written));
    Ok(written)
}

fn costs(text: &str) -> Result<String, String> {
    let written = parsers::costs(text)?;
    assert_eq!(parsers::costs(&written).as_ref(), Ok(&written));
    Ok(written)
}

/// The names that libraries read by themselves.
fn names(text: &str) -> Result<String, String> {
    fn one<T>(text: &str) -> Result<String, String>
    where
        T: std::str::FromStr<Err: std::fmt::Display> + std::fmt::Display + PartialEq,
    {
        let value: T = text.parse().map_err(|error: T::Err| error.to_string())?;
        let written = value.to_string();
        assert!(
            written.parse().is_ok_and(|again: T| again == value),
            "{written}"
        );
        Ok(written)
    }
    let answers = [
        one::<DeviceId>(text),
        one::<Policy>(text),
        one::<Action>(text),
    ];
    let [first, ..] = &answers;
    answers
        .iter()
        .find(|answer| answer.is_ok())
        .unwrap_or(first)
        .clone()
}

fn table(text: &str) -> Result<String, String> {
    let schedule = Schedule::from_csv(text).map_err(|error| error.to_string())?;
    let mut written = Vec::new();
    schedule.write_csv(&mut written).expect("memory takes it");
    let written = String::from_utf8(written).expect("text");
    // Cells move, since empty ones are where a device idles; the order does not.
    assert_eq!(Schedule::from_csv(&written).as_ref(), Ok(&schedule));
    Ok(written)
}

fn device() -> Device {
    Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("a CPU")
}

fn weights() -> Vec<Vec<u8>> {
    let device = device();
    let floats = |shape: &[usize]| {
        let elements: usize = shape.iter().product();
        let values: Vec<f32> = (0..elements).map(|i| i as f32).collect();
        Tensor::from_f32(&device, shape, values).expect("a small tensor")
    };
    let ids = Tensor::from_u32(&device, [3], vec![1, 2, 3]).expect("a small tensor");
    let save = |tensors: Vec<(&str, Tensor)>, metadata: &[(String, String)]| {
        let tensors: Vec<_> = tensors
            .into_iter()
            .map(|(name, t)| (name.to_owned(), t))
            .collect();
        safetensors::save(&tensors, metadata).expect("a file")
    };
    vec![
        save(
            vec![("w", floats(&[2, 3])), ("b", floats(&[3])), ("ids", ids)],
            &[],
        ),
        save(
            vec![("empty", floats(&[0, 4]))],
            &[("format".into(), "pt".into())],
        ),
        save(Vec::new(), &[]),
    ]
}

/// What was understood has as many bytes as its shapes say, and is written and read as the same.
fn tensors(bytes: &[u8]) -> Result<String, String> {
    let device = device();
    let metadata = safetensors::load_metadata(bytes);
    let tensors = safetensors::load(bytes, &device).map_err(|error| error.to_string())?;
    let metadata = metadata.expect("the header was read");
    let held: usize = tensors.iter().map(|(_, tensor)| tensor.bytes()).sum();
    // Half floats double, nothing else grows.
    assert!(held <= 2 * bytes.len(), "{held} bytes of {}", bytes.len());
    let mut understood = String::new();
    for (name, tensor) in &tensors {
        let elements: usize = tensor.shape().dims().iter().product();
        assert_eq!(tensor.bytes(), 4 * elements, "{name}");
        understood += &format!("{name:?} {:?} ", tensor.shape());
    }
    if let Ok(written) = safetensors::save(&tensors, &metadata) {
        let again = safetensors::load(&written, &device).expect("what was just written");
        assert_eq!(again.len(), tensors.len());
    }
    Ok(understood)
}
