//! Recommendations without a measurement.

mod memory;

use std::path::Path;

use gpipe_remat::planner::{Described, Placement, Worker};
use gpipe_remat::{Rates, StageMemory};
use gpipe_tensor::{DType, KnownGpu};

use super::{PlanningOptions, Recommender};
use crate::config::{FixedKeys, Overrides, Setting};
use crate::cost_import::CostFile;
use crate::profile::ProfileOptions;
use crate::setup::Setup;

/// Micro-batches of a perceptron with few rows: what costs time is to read its parameters, once for each of them.
///
/// Two workers wait less for each other with 16 micro-batches than with fewer, and by FLOPs alone that is the plan. With the
/// bytes, a step of 16 takes more than twice as long as the one that is recommended.
#[test]
fn micro_batches_that_cost_more_than_they_save_are_not_recommended() {
    let seconds = |rates: Rates, micro_batches: Option<i64>| {
        let mut settings = vec![
            Setting::new("model.name", "mlp"),
            Setting::new("model.hidden", "1024,1024,1024"),
            Setting::new("data.batch_size", 16),
        ];
        settings.extend(micro_batches.map(|number| Setting::new("pipeline.micro_batches", number)));
        let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
        let worker = Worker {
            speed: rates.flops,
            memory: None,
        };
        let options = PlanningOptions {
            workers: Some(vec![worker; 2]),
            rates: Some(rates),
            fixed: FixedKeys {
                micro_batches: micro_batches.is_some(),
                ..FixedKeys::default()
            },
            ..PlanningOptions::default()
        };
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        let plan = of.recommend().unwrap().plan;
        (plan.micro_batches, plan.seconds)
    };
    let rates = Rates {
        flops: 50e9,
        bytes: 5e9,
        action: 15e-6,
    };
    let (number, recommended) = seconds(rates, None);
    let (_, of_sixteen) = seconds(rates, Some(16));
    assert!(number < 16, "{number}");
    assert!(
        of_sixteen > 2.0 * recommended,
        "{of_sixteen}, {recommended}"
    );
    let (number, _) = seconds(Rates::of_flops(50e9), None);
    assert_eq!(number, 16);
}

/// On hosts a plan of costs is one of replicas too.
#[test]
fn a_plan_of_costs_on_hosts_names_its_replicas() {
    let config = Overrides::new().resolve().unwrap();
    let layer = Described {
        forward: 1.0,
        ..Described::default()
    };
    let mut options = PlanningOptions {
        hosts: Some(1),
        ..PlanningOptions::default()
    };
    options
        .list_workers("4*1", *config.run.dtype, None)
        .unwrap();
    let file = CostFile::from_layers(vec![layer; 2]);
    let of = Recommender::of_costs(file, &config, &options).unwrap();
    let plan = of.recommend().unwrap().plan;
    assert_eq!(plan.replication.replicas, 4);
    let settings = of.settings(&plan, &config).unwrap();
    assert!(settings.contains(&("pipeline.replicas", "4".to_owned())));
}

/// A recommender of a small model in two replicas on these hosts, each with two workers.
fn of_two_replicas(hosts: Option<usize>) -> crate::Result<Recommender> {
    let settings = [
        Setting::new("model.name", "gpt-nano"),
        Setting::new("pipeline.replicas", 2),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let mut options = PlanningOptions {
        hosts,
        ..PlanningOptions::default()
    };
    options.fixed.replicas = true;
    options
        .list_workers("2*1T", *config.run.dtype, None)
        .unwrap();
    let profile = ProfileOptions::new(Path::new("none"));
    Recommender::of_model(&config, &options, profile, &mut |_| {})
}

/// Replicas are processes: without hosts or a launcher there is no command that runs them.
#[test]
fn replicas_without_hosts_are_refused() {
    let recommend = |hosts: Option<usize>| {
        let of = of_two_replicas(hosts)?;
        Ok::<_, crate::Error>(of.launcher(&of.recommend()?.plan))
    };
    let said = recommend(None).unwrap_err().to_string();
    assert!(said.contains("and --hosts 1 to gpipe plan"), "{said}");
    assert_eq!(recommend(Some(1)).unwrap(), "mpirun -np 2 ");
}

/// A plan whose replicas lie stage by stage is as fast as predicted only where its ranks lie so too.
#[test]
fn the_launcher_places_ranks_as_the_plan_does() {
    let of = of_two_replicas(Some(3)).unwrap();
    let mut plan = of.recommend().unwrap().plan;
    let mut launcher = |placement, workers: usize| {
        plan.replication.placement = placement;
        plan.workers = (0..workers).collect();
        of.launcher(&plan)
    };
    assert_eq!(launcher(Placement::Pipelines, 3), "mpirun -np 6 ");
    assert_eq!(
        launcher(Placement::Stages, 3),
        "mpirun --map-by node -np 6 "
    );
    assert_eq!(
        launcher(Placement::Stages, 2),
        "mpirun --map-by rankfile:file=RANKS -np 4 "
    );
}

/// Workers that are known GPUs store bf16 as GPUs do, whatever the configured devices are; others are processors, which
/// round factors alone.
#[test]
fn workers_that_are_gpus_store_bf16() {
    let dtype = |workers: &str| {
        let settings = [
            Setting::new("model.name", "gpt-nano"),
            Setting::new("run.dtype", "bf16"),
        ];
        let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
        let mut options = PlanningOptions::default();
        let precision = *config.run.dtype;
        options.list_workers(workers, precision, None).unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        let costs = of.costs(&config).unwrap();
        costs.of(0)[1].outputs[0].dtype
    };
    assert_eq!(dtype("2*h200"), DType::BF16);
    assert_eq!(dtype("2*h200,300T"), DType::BF16);
    assert_eq!(dtype("2*300T"), DType::F32);
}

/// `train` would refuse the command of a plan for this machine, not that of one for others.
#[test]
fn bf16_is_not_planned_on_a_processor_that_lacks_it() {
    let settings = [
        Setting::new("run.dtype", "bf16"),
        Setting::new("run.instruction_set", "avx2"),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let profile = || ProfileOptions::new(Path::new("none"));
    let here = PlanningOptions::default();
    let refused = Recommender::of_model(&config, &here, profile(), &mut |_| {}).map(drop);
    assert!(refused.unwrap_err().to_string().contains("use f32"));
    let mut elsewhere = PlanningOptions::default();
    let precision = *config.run.dtype;
    elsewhere.list_workers("2*300T", precision, None).unwrap();
    Recommender::of_model(&config, &elsewhere, profile(), &mut |_| {}).unwrap();
}

/// The command of a plan for GPUs runs on GPUs, each worker on its own; that for other workers where it is configured.
#[test]
fn known_gpus_are_devices_of_their_own() {
    let on = |devices: &str, workers: Option<&str>, hosts: Option<usize>| {
        let config = Overrides::new()
            .layer([
                Setting::new("pipeline.devices", devices),
                Setting::new("pipeline.stages", 2),
            ])
            .and_then(Overrides::resolve)
            .unwrap();
        let mut options = PlanningOptions {
            hosts,
            ..PlanningOptions::default()
        };
        options.fixed.stages = true;
        let precision = *config.run.dtype;
        if let Some(workers) = workers {
            options.list_workers(workers, precision, None).unwrap();
        }
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {}).unwrap();
        let keys = of.settings(&of.recommend().unwrap().plan, &config).unwrap();
        let h100 = KnownGpu::of_name("h100").unwrap().memory;
        assert_eq!(of.memory() == Some(h100), keys[0].1.starts_with("cuda"));
        keys[0].1.clone()
    };
    let devices = |workers, hosts| on("cpu", Some(workers), hosts);
    assert_eq!(devices("2*h100", None), "cuda:0*1,cuda:1*1");
    assert_eq!(devices("2*h100", Some(2)), "cuda:0*1");
    assert_eq!(devices("2*100T", None), "cpu*2");
    assert_eq!(on("cuda:h100*2", None, None), "cuda:0*1,cuda:1*1");
    assert_eq!(on("cuda:h100", None, None), "cuda:0*1");
    // Listed workers count before the one that a bare name stands for.
    assert_eq!(on("cuda:h100", Some("2*h100"), None), "cuda:0*1,cuda:1*1");
}

/// Where a network does not fit the size of its images, the mend is a size, as without a recommendation.
#[test]
fn a_size_of_images_that_does_not_fit_has_a_mend() {
    let settings = [
        Setting::new("model.name", "unet:1,2"),
        Setting::new("data.image_size", 33),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let profile = ProfileOptions::new(Path::new("none"));
    let options = PlanningOptions::default();
    let refused = Recommender::of_model(&config, &options, profile, &mut |_| {});
    let said = refused.err().unwrap().to_string();
    assert!(said.ends_with("`data.image_size = 64` fits"), "{said}");
}

/// The speed of this machine's processor says nothing of a GPU that is elsewhere: the mend is to name it.
#[test]
fn a_gpu_that_is_not_here_is_planned_for_by_its_name() {
    let recommend = |devices: &str| {
        let settings = [
            Setting::new("model.name", "gpt-nano"),
            Setting::new("model.blocks", 1),
            Setting::new("pipeline.devices", devices),
        ];
        let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let options = PlanningOptions::default();
        let planner = Recommender::of_model(&config, &options, profile, &mut |_| {});
        let planner = planner.map_err(|error| error.to_string())?;
        Ok::<_, String>(planner.recommend().is_ok())
    };
    let said = recommend("cuda:99*2").unwrap_err();
    assert!(said.starts_with("device cuda:99 is not here"), "{said}");
    let mend = said.split("pipeline.devices = ").nth(1).unwrap();
    assert_eq!(recommend(mend.trim_end_matches('`')), Ok(true), "{said}");
}

/// A plan has a micro-batch or more in each of the given groups, and its bytes are those of its run.
#[test]
fn groups_of_micro_batches_are_planned_with() {
    let settings = [
        Setting::new("model.name", "gpt-nano"),
        Setting::new("pipeline.groups", 4),
        Setting::new("pipeline.memory", "32MiB"),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let recommend = |hosts: Option<usize>| {
        let mut options = PlanningOptions {
            hosts,
            ..PlanningOptions::default()
        };
        let (dtype, memory) = (*config.run.dtype, config.pipeline.memory.bytes());
        options.list_workers("2*1T", dtype, memory).unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {})?;
        let plan = of.recommend()?.plan;
        let run = Setup::new(&of.apply(&plan, &config)?)?;
        let peaks: Vec<u64> = run.memory.iter().map(StageMemory::peak).collect();
        Ok::<_, crate::Error>((plan, peaks))
    };
    let (plan, peaks) = recommend(None).unwrap();
    assert!(plan.micro_batches >= 4, "{}", plan.micro_batches);
    assert_eq!(plan.peaks, peaks);
    let said = recommend(Some(1)).unwrap_err().to_string();
    assert!(said.contains("as many groups as replicas"), "{said}");
}

/// The comparison with a copy of the model on every worker is what a plan for such replicas takes: the update is not divided
/// among them.
#[test]
fn a_copy_on_every_worker_takes_what_its_plan_does() {
    let settings = [Setting::new("model.name", "gpt2")];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    let recommend = |hosts: Option<usize>| {
        let mut options = PlanningOptions {
            hosts,
            ..PlanningOptions::default()
        };
        options
            .list_workers("8*h100", *config.run.dtype, None)
            .unwrap();
        let profile = ProfileOptions::new(Path::new("none"));
        let of = Recommender::of_model(&config, &options, profile, &mut |_| {});
        of.unwrap().recommend().unwrap()
    };
    let (told, planned) = (recommend(None).replicas.unwrap(), recommend(Some(1)).plan);
    assert_eq!((planned.replication.replicas, planned.cut.len()), (8, 1));
    assert!(planned.parts.update > 0.05 * planned.seconds);
    assert!((told / planned.seconds - 1.0).abs() < 1e-9, "{told}");
}

/// Costs count as seconds of a worker of speed 1; without a batch, one of a default size bounds the micro-batches.
#[test]
fn costs_are_seconds_of_a_step_of_some_samples() {
    let config = Overrides::new().resolve().unwrap();
    let file = || {
        let layer = Described {
            forward: 1.0,
            ..Described::default()
        };
        CostFile::from_layers(vec![layer; 4])
    };
    let with = |workers: &str, fixed: FixedKeys| {
        let mut options = PlanningOptions {
            fixed,
            ..PlanningOptions::default()
        };
        options
            .list_workers(workers, *config.run.dtype, None)
            .unwrap();
        Recommender::of_costs(file(), &config, &options)
    };
    let refused = with("3*h100", FixedKeys::default())
        .err()
        .unwrap()
        .to_string();
    assert!(refused.ends_with("such as --workers '3*1'"), "{refused}");
    let of = with("3*1", FixedKeys::default()).unwrap();
    assert_eq!(of.assumed_batch(), Some(config.data.batch_size.get()));
    let given = FixedKeys {
        batch_size: true,
        ..FixedKeys::default()
    };
    assert_eq!(with("3*1", given).unwrap().assumed_batch(), None);
}
