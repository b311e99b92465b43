//! A small program whose work passes between two devices and the host: right in every order, and
//! wrong in some without any one of its waits.

use cudarc::driver::sys;

use crate::driver::{
    Gpu, N, Pinned, alloc, bytes, call, copy_in, copy_out, free, ok, record, reseed, synchronize,
    wait,
};
use crate::{Host, run};

const WAITS: [&str; 6] = [
    "the host's for the copy to the device, before it writes again",
    "the copy's for the numbers",
    "the copy's for the memory on the other device",
    "the other device's for the copy",
    "the first device's for the copy, before it writes again",
    "the host's for the result",
];

/// Three rounds of: the host writes numbers, one device doubles them, another triples them, the host
/// reads them. The argument is the number of a wait to leave out, and how many seeds to go through.
pub fn relay(argument: &str) -> bool {
    let (without, seeds) = argument.split_once(' ').expect("two arguments");
    let without: Option<usize> = without.parse().ok();
    let seeds: u64 = seeds.parse().expect("a number");
    let (near, far) = (Gpu::open(0).expect("a device"), Gpu::open(1).expect("two"));
    let (compute, leave, arrive) = (near.stream(), near.stream(), far.stream());
    let mut source = Pinned::new();
    let result = Pinned::new();
    let mut round = |value: f32| -> Result<bool, sys::CUresult> {
        let waits = |which: usize| without != Some(which);
        source.fill(value);
        let x = alloc(compute, bytes(N))?;
        ok(copy_in(compute, x, source.0, N))?;
        let read = record(&near, compute);
        ok(near.scale(compute, x, x, N as u64, 2.0))?;
        let y = alloc(arrive, bytes(N))?;
        if waits(1) {
            ok(wait(leave, record(&near, compute)))?;
        }
        if waits(2) {
            ok(wait(leave, record(&far, arrive)))?;
        }
        let copied = call!(
            sys::cuMemcpyPeerAsync,
            y,
            far.context,
            x,
            near.context,
            bytes(N),
            leave
        );
        ok(copied)?;
        let sent = record(&near, leave);
        if waits(3) {
            ok(wait(arrive, sent))?;
        }
        if waits(4) {
            ok(wait(compute, sent))?;
        }
        ok(near.scale(compute, x, x, N as u64, 0.0))?;
        ok(free(compute, x))?;
        ok(far.scale(arrive, y, y, N as u64, 3.0))?;
        ok(copy_out(arrive, result.0, y, N))?;
        ok(free(arrive, y))?;
        if waits(0) {
            ok(call!(sys::cuEventSynchronize, read))?;
        }
        source.fill(0.0);
        if waits(5) {
            ok(synchronize(arrive))?;
        }
        Ok(result.are_all(value * 6.0))
    };
    (0..seeds).all(|seed| {
        if seeds > 1 {
            reseed(seed);
        }
        let rounds = (1..4).all(|i| round(i as f32 + 0.5 * seed as f32) == Ok(true));
        rounds && synchronize(compute) == sys::CUresult::CUDA_SUCCESS
    })
}

#[test]
fn a_right_program_is_right_in_every_order() {
    let Some(host) = Host::get() else { return };
    for settings in ["", "peers=0", "delay=50", "threads=1"] {
        let outcome = run(host, "relay", "none 200", settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
    }
    for order in ["random", "ranked", "starved", "lazy", "eager"] {
        let outcome = run(host, "relay", "none 1", &format!("order={order} seed=7"));
        assert!(outcome.is_right(), "{order}: {outcome:?}");
    }
}

#[test]
fn every_missing_wait_is_missed_in_some_order() {
    let Some(host) = Host::get() else { return };
    for (number, name) in WAITS.iter().enumerate() {
        let caught = (0..40).find_map(|seed| {
            let settings = format!("seed={seed}");
            let outcome = run(host, "relay", &format!("{number} 1"), &settings);
            (!outcome.is_right()).then_some((seed, outcome))
        });
        let (seed, outcome) = caught.unwrap_or_else(|| panic!("nothing misses {name}"));
        let how = outcome
            .faults
            .first()
            .map_or("wrong numbers", String::as_str);
        println!("without {name}: seed {seed}: {how}");
    }
    println!("exam G1 teeth {0}/{0}", WAITS.len());
}
