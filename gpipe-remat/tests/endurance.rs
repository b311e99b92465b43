//! Ten thousand steps later, nothing has grown: threads, open files, memory.
#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::{Model, Order, Run};
use gpipe_layers::clip_factor;
use gpipe_remat::{Policy, apply_update, gradient_norm, merge_ties, share_ties};

/// What the system holds for this process.
#[derive(Clone, Copy, Debug)]
struct Held {
    threads: usize,
    files: usize,
    kibibytes: i64,
}

fn held() -> Held {
    let count = |path| fs::read_dir(path).expect("Linux").count();
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|text| text.split_whitespace().next()?.parse().ok());
    Held {
        threads: count("/proc/self/task"),
        files: count("/proc/self/fd"),
        kibibytes: kibibytes.expect("a resident size"),
    }
}

/// Whether `later` is what `earlier` was, after `steps` steps: at most a kibibyte a step more.
fn is_steady(earlier: Held, later: Held, steps: i64) -> bool {
    later.threads == earlier.threads
        && later.files == earlier.files
        && later.kibibytes - earlier.kibibytes < steps.max(1024)
}

// One test, so that no other one starts threads meanwhile.
#[test]
fn steps_leave_nothing_behind() {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.1,
    };
    let run = Run {
        stages: 3,
        order: Order::OneFOneB,
        policy: Policy::Stage,
        threads: 2,
        ..Run::new(model, 4, 2)
    };
    let steps = if std::env::var_os("GPIPE_EXAM").is_some() {
        10_000
    } else {
        200
    };
    let mut assembled = run.assemble();
    let items = run.items(0);
    let mut train = |steps: i64| {
        for step in 1..=steps {
            let pipeline = &mut assembled.pipeline;
            // Every tenth step fails at first, and leaves nothing either.
            if step % 10 == 0 {
                let mut short = items.clone();
                short[1].target.values = short[0].input[0].rows(0..1).expect("a row");
                pipeline.step(short).expect_err("targets are missing");
            }
            pipeline.step(items.clone()).expect("a step");
            merge_ties(pipeline).expect("ties");
            let norm = gradient_norm(pipeline).expect("a norm");
            let factor = clip_factor(norm, 0.5);
            apply_update(pipeline, &run.optimizer, 1e-4, 0, factor).expect("an update");
            share_ties(pipeline).expect("ties");
        }
    };
    // Pools and stacks reach their size first.
    train(steps / 10);
    let earlier = held();
    train(steps);
    let later = held();
    assert!(
        is_steady(earlier, later, steps),
        "{earlier:?}, then {later:?}"
    );
    println!("exam F9 {steps}/{steps}");

    // The same look sees a thread, a file and memory that are not given back.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert!(!is_steady(later, held(), steps));
    drop(stop);
    thread
        .join()
        .expect("no panic")
        .expect_err("nothing was sent");
    let file = fs::File::open("/proc/self/status").expect("Linux");
    assert!(!is_steady(later, held(), steps));
    drop(file);
    // Twice what may be lost.
    let lost = vec![1u8; 2048 * usize::try_from(steps.max(1024)).expect("positive")];
    assert!(!is_steady(later, held(), steps), "{}", lost.len());
    println!("exam F9 teeth 3/3");
}
