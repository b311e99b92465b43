//! Recommendations without a measurement.

use std::path::Path;

use gpipe_remat::Rates;
use gpipe_remat::planner::Worker;

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
