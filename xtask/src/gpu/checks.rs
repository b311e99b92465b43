//! The checks: operations and whole runs against the processor, stages that share a GPU, and
//! compute-sanitizer's tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::limit;
use super::programs::Programs;
use super::results::{Results, Verdict};
use super::train::{Trained, apart, train};

/// How far losses in single precision may be from the processor's, relatively.
const NEAR: f64 = 1e-3;

/// How far losses of a run in bf16 may be from those in single precision at the end, relatively.
const ALIKE: f64 = 0.05;

/// A model that is trained in moments.
const TINY: &[&str] = &[
    "--set",
    "model.width=32",
    "--set",
    "model.blocks=2",
    "--set",
    "model.heads=2",
    "--seq-len",
    "16",
    "--batch-size",
    "8",
    "--warmup-steps",
    "2",
    "--dropout",
    "0.1",
];

/// One whose tensors are of several tiles.
const LARGER: &[&str] = &[
    "--model",
    "bench-a",
    "--warmup-steps",
    "5",
    "--dropout",
    "0.1",
];

fn model(small: bool) -> &'static [&'static str] {
    if small { TINY } else { LARGER }
}

/// Every operation on the GPU against the processor's; if `small`, without the shapes of real models.
pub fn conformance(programs: &Programs, small: bool, results: &mut Results) -> anyhow::Result<()> {
    let mut command = Command::new(&programs.operations);
    if small {
        command.env("GPIPE_SIZES", "made");
    }
    results.section("Operations against the processor's")?;
    let mut families = 0;
    command.args(["--nocapture", "--test-threads", "1"]);
    let ended = limit::run_heard(&mut command, &mut |line| match compared(line) {
        Some((family, found)) => {
            families += 1;
            results.note(&format!("operations: {family}"), Verdict::Right, found)
        }
        None => Ok(()),
    })?;
    match families > 0 && ended.is_right() {
        true => Ok(()),
        false => results.failed("operations", Verdict::Wrong, &ended),
    }
}

/// A family of operations, and how many of its results were equal.
fn compared(line: &str) -> Option<(&str, &str)> {
    let (family, found) = line.split_once(": ")?;
    // The test's own words stand before those of the first family.
    let family = family.rsplit("... ").next()?;
    found
        .ends_with("equal the processor's")
        .then_some((family, found))
}

/// The same run on the processor and on the GPU, and in bf16.
pub fn parity(programs: &Programs, small: bool, results: &mut Results) -> anyhow::Result<()> {
    results.section("Training against the processor's")?;
    let steps = if small { 10 } else { 50 };
    let run = |more: &[&str]| {
        let ways = ["--stages", "1", "--micro-batches", "2", "--remat", "keep"];
        train(programs, &[model(small), &ways, more].concat(), steps)
    };
    let processor = run(&["--devices", "cpu"])?;
    let gpu = run(&["--devices", "cuda:0"])?;
    let what = format!("losses of {steps} steps in f32, cuda:0 against cpu");
    match (&processor, &gpu) {
        (Ok(processor), Ok(gpu)) => {
            let apart = apart(&gpu.losses, &processor.losses);
            let found = format!("{apart:.1e} apart at most, relatively; {}", fall(gpu));
            results.note(&what, verdict(apart <= NEAR), &found)?;
        }
        (Err(broken), _) | (_, Err(broken)) => {
            results.note(&what, broken.verdict(Verdict::Wrong), &broken.why)?;
        }
    }
    let what = format!("losses of {steps} steps, bf16 against f32 on cuda:0");
    match (run(&["--devices", "cuda:0", "--dtype", "bf16"])?, &gpu) {
        (Ok(half), Ok(gpu)) => {
            let tail = steps - steps / 5;
            let apart = apart(&half.losses[tail..], &gpu.losses[tail..]);
            let falls = half.losses[steps - 1] < half.losses[0];
            let found = format!(
                "{apart:.1e} apart at most in the last fifth; {}",
                fall(&half)
            );
            results.note(&what, verdict(falls && apart <= ALIKE), &found)?;
        }
        (Err(broken), _) => {
            results.note(&what, broken.verdict(Verdict::Left), &broken.why)?;
        }
        (_, Err(_)) => {}
    }
    Ok(())
}

/// Stages that share one GPU.
pub fn rehearsals(programs: &Programs, small: bool, results: &mut Results) -> anyhow::Result<()> {
    results.section("Rehearsals")?;
    let steps = if small { 4 } else { 20 };
    let mut one: Option<Trained> = None;
    for stages in [1, 2, 4] {
        let devices = format!("cuda:0*{stages}");
        let ways = [
            "--devices",
            &devices,
            "--schedule",
            "1f1b",
            "--micro-batches",
            "8",
        ];
        let what = format!("{steps} steps on {devices}, 8 micro-batches");
        match train(programs, &[model(small), &ways].concat(), steps)? {
            Err(broken) => {
                results.note(&what, broken.verdict(Verdict::Wrong), &broken.why)?;
            }
            Ok(got) => {
                let first = one.get_or_insert_with(|| got.clone());
                let apart = apart(&got.losses, &first.losses);
                let same = match got.losses == first.losses {
                    true => "the losses of one stage to the bit".to_owned(),
                    false => format!("{apart:.1e} from the losses of one stage"),
                };
                let found = format!("{same}; bubble {:.0} %", 100.0 * got.bubble);
                results.note(&what, verdict(apart <= NEAR), &found)?;
            }
        }
    }
    Ok(())
}

/// compute-sanitizer's tools on every operation with small tensors, and on a run.
pub fn sanitizer(programs: &Programs, results: &mut Results) -> anyhow::Result<()> {
    results.section("compute-sanitizer")?;
    let places = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"];
    let works = |place: &&&str| {
        let version = Command::new(place).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let Some(sanitizer) = places.iter().find(works) else {
        results.note("compute-sanitizer", Verdict::Left, "it is not there")?;
        return Ok(());
    };
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let out = folder.path().join("run");
    let operations = vec!["--nocapture".into()];
    let train = [
        "train",
        "-q",
        "--steps",
        "2",
        "--keep",
        "0",
        "--devices",
        "cuda:0*2",
        "--overwrite",
        "--out",
    ];
    let mut run: Vec<PathBuf> = train.iter().chain(TINY).map(PathBuf::from).collect();
    run.insert(train.len(), out);
    let watched: [(&str, &Path, Vec<PathBuf>); 2] = [
        ("every operation", &programs.operations, operations),
        ("2 steps on cuda:0*2", &programs.gpipe, run),
    ];
    for tool in ["memcheck", "racecheck", "initcheck", "synccheck"] {
        for (what, program, arguments) in &watched {
            let mut command = Command::new(sanitizer);
            command.args([
                "--tool",
                tool,
                "--error-exitcode",
                "9",
                "--print-limit",
                "1000",
            ]);
            command
                .arg(program)
                .args(arguments)
                .env("GPIPE_SIZES", "small");
            let ended = limit::run(&mut command)?;
            let said = format!("{}\n{}", ended.stdout, ended.stderr);
            let summary = said.lines().rfind(|line| line.contains("SUMMARY"));
            let found = match summary {
                Some(line) => {
                    line.trim_start_matches(['=', ' ']).to_owned() + &faulty_places(&said)
                }
                None => ended.why(),
            };
            let check = format!("{tool}, {what}");
            if ended.cut.is_some() {
                results.failed(&check, Verdict::Left, &ended)?;
                continue;
            }
            let right = verdict(ended.is_right() && summary.is_some());
            results.note(&check, watched_as(&said, right), &found)?;
        }
    }
    Ok(())
}

/// The kernels, and the calls of the driver, in which compute-sanitizer found something, those with the most findings first.
fn faulty_places(said: &str) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut in_call = false;
    for line in said.lines() {
        let line = line.trim_start_matches(['=', ' ']);
        in_call |= line.starts_with("Host API memory access error");
        let kernel = line
            .strip_prefix("at ")
            .and_then(|place| place.split(['+', '(']).next());
        // The innermost frame comes first.
        let call = line
            .strip_prefix("Host Frame: ")
            .filter(|_| std::mem::take(&mut in_call))
            .and_then(|frame| frame.split(' ').next());
        if let Some(place) = kernel.or(call) {
            *counts.entry(place).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let named = counts
        .iter()
        .take(5)
        .map(|(place, count)| format!("; {count} in {place}"));
    named.collect()
}

/// How a check by compute-sanitizer went: what the tool refuses to watch was not tried.
fn watched_as(said: &str, ended: Verdict) -> Verdict {
    const REFUSALS: [&str; 4] = [
        "Device not supported",
        "device is not supported",
        "Unable to start the tool",
        "Target application terminated before first instrumented API call",
    ];
    match REFUSALS.iter().any(|refusal| said.contains(refusal)) {
        true => Verdict::Left,
        false => ended,
    }
}

fn verdict(right: bool) -> Verdict {
    if right {
        Verdict::Right
    } else {
        Verdict::Wrong
    }
}

/// From the first loss to the last.
fn fall(run: &Trained) -> String {
    let ends =
        [run.losses.first(), run.losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN));
    format!("from {:.3} to {:.3}", ends[0], ends[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitizer_that_refuses_the_device_found_nothing_wrong() {
        let refused = "========= Device not supported. Please refer to the documentation\n";
        assert!(matches!(watched_as(refused, Verdict::Wrong), Verdict::Left));
        let found = "========= ERROR SUMMARY: 2 errors\n";
        assert!(matches!(watched_as(found, Verdict::Wrong), Verdict::Wrong));
    }

    #[test]
    fn places_with_findings_are_named() {
        let said = "========= Host API memory access error at host access to 0x2a9a000e00 of size 2,560 bytes\n\
                    =========     Uninitialized access to 0x2a9a000e00 on access by cudaMemcpy source\n\
                    =========     Saved host backtrace up to driver entry point at error\n\
                    =========         Host Frame: cuMemcpyDtoHAsync_v2 [0x37b54f] in libcuda.so.1\n\
                    =========         Host Frame:  [0x272f0e] in operations\n\
                    ========= Uninitialized __global__ memory read of size 16 bytes\n\
                    =========     at sum_rows_f32+0x5d0\n\
                    =========     by thread (0,0,0) in block (1,0,0)\n\
                    =========     at gemm_kernel(float const*)+0x10 in a.cu:3\n\
                    =========     at sum_rows_f32+0x5d0\n\
                    ========= ERROR SUMMARY: 3 errors\n";
        assert_eq!(
            faulty_places(said),
            "; 2 in sum_rows_f32; 1 in cuMemcpyDtoHAsync_v2; 1 in gemm_kernel"
        );
        assert_eq!(faulty_places("========= ERROR SUMMARY: 0 errors\n"), "");
    }

    #[test]
    fn families_are_read_where_the_test_names_itself() {
        let line = "test every_operation ... elements in f32: 85 results equal the processor's";
        assert_eq!(
            compared(line),
            Some(("elements in f32", "85 results equal the processor's"))
        );
        let line = "rows: 7 results equal the processor's";
        assert_eq!(
            compared(line),
            Some(("rows", "7 results equal the processor's"))
        );
        assert_eq!(compared("skipped: no CUDA driver"), None);
    }
}
