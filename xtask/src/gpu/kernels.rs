//! The kernels of a step of GPT-2 without a GPU: what NVIDIA's compiler makes of them for each generation, and the time
//! that a model of a GPU predicts for each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::programs::{EMULATED, Missing, build_messages, executable};
use crate::bench::table::table;

/// The step: GPT-2 of 124 million parameters with 32 samples of 1,024 tokens in bf16, in one micro-batch on one device.
const STEP: [&str; 4] = [
    "h200",
    "model.name=gpt2",
    "data.seq_len=1024",
    "data.batch_size=32",
];

/// The generations that kernels are compiled for, as the compiler knows them.
const GENERATIONS: [&str; 4] = ["sm_80", "sm_90a", "sm_100", "sm_120"];

/// What the compiler says of a kernel: registers, bytes of stack, bytes of shared memory, blocks that a multiprocessor
/// holds, and instructions.
const SAID: [&str; 5] = [
    "registers",
    "stack_bytes",
    "shared_bytes",
    "blocks",
    "instructions",
];

/// What a step asks of a kernel, or of a product of matrices.
#[derive(Default)]
struct Row {
    kernel: String,
    launches: u64,
    bytes: f64,
    flops: f64,
    seconds: f64,
}

/// The numbers of [`SAID`] for each of [`GENERATIONS`].
type Compiled = [[u64; 5]; 4];

/// Prints the table, or writes it to `out`. `compiled` is what the test of the kernels wrote to the file that
/// `GPIPE_KERNELS` names; without it, that test runs.
///
/// # Errors
/// [`Missing`] without NVRTC; if something does not build, or a kernel fails its test.
pub fn run(
    shell: &Shell,
    root: &Path,
    compiled: Option<&Path>,
    out: Option<&Path>,
) -> anyhow::Result<()> {
    let file = match compiled {
        Some(file) => file.to_owned(),
        None => compile(shell, root)?,
    };
    let lines = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let compiled = read_compiled(&lines)?;
    let example = ["--example", "launches"];
    let built = build_messages(shell, &[&EMULATED[..], &example].concat())?;
    let launches = executable(&built, "launches")?;
    let said = cmd!(shell, "{launches} {STEP...}").read()?;
    let rows = said.lines().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    let text = table(&drawn(rows, &compiled), true);
    match out {
        None => print!("{text}"),
        Some(out) => {
            shell.write_file(out, text)?;
            println!("{}", out.display());
        }
    }
    Ok(())
}

/// Compiles every kernel; the file that says what became of them.
fn compile(shell: &Shell, root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(library) = std::env::var_os("GPIPE_NVRTC").map(PathBuf::from)
        && !library.is_file()
    {
        let what = format!("GPIPE_NVRTC is {}, which is no file", library.display());
        return Err(Missing::nvrtc(&what).into());
    }
    let file = root.join("target/kernels.jsonl");
    shell.remove_path(&file)?;
    shell.create_dir(root.join("target"))?;
    let test = "every_kernel_compiles_for_every_device_with_the_tables_parameters";
    cmd!(shell, "cargo test --quiet -p gpipe-tensor --lib {test}")
        .env("GPIPE_KERNELS", &file)
        .ignore_stdout()
        .run()?;
    match file.is_file() {
        true => Ok(file),
        // The test passes over what it cannot do.
        false => Err(Missing::nvrtc("no NVRTC was found").into()),
    }
}

fn object(line: &str) -> anyhow::Result<Value> {
    serde_json::from_str(line).with_context(|| format!("`{line}` is no JSON object"))
}

fn row(line: &str) -> anyhow::Result<Row> {
    let object = object(line)?;
    let number = |key: &str| {
        let number = object[key].as_f64();
        number.with_context(|| format!("{key} in {line}"))
    };
    Ok(Row {
        kernel: object["kernel"].as_str().unwrap_or_default().to_owned(),
        launches: number("launches")? as u64,
        bytes: number("bytes")?,
        flops: number("flops")?,
        seconds: number("seconds")?,
    })
}

/// The kernels by the names of their entry points.
fn read_compiled(lines: &str) -> anyhow::Result<BTreeMap<String, Compiled>> {
    let mut found = BTreeMap::<String, Compiled>::new();
    for line in lines.lines() {
        let object = object(line)?;
        let generation = GENERATIONS
            .iter()
            .position(|&name| object["device"] == name)
            .with_context(|| format!("{line}: a generation that the table does not show"))?;
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let name = format!("{}_{}", text("kernel"), text("type"));
        for (place, key) in SAID.iter().enumerate() {
            let number = object[*key].as_u64();
            found.entry(name.clone()).or_default()[generation][place] =
                number.with_context(|| format!("{key} in {line}"))?;
        }
    }
    Ok(found)
}

/// The slowest first, then their sum.
fn drawn(mut rows: Vec<Row>, compiled: &BTreeMap<String, Compiled>) -> Vec<[String; 10]> {
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let [registers, spilled, shared, blocks, instructions] = [
        "registers",
        "spilled bytes",
        "shared bytes",
        "blocks",
        "instructions",
    ];
    let heading = [
        "kernel",
        registers,
        spilled,
        shared,
        blocks,
        instructions,
        "launches",
        "GB",
        "TFLOP",
        "ms",
    ];
    let mut drawn = vec![heading.map(str::to_owned)];
    let all = Row {
        kernel: "all".into(),
        launches: rows.iter().map(|row| row.launches).sum(),
        bytes: rows.iter().map(|row| row.bytes).sum(),
        flops: rows.iter().map(|row| row.flops).sum(),
        seconds: rows.iter().map(|row| row.seconds).sum(),
    };
    for row in rows.iter().chain([&all]) {
        let known = compiled.get(&row.kernel);
        let said = |place: usize| known.map(|of| generations(of.map(|numbers| numbers[place])));
        let [registers, spilled, shared, blocks, instructions] =
            [0, 1, 2, 3, 4].map(|place| said(place).unwrap_or_default());
        drawn.push([
            row.kernel.clone(),
            registers,
            spilled,
            shared,
            blocks,
            instructions,
            row.launches.to_string(),
            format!("{:.2}", row.bytes / 1e9),
            match row.flops > 0.0 {
                true => format!("{:.2}", row.flops / 1e12),
                false => String::new(),
            },
            format!("{:.2}", 1e3 * row.seconds),
        ]);
    }
    drawn
}

/// One number if all generations have the same, else all of them in their order.
fn generations(numbers: [u64; 4]) -> String {
    match numbers.iter().all(|number| *number == numbers[0]) {
        true => numbers[0].to_string(),
        false => numbers.map(|number| number.to_string()).join(" / "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(device: &str, registers: u32) -> Value {
        serde_json::json!({
            "device": device, "kernel": "add", "type": "bf16", "registers": registers,
            "stack_bytes": 0, "shared_bytes": 2048, "blocks": 8, "instructions": 112,
        })
    }

    #[test]
    fn kernels_stand_beside_what_the_compiler_says_and_above_their_sum() {
        let kernel = |kernel: &str, launches: u32, flops: f64, seconds: f64| {
            let line = serde_json::json!({
                "kernel": kernel, "launches": launches, "bytes": 2e9, "flops": flops, "seconds": seconds,
            });
            row(&line.to_string()).unwrap()
        };
        let lines = [
            ("sm_80", 30),
            ("sm_90a", 32),
            ("sm_100", 32),
            ("sm_120", 34),
        ];
        let lines = lines.map(|(device, registers)| said(device, registers).to_string());
        let compiled = read_compiled(&lines.join("\n")).unwrap();
        let rows = vec![
            kernel("add_bf16", 48, 0.0, 0.0015),
            kernel("product", 1, 3e12, 0.0025),
        ];
        let drawn = drawn(rows, &compiled);
        let texts = |row: usize| drawn[row].iter().map(String::as_str).collect::<Vec<_>>();
        let product = ["product", "", "", "", "", "", "1", "2.00", "3.00", "2.50"];
        assert_eq!(texts(1), product);
        let add = [
            "add_bf16",
            "30 / 32 / 32 / 34",
            "0",
            "2048",
            "8",
            "112",
            "48",
            "2.00",
            "",
            "1.50",
        ];
        assert_eq!(texts(2), add);
        let all = ["all", "", "", "", "", "", "49", "4.00", "3.00", "4.00"];
        assert_eq!(texts(3), all);
    }

    #[test]
    fn what_is_not_said_is_named() {
        assert!(row("{}").is_err());
        let error = |line: Value| read_compiled(&line.to_string()).unwrap_err().to_string();
        let mut unknown = said("sm_90a", 32);
        unknown["blocks"] = Value::Null;
        assert!(error(unknown).starts_with("blocks in "));
        assert!(error(said("sm_70", 32)).contains("sm_70"));
        let missing = Missing::nvrtc("no NVRTC was found").to_string();
        assert!(
            missing.contains("pip install nvidia-cuda-nvrtc-cu12"),
            "{missing}"
        );
    }
}
