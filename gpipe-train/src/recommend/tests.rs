//! Recommendations without a measurement.

use std::path::Path;

use gpipe_remat::Rates;
use gpipe_remat::planner::Worker;
use gpipe_tensor::DType;

use super::{PlanningOptions, Recommender};
use crate::config::{FixedKeys, Overrides, Setting};
use crate::profile::ProfileOptions;

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
