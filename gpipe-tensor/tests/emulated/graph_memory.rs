//! Graphs and arenas where the memory of a device is short.

use gpipe_tensor::{DType, Device, DeviceId, Error, GraphCounts, Host, Result, Tensor, ops};

use crate::graphs::steps;
use crate::host::Host as Emulated;
use crate::run;

const MIB: usize = 1 << 20;

/// A device of these programs has as many MiB.
const DEVICE: usize = 64;

fn device(graphs: bool) -> Device {
    let host = Host::new(1).expect("one thread");
    let host = match graphs {
        true => host.with_cuda_graphs(),
        false => host,
    };
    host.device(DeviceId::Cuda(0)).expect("a device")
}

fn zeros(device: &Device, mib: usize) -> Result<Tensor> {
    Tensor::zeros(device, [mib, MIB / 4])
}

/// A step of one action with as many tensors of 1 MiB at a time.
fn step(device: &Device, tensors: usize) -> Result<()> {
    device.begin_step()?;
    device.begin_action();
    let held: Result<Vec<Tensor>> = (0..tensors).map(|_| zeros(device, 1)).collect();
    drop(held?);
    device.end_action()
}

fn counts(device: &Device) -> GraphCounts {
    device.graph_counts().expect("graphs")
}

/// Whether a handle that runs out of memory gives its arena up, which nobody uses, and goes on.
pub fn short(_: &str) -> bool {
    let host = Host::new(1).expect("one thread").with_cuda_graphs();
    let (_, counts) = steps(&host, &[0], DType::F32).expect("no fault");
    assert!(counts[0].arena_bytes > 0);
    let device = host.device(DeviceId::Cuda(0)).expect("a device");
    let part = |rows: usize| Tensor::zeros(&device, [rows, 1 << 10]);
    device.begin_step().expect("no fault");
    // One that fits only where the arena lies: half of a device of 64 MiB.
    for _ in 0..2 {
        device.begin_action();
        let half = part(8 << 10).expect("memory");
        ops::scale(&half.rows(0..1).expect("a row"), 2.0).expect("a kernel");
        drop(half);
        device.end_action().expect("no fault");
        device.begin_step().expect("no fault");
    }
    let before = device.graph_counts().expect("graphs").arena_bytes;
    let whole = part(10 << 10).expect("the arena makes room");
    let after = device.graph_counts().expect("graphs").arena_bytes;
    assert!(before >= 32 << 20 && after == 0, "{before} {after}");
    drop(whole);
    device.finish().is_ok()
}

/// Whether the pool takes no more from the device for some steps than what they hold at a time.
pub fn reserved(launches: &str) -> bool {
    let device = device(launches != "single");
    for tensors in [16, 16, 24, 24, 24] {
        step(&device, tensors).expect("memory");
    }
    let taken = device.most_reserved_bytes().expect("it says").unwrap_or(0);
    println!("reserved {taken}");
    (24 << 20..=26 << 20).contains(&taken) && device.finish().is_ok()
}

/// Whether steps go on by single launches where there is no memory for the arena, and by graphs when there is.
pub fn no_room(_: &str) -> bool {
    let device = device(true);
    step(&device, 16).expect("memory");
    let kept = zeros(&device, DEVICE - 8).expect("memory");
    step(&device, 6).expect("single launches have memory");
    let without = counts(&device);
    assert_eq!((without.arena_bytes, without.short), (0, 6), "{without:?}");
    drop(kept);
    for _ in 0..4 {
        step(&device, 16).expect("memory");
    }
    let with = counts(&device);
    assert!(with.arena_bytes > 0 && with.launches > 0, "{with:?}");
    device.finish().is_ok()
}

/// Whether memory that runs out while an arena is in use ends the action, and is there in the next step.
pub fn full(_: &str) -> bool {
    let device = device(true);
    step(&device, 16).expect("memory");
    step(&device, 16).expect("memory");
    let attempt = || -> Result<()> {
        device.begin_step()?;
        device.begin_action();
        let small = zeros(&device, 1)?;
        let large = zeros(&device, DEVICE - 14)?;
        drop((small, large));
        device.end_action()
    };
    assert!(!device.is_short_by_graphs() && counts(&device).arena_bytes > 0);
    let first = attempt();
    assert!(matches!(first, Err(Error::OutOfMemory { .. })), "{first:?}");
    assert!(device.is_short_by_graphs());
    attempt().expect("there is no arena in this step");
    assert!(!device.is_short_by_graphs());
    assert_eq!(counts(&device).arena_bytes, 0);
    // What is too large for any device is not for want of an arena.
    let too_large = zeros(&device, DEVICE + 1);
    assert!(matches!(too_large, Err(Error::OutOfMemory { .. })));
    !device.is_short_by_graphs() && device.finish().is_ok()
}

/// Whether the arenas of all handles to a device make room for one of them.
pub fn neighbour(_: &str) -> bool {
    let [near, beside] = [device(true), device(true)];
    for device in [&near, &beside, &near, &beside] {
        step(device, 16).expect("memory");
    }
    assert!(counts(&near).arena_bytes > 0 && counts(&beside).arena_bytes > 0);
    let large = zeros(&near, DEVICE - 8).expect("arenas make room");
    assert_eq!(counts(&near).arena_bytes, 0);
    assert_eq!(counts(&beside).arena_bytes, 0);
    drop(large);
    // One that is in use is no room now, but in the next step.
    for device in [
        &near, &beside, &near, &beside, &near, &beside, &near, &beside,
    ] {
        step(device, 16).expect("memory");
    }
    beside.begin_step().expect("no fault");
    beside.begin_action();
    let held = zeros(&beside, 1).expect("memory");
    assert!(zeros(&near, DEVICE - 8).is_err());
    assert!(near.is_short_by_graphs() && beside.is_short_by_graphs());
    drop(held);
    beside.end_action().expect("no fault");
    for device in [&near, &beside] {
        device.begin_step().expect("no fault");
        assert_eq!(counts(device).arena_bytes, 0);
    }
    near.finish().is_ok() && beside.finish().is_ok()
}

/// Whether a graph for which the driver has no memory is a reason for a step without graphs.
pub fn no_launch(_: &str) -> bool {
    let device = device(true);
    let mut failed = 0;
    for _ in 0..8 {
        if step(&device, 6).is_err() {
            failed += 1;
            assert!(device.is_short_by_graphs());
        }
    }
    let counts = counts(&device);
    failed == 1 && counts.short >= 6 && counts.launches > 1
}

#[test]
fn an_arena_makes_room_where_memory_is_short() {
    let Some(host) = Emulated::get() else { return };
    for order in ["lazy", "eager", "random"] {
        let settings = format!("order={order} memory={}", 66 << 20);
        let outcome = run(host, "short-arena", "", &settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
    }
}

/// The piece of an arena does not come beside what the pool keeps of the steps before.
#[test]
fn a_pool_takes_no_more_for_graphs() {
    let Some(host) = Emulated::get() else { return };
    for launches in ["single", "graphs"] {
        let outcome = run(host, "reserved", launches, "seed=1 scattered=1");
        assert!(outcome.is_right(), "{launches}: {outcome:?}");
    }
}

#[test]
fn steps_go_on_where_memory_is_short() {
    let Some(host) = Emulated::get() else { return };
    for program in ["no-room", "full", "neighbour"] {
        for order in ["lazy", "eager", "random"] {
            for scattered in [0, 1] {
                let memory = DEVICE * MIB;
                let settings = format!("order={order} memory={memory} scattered={scattered}");
                let outcome = run(host, program, "", &settings);
                assert!(outcome.is_right(), "{program} {settings}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_graph_without_memory_is_done_without() {
    let Some(host) = Emulated::get() else { return };
    for moment in [1, 3] {
        let settings = format!("seed={moment} fail=cuGraphLaunch:{moment}:2");
        let outcome = run(host, "no-launch", "", &settings);
        // With the launch goes what the emulated host would have been told of ranges.
        assert_eq!(outcome.code, Some(0), "{settings}: {outcome:?}");
    }
}
