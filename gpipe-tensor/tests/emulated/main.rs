//! The emulated host: small programs that are right run right in every order, and what a program must
//! not do is found.
//!
//! A test runs this very binary again, with the emulated libraries in place of the real ones; there
//! [`a_program`] does what the test asked for.

mod blas;
mod captures;
mod channels;
mod compile;
mod driver;
mod epilogues;
mod faults;
mod graph_faults;
mod graph_memory;
mod graphs;
mod hardware;
mod host;
mod operations;
mod orders;
mod sound;
mod traced;
mod waits;

use std::env;
use std::process::{Command, ExitCode};

use gpipe_tensor::DType;
use host::{Host, LIBRARIES, Outcome};
use operations::Sizes;

/// The variable that names the program to run.
const PROGRAM: &str = "GPIPE_EMULATED_PROGRAM";

/// Whether a program saw what it should.
type Program = fn(argument: &str) -> bool;

const PROGRAMS: [(&str, Program); 40] = [
    ("relay", orders::relay),
    ("channel", channels::program),
    ("peer", channels::peer),
    ("no-nccl", channels::missing),
    ("found-nccl", channels::found),
    ("fault", faults::program),
    ("graph-fault", graph_faults::program),
    ("graphs", graphs::program),
    ("beside-graphs", graphs::beside),
    ("arena-copies", graphs::copies),
    ("short-arena", graph_memory::short),
    ("reserved", graph_memory::reserved),
    ("no-room", graph_memory::no_room),
    ("full", graph_memory::full),
    ("neighbour", graph_memory::neighbour),
    ("no-launch", graph_memory::no_launch),
    ("failing-graphs", graphs::failing),
    ("unwritten", faults::unwritten),
    ("compiler", faults::compiler),
    ("products", blas::products),
    ("epilogues", epilogues::program),
    ("captured-epilogues", epilogues::captured),
    ("lt", epilogues::wrong),
    ("operations", operations),
    ("moves", waits::program),
    ("late", waits::late),
    ("staged", waits::staged),
    ("compiled", sound::compiled),
    ("together", sound::together),
    ("ahead", waits::ahead),
    ("caches", sound::caches),
    ("classless", sound::classless),
    ("contexts", sound::contexts),
    ("failing", sound::failing),
    ("gradient", sound::gradient),
    ("lost", hardware::lost),
    ("pool", hardware::pool),
    ("closed", hardware::closed),
    ("traced", traced::program),
    ("on_paper", traced::on_paper),
];

/// Runs a program on the emulated host.
fn run(host: &Host, program: &str, argument: &str, settings: &str) -> Outcome {
    host.run(&mut command(program, argument), settings)
}

/// The command that runs a program.
fn command(program: &str, argument: &str) -> Command {
    let binary = env::current_exe().expect("this binary has a path");
    let mut command = Command::new(binary);
    command.args(["--exact", "a_program", "--nocapture"]);
    command.env(PROGRAM, format!("{program} {argument}"));
    command
}

/// What NVIDIA's initcheck looks for on a device.
#[test]
fn no_kernel_reads_what_nobody_wrote() {
    let Some(host) = Host::with_watched_reads() else {
        return;
    };
    let outcome = run(host, "unwritten", "", "");
    let read = "scale_f32 reads 4 bytes that nobody wrote, byte 1200";
    let [fault] = &outcome.faults[..] else {
        panic!("{outcome:?}");
    };
    assert!(fault.contains(read), "{outcome:?}");
    for sizes in ["small", "bf16"] {
        let outcome = run(host, "operations", sizes, "seed=1");
        assert!(outcome.is_right(), "{sizes}: {outcome:?}");
    }
}

/// No test, but what a test runs.
#[test]
fn a_program() -> ExitCode {
    let Ok(asked) = env::var(PROGRAM) else {
        return ExitCode::SUCCESS;
    };
    let (name, argument) = asked.split_once(' ').unwrap_or((&asked, ""));
    let program = PROGRAMS.iter().find(|(known, _)| *known == name);
    let (_, program) = program.expect("a program that there is");
    match program(argument) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Says where the libraries are, for programs that are run with them by LD_LIBRARY_PATH.
#[test]
fn the_libraries_are_in_one_folder() {
    let Some(host) = Host::get() else { return };
    let folder = host.links(&LIBRARIES).expect("links beside the library");
    for name in LIBRARIES.iter().flatten() {
        assert!(folder.join(name).is_file(), "{name}");
    }
    println!("libraries: {}", folder.display());
}

/// Compares every operation with the processor's.
fn operations(argument: &str) -> bool {
    let (sizes, stored) = match argument {
        "small" => (Sizes::Small, DType::F32),
        "bf16" => (Sizes::All, DType::BF16),
        "real" => (Sizes::Real, DType::F32),
        "real-bf16" => (Sizes::Real, DType::BF16),
        _ => (Sizes::All, DType::F32),
    };
    operations::compare(sizes, stored);
    true
}

#[test]
fn every_operation_equals_the_processors() {
    let Some(host) = Host::get() else { return };
    for (sizes, settings) in [
        ("all", "seed=1"),
        ("all", "seed=2 peers=0 order=lazy"),
        ("small", "seed=5 devices=1"),
        ("bf16", "seed=6"),
        ("bf16", "seed=7 peers=0 order=starved"),
        ("real", "seed=8"),
        ("real-bf16", "seed=9"),
    ] {
        let outcome = run(host, "operations", sizes, settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
    }
}
