//! Plans within the memory of their workers, and what is said where none fits.

use std::path::Path;

use gpipe_remat::planner::{Described, Worker};
use gpipe_remat::{Policy, RematPlan, StageMemory, predict_memory};

use crate::config::{Overrides, Setting};
use crate::cost_import::CostFile;
use crate::profile::ProfileOptions;
use crate::recommend::{PlanningOptions, Recommender};
use crate::setup::Setup;

/// What does not fit is said of the workers that were planned for: more of them may need less each.
#[test]
fn a_plan_that_does_not_fit_is_of_a_number_of_workers() {
    let settings = [
        Setting::new("model.name", "gpt-nano"),
        Setting::new("pipeline.memory", "1KiB"),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let said = |workers: &str, hosts: Option<usize>| {
        let mut options = PlanningOptions {
            hosts,
            ..PlanningOptions::default()
        };
        let (dtype, memory) = (*config.run.dtype, config.pipeline.memory.bytes());
        options.list_workers(workers, dtype, memory).unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        of.recommend().unwrap_err().to_string()
    };
    for (workers, hosts, of, mend) in [
        ("2*1T", None, "on 2 workers", "use `pipeline.memory = "),
        (
            "2*1T",
            Some(2),
            "on 4 workers of 2 hosts",
            "use `pipeline.memory = ",
        ),
        ("2*1T:2KiB", None, "on 2 workers", "list --workers with "),
    ] {
        let said = said(workers, hosts);
        assert!(
            said.starts_with(&format!("{of} the model does not fit by ")),
            "{said}"
        );
        assert!(said.contains(&format!(" is the limit: {mend}")), "{said}");
    }
}

/// The memory that an error names as a mend counts, whatever the cost file says.
#[test]
fn a_memory_that_is_given_counts_before_that_of_a_cost_file() {
    let config = Overrides::new()
        .layer([Setting::new("pipeline.memory", "1GiB")])
        .unwrap();
    let worker = Worker {
        speed: 1.0,
        memory: Some(1),
    };
    let file = CostFile {
        workers: Some(vec![worker; 2]),
        ..CostFile::from_layers(vec![Described::default(); 2])
    };
    let options = PlanningOptions::default();
    let of = Recommender::of_costs(file, &config.resolve().unwrap(), &options).unwrap();
    assert_eq!(of.memory(), Some(1 << 30));
}

/// A copy of the model on every worker is advised where all have the memory.
#[test]
fn copies_of_a_model_fit_every_worker() {
    let config = Overrides::new().resolve().unwrap();
    let copies = |memory: [u64; 2]| {
        let layer = Described {
            forward: 1.0,
            parameters: 1 << 20,
            ..Described::default()
        };
        let worker = |memory| Worker {
            speed: 1.0,
            memory: Some(memory),
        };
        let file = CostFile {
            workers: Some(memory.map(worker).to_vec()),
            ..CostFile::from_layers(vec![layer, Described::default()])
        };
        let of = Recommender::of_costs(file, &config, &PlanningOptions::default());
        of.unwrap().recommend().unwrap().replicas.is_some()
    };
    assert!(copies([1 << 30, 1 << 30]));
    assert!(copies([1 << 30, 1 << 29]));
    assert!(!copies([1 << 30, 1 << 10]));
}

/// The budget of a plan is that of its own workers, whatever others are listed.
#[test]
fn the_budget_of_a_plan_is_one_under_which_it_can_be_set_up() {
    let layer = Described {
        forward: 1.0,
        input_grad: 1.0,
        weight_grad: 1.0,
        parameters: 40_000,
        saved: 800_000,
        output: 40_000,
        ..Described::default()
    };
    let worker = |memory| Worker {
        speed: 1.0,
        memory: Some(memory),
    };
    for (small, large) in [(50_000, 700_000), (500_000, 700_000)] {
        let file = CostFile {
            workers: Some([vec![worker(small); 2], vec![worker(large); 2]].concat()),
            batch: Some(8),
            ..CostFile::from_layers(vec![layer.clone(); 8])
        };
        let config = Overrides::new().resolve().unwrap();
        let options = PlanningOptions::default();
        let of = Recommender::of_costs(file, &config, &options).unwrap();
        let plan = of.recommend().unwrap().plan;
        let Policy::Budget(budget) = of.remat(&plan) else {
            panic!("everything is kept");
        };
        let samples = gpipe_remat::micro_batches(8, plan.micro_batches).unwrap();
        let costs = (of.price)(&samples).unwrap().costs;
        let policy = Policy::Budget(budget);
        let remat_plan =
            RematPlan::new(policy, &of.weights, &costs, &plan.cut, &plan.schedule).unwrap();
        let memory = predict_memory(&of.weights, &costs, &plan.cut, &plan.schedule, &remat_plan);
        let chunks = (plan.cut.len() / plan.workers.len()) as u64;
        let fits = memory
            .iter()
            .zip(plan.schedule.device_of())
            .all(|(memory, &device)| {
                memory.peak() * chunks <= of.workers()[plan.workers[device]].memory.unwrap()
            });
        assert_eq!(of.is_within_memory(&plan), fits, "{small}");
        if small == 50_000 {
            assert_eq!((budget.0 * chunks, fits), (large, true));
        }
    }
}

/// A run moves recomputation into idle time, where it may hold more, under any policy that recomputes.
#[test]
fn a_plan_needs_the_bytes_of_its_run() {
    for (remat, micro_batches) in [("stage", 16), ("stage", 4), ("every:2", 16)] {
        let settings = [
            Setting::new("model.name", "gpt-nano"),
            Setting::new("pipeline.devices", "cpu*2"),
            Setting::new("pipeline.schedule", "interleaved:2"),
            Setting::new("pipeline.micro_batches", micro_batches),
            Setting::new("pipeline.partition", "3,2,2,4"),
            Setting::new("pipeline.threads", 2),
            Setting::new("pipeline.remat", remat),
        ];
        let overrides = Overrides::new().layer(settings).unwrap();
        let options = PlanningOptions {
            fixed: overrides.fixed(),
            ..PlanningOptions::default()
        };
        let config = overrides.resolve().unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        let answer = of.recommend().unwrap();
        let ranked = of.compare(&config).unwrap().plans.swap_remove(0).plan;
        for plan in [&answer.plan, &ranked] {
            let run = Setup::new(&of.apply(plan, &config).unwrap()).unwrap();
            let peaks: Vec<u64> = run.memory.iter().map(StageMemory::peak).collect();
            assert_eq!(plan.peaks, peaks, "{remat}");
            let times = of.speed().unwrap().times(&run.costs, 2);
            assert_eq!(plan.seconds, run.step_seconds(&times).unwrap(), "{remat}");
        }
        assert!(answer.bound <= answer.fastest && answer.fastest <= answer.plan.seconds);
    }
}

/// Where the fastest plan does not fit this machine with copies of checkpoints beside it, one that recomputes, or has fewer
/// workers, may.
#[test]
fn a_plan_fits_the_memory_of_the_machine_with_copies_of_checkpoints() {
    let settings = [
        Setting::new("model.name", "gpt-nano"),
        Setting::new("pipeline.threads", 2),
        Setting::new("run.keep", 3),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let options = PlanningOptions::default();
    let profile = ProfileOptions::new(Path::new("none"));
    let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
    let answer = of.recommend().unwrap();
    let needed = |of: &Recommender, plan: &_| {
        let setup = Setup::new(&of.apply(plan, &config).unwrap()).unwrap();
        let stages: u64 = setup.memory.iter().map(StageMemory::peak).sum();
        stages + setup.bytes_beside_stages(&config)
    };
    let most = needed(&of, &answer.plan);
    let policy = Policy::Budget(gpipe_remat::Bytes(u64::MAX));
    let within = |memory: u64| of.within(memory, answer.clone(), policy, &config).unwrap();
    let same = within(most).plan;
    assert_eq!(
        (&same.cut, same.seconds),
        (&answer.plan.cut, answer.plan.seconds)
    );
    assert_eq!(of.memory_note(&same), "");
    let limited = within(most - (1 << 20));
    let note = of.memory_note(&limited.plan);
    assert!(
        note.ends_with(" a worker that this machine has left"),
        "{note}"
    );
    assert!(needed(&of, &limited.plan) <= most - (1 << 20));
    assert!(limited.bound <= limited.plan.seconds && limited.gap() >= 0.0);
    // The parameters alone are more: the fastest plan, which is refused.
    let full = within(1 << 20).plan;
    assert_eq!(full.seconds, answer.plan.seconds);
}

/// A model that no two workers hold has a plan on more: the mend names as many as have one.
#[test]
fn more_workers_are_a_mend_where_memory_is_short() {
    let recommend = |key: &str, value: &str| {
        let settings = [
            Setting::new("model.name", "gpt-nano"),
            Setting::new("pipeline.memory", "6MiB"),
            Setting::new("pipeline.threads", 2),
            Setting::text("--set", key, value),
        ];
        let overrides = Overrides::new().layer(settings).unwrap();
        let options = PlanningOptions {
            fixed: overrides.fixed(),
            ..PlanningOptions::default()
        };
        let profile = ProfileOptions::new(Path::new("none"));
        let config = overrides.resolve().unwrap();
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        of.recommend().map_err(|error| error.to_string())
    };
    for (key, short) in [("pipeline.devices", "cpu"), ("pipeline.stages", "2")] {
        let said = recommend(key, short).unwrap_err();
        let (_, mend) = said.split_once(&format!(" or more, or `{key} = ")).unwrap();
        assert!(recommend(key, mend.trim_end_matches('`')).is_ok(), "{said}");
    }
}
