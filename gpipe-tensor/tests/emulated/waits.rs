//! Every place of the backend that waits for an event is needed: without it, something goes wrong in
//! some order.
//!
//! The emulator notes where each wait is asked for, as addresses in the program; `addr2line`, which
//! comes with g++, says which lines these are. They have to be all that the source has. Then one place
//! at a time is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use gpipe_tensor::{Device, DeviceId, Host, Result, Tensor, ops};

use super::host::Host as Emulated;
use super::run;

const N: usize = 500;

/// Tensors made, changed, copied, handed over and dropped on three handles and the host.
pub fn moves(host: &Host) -> Result<bool> {
    let near = host.device(DeviceId::Cuda(0))?;
    let beside = host.device(DeviceId::Cuda(0))?;
    let far = host.device(DeviceId::Cuda(1))?;
    let transit = host.device(DeviceId::Cpu)?;
    let is = |tensor: &Tensor, value: f32| Ok(tensor.to_f32s()?.iter().all(|&v| v == value));
    let mut right = true;
    for round in 1..5 {
        let value = round as f32;
        let full = |device: &Device, value: f32| Tensor::from_f32(device, [N], vec![value; N]);
        for to in [&far, &beside] {
            // Copied, then changed: the copy stays as it was.
            let mut x = ops::scale(&full(&near, value)?, 2.0)?;
            let copy = x.copy_to(to)?;
            x.fill(0.0)?;
            let tripled = ops::scale(&copy, 3.0)?;
            right &= is(&tripled, 6.0 * value)? && is(&x, 0.0)?;

            // Copied, used by an operation, then dropped.
            let x = ops::scale(&full(&near, value)?, 3.0)?;
            let copy = x.copy_to(to)?;
            let mut sum = ops::add(&x, &x)?;
            for _ in 0..4 {
                sum = ops::add(&sum, &x)?;
            }
            drop(x);
            right &= is(&copy, 3.0 * value)? && is(&sum, 18.0 * value)?;

            // Handed over, there and back, with work on both sides.
            let x = ops::scale(&full(&near, value)?, 0.5)?;
            let x = ops::scale(&x.receive(to)?, 4.0)?;
            let x = ops::scale(&x.receive(&near)?, 0.25)?;
            right &= is(&x, 0.5 * value)?;

            // Sent, and taken when its handle has gone on.
            let x = ops::scale(&full(&near, value)?, 0.5)?.send(&transit)?;
            let mut after = full(&near, value)?;
            for _ in 0..4 {
                after = ops::scale(&after, 2.0)?;
            }
            let x = ops::scale(&x.receive(to)?, 4.0)?;
            right &= is(&x, 2.0 * value)? && is(&after, 16.0 * value)?;

            // Looked at again on its way.
            let x = ops::scale(&full(&near, value)?, 3.0)?.send(&transit)?;
            let mut sum = full(&near, 0.0)?;
            for _ in 0..5 {
                ops::add_assign(&mut sum, &x)?;
            }
            let x = ops::scale(&x.receive(to)?, 2.0)?;
            right &= is(&x, 6.0 * value)? && is(&sum, 15.0 * value)?;
        }
        // More on their way than the host keeps memory for, none of them waited for.
        let many: Vec<Tensor> = (0..24)
            .map(|i| full(&near, value * i as f32))
            .collect::<Result<_>>()?;
        let many: Vec<Tensor> = many
            .into_iter()
            .map(|x| x.receive(&far))
            .collect::<Result<_>>()?;
        for (i, x) in many.iter().enumerate() {
            right &= is(x, value * i as f32)?;
        }
    }
    // What is on its way at the end.
    let last = Tensor::from_f32(&far, [N], vec![1.0; N])?;
    let more = ops::scale(&last, 2.0)?;
    drop((last, more));
    Tensor::from_f32(&near, [N], vec![2.0; N])?.receive(&far)?;
    Ok(right)
}

/// Whether the tensors hold what they should.
pub fn program(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    moves(&host).expect("nothing fails")
}

/// Whether an operation that fails is reported at the next synchronisation, not later.
pub fn late(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let work = || -> Result<Device> {
        let device = host.device(DeviceId::Cuda(0))?;
        let x = Tensor::from_f32(&device, [N], vec![1.0; N])?;
        ops::scale(&x, 2.0)?;
        Ok(device)
    };
    work().expect("nothing fails yet").finish().is_err()
}

/// Whether what was sent is there before the work that its handle was asked for later.
pub fn ahead(_: &str) -> bool {
    let host = Host::new(1).expect("one thread");
    let work = || -> Result<bool> {
        let [near, far] = [0, 1].map(|ordinal| host.device(DeviceId::Cuda(ordinal)));
        let (near, far, transit) = (near?, far?, host.device(DeviceId::Cpu)?);
        let x = Tensor::from_f32(&near, [N], vec![1.0; N])?;
        let sent = ops::scale(&x, 2.0)?.send(&transit)?;
        let mut after = x;
        for _ in 0..BREAKS {
            after = ops::scale(&after, 1.0)?;
        }
        let values = sent.receive(&far)?.to_f32s()?;
        let broken = after.to_f32s().is_err();
        Ok(broken && values.iter().all(|&value| value == 2.0))
    };
    work().expect("what comes first does not fail")
}

/// Moves more tensors than pinned memory is kept for from one device to another through the host, and reads the last.
pub fn staged(_: &str) -> bool {
    let work = || -> Result<bool> {
        let host = Host::new(1)?;
        let [near, far] = [0, 1].map(|ordinal| host.device(DeviceId::Cuda(ordinal)));
        let (near, far) = (near?, far?);
        let many = (0..24).map(|_| Tensor::zeros(&near, [N])?.receive(&far));
        let moved: Vec<Tensor> = many.collect::<Result<_>>()?;
        Ok(moved[23].to_f32s()? == [0.0; N])
    };
    work().expect("tensors move")
}

/// Operations after which a device that is as lazy as can be breaks.
const BREAKS: usize = 100;

/// The programs that show what a missing wait does.
const RUNS: [(&str, &str); 6] = [
    ("moves", "peers=1"),
    ("moves", "peers=0"),
    ("late", "order=lazy break=4:719"),
    ("traced", "peers=1"),
    ("arena-copies", "peers=1"),
    ("reserved", "scattered=1"),
];

/// Seeds to try before a wait counts as one that nothing misses.
const SEEDS: u64 = 60;

/// The calls that wait, through which all places go.
const THROUGH: [&str; 2] = ["src/cuda/stream.rs", "src/cuda/compute.rs"];

/// Addresses in the program of each place, by file and line.
type Places = BTreeMap<String, BTreeSet<u64>>;

/// The frames at each of these addresses, from the innermost on, each a file and a line.
fn frames(addresses: &BTreeSet<u64>) -> Option<BTreeMap<u64, Vec<String>>> {
    let mut command = Command::new("addr2line");
    command
        .args(["-a", "-i", "-e"])
        .arg(env::current_exe().ok()?);
    command.args(addresses.iter().map(|address| format!("{address:x}")));
    let output = command.output().ok()?;
    let mut frames: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut current = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.strip_prefix("0x") {
            Some(address) => current = u64::from_str_radix(address, 16).ok()?,
            None => frames.entry(current).or_default().push(line.to_owned()),
        }
    }
    Some(frames)
}

/// The place of each wait: the innermost frame of the backend that is not a mere call.
fn places(log: &str) -> Option<Places> {
    let chains = log.lines().map(|line| {
        let addresses = line.split(' ').skip(1);
        let addresses = addresses.filter_map(|word| u64::from_str_radix(word, 16).ok());
        addresses.collect::<Vec<u64>>()
    });
    let chains: Vec<_> = chains.collect();
    let frames = frames(&chains.iter().flatten().copied().collect())?;
    let mut places = Places::new();
    for chain in &chains {
        let (place, address) = chain.iter().find_map(|address| {
            let mut lines = frames.get(address)?.iter();
            let line = lines.find(|line| {
                line.contains("src/cuda/") && !THROUGH.iter().any(|one| line.contains(one))
            })?;
            let (_, place) = line.split_once("src/cuda/")?;
            let place = place.split(' ').next()?;
            Some((place.to_owned(), *address))
        })?;
        places.entry(place).or_default().insert(address);
    }
    Some(places)
}

/// Where the source waits for an event or a stream, by file and line.
fn in_the_source() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
    let mut places = BTreeSet::new();
    for file in fs::read_dir(folder).expect("the backend's source") {
        let path = file.expect("a file").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if !name.ends_with(".rs") || THROUGH.iter().any(|one| one.ends_with(&name)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        for (number, line) in text.lines().enumerate() {
            let waits = [".wait(&", ".synchronize()", ".is_done()"];
            if waits.iter().any(|wait| line.contains(wait)) {
                places.insert(format!("{name}:{}", number + 1));
            }
        }
    }
    places
}

#[test]
fn every_wait_is_needed_and_missed() {
    let Some(host) = Emulated::get() else { return };
    let log = env::temp_dir().join(format!("gpipe-waits-{}", std::process::id()));
    for (program, settings) in RUNS {
        for order in ["random", "lazy", "eager", "starved"] {
            let settings = format!("order={order} {settings} waits={}", log.display());
            let outcome = run(host, program, "", &settings);
            assert!(outcome.is_right(), "{settings}: {outcome:?}");
        }
    }
    let text = fs::read_to_string(&log).expect("waits");
    let _ = fs::remove_file(&log);
    let Some(places) = places(&text) else {
        eprintln!("skipped: addr2line does not say where the waits are");
        return;
    };
    for place in in_the_source() {
        assert!(
            places.contains_key(&place),
            "{place} never waits in these programs: {places:?}"
        );
    }
    let mut missed = Vec::new();
    let mut tried = 0;
    for (place, addresses) in &places {
        let addresses: Vec<String> = addresses.iter().map(|a| format!("{a:x}")).collect();
        let skip = format!("skip={}", addresses.join(","));
        let tries =
            (0..SEEDS).flat_map(|seed| RUNS.map(|(program, settings)| (seed, program, settings)));
        let caught = tries.into_iter().find_map(|(seed, program, settings)| {
            tried += 1;
            let settings = format!("seed={seed} {settings}");
            let outcome = run(host, program, "", &format!("{settings} {skip}"));
            let first = outcome.faults.first().cloned();
            let how = first.unwrap_or_else(|| "wrong results".into());
            (!outcome.is_right()).then_some(format!("{program} {settings}: {how}"))
        });
        match caught {
            Some(how) => println!("without {place}: {how}"),
            None => missed.push(place),
        }
    }
    let caught = places.len() - missed.len();
    println!(
        "{} places that wait, {caught} caught, {tried} runs",
        places.len()
    );
    assert!(
        missed.is_empty(),
        "nothing misses these waits in {SEEDS} seeds: {missed:#?}"
    );
}

#[test]
fn what_is_sent_does_not_wait_for_later_work() {
    let Some(host) = Emulated::get() else { return };
    for peers in [0, 1] {
        let settings = format!("order=lazy peers={peers} break={BREAKS}:719");
        let outcome = run(host, "ahead", "", &settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
    }
}

#[test]
fn moving_through_the_host_does_not_make_it_wait() {
    let Some(host) = Emulated::get() else { return };
    let calls = env::temp_dir().join(format!("gpipe-staged-{}", std::process::id()));
    let settings = format!("order=lazy peers=0 calls={}", calls.display());
    let outcome = run(host, "staged", "", &settings);
    assert!(outcome.is_right(), "{outcome:?}");
    let text = fs::read_to_string(&calls).expect("the calls");
    let _ = fs::remove_file(&calls);
    let count = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(call, _)| *call == name);
        found.map_or(0, |(_, count)| count.parse().expect("a number"))
    };
    // For the read, and for the pieces that are freed at the end; each of 24 took one of 8.
    assert!(count("cuEventSynchronize") <= 9, "{text}");
    assert_eq!(count("cuMemHostAlloc"), 9, "{text}");
}

#[test]
fn tensors_move_right_in_every_order() {
    let Some(host) = Emulated::get() else { return };
    for seed in 0..20 {
        for peers in [0, 1] {
            let settings = format!("seed={seed} peers={peers}");
            let outcome = run(host, "moves", "", &settings);
            assert!(outcome.is_right(), "{settings}: {outcome:?}");
        }
    }
}
