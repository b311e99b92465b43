//! What replicas share besides the micro-batches of a text model: layers before the pipeline, tables of actions, and the
//! batches of an evaluation.

use std::fs;
use std::ops::ControlFlow;

use gpipe_remat::MessageBytes;
use gpipe_train::{Recipe, Setup, evaluate, train};

use super::{configuration, is_equal, on_threads};

/// Batch normalizations among the layers before the pipeline see the whole group.
#[test]
fn layers_before_the_pipeline_run_on_the_groups_of_each_replica() {
    for (replicas, ranks, stages, schedule, remat, zero) in [
        (2, 1, 2, "gpipe", "keep", 0),
        (4, 1, 1, "1f1b", "stage", 1),
        (2, 2, 2, "1f1b", "stage", 0),
        (2, 1, 2, "zb-h1", "keep", 1),
        (1, 2, 2, "1f1b", "keep", 0),
    ] {
        let settings = [
            "model.name=amoebanetd:3,16".to_owned(),
            "data.source=synthetic".to_owned(),
            "data.image_size=64".to_owned(),
            "data.batch_size=9".to_owned(),
            "pipeline.before=3".to_owned(),
            "pipeline.threads=1".to_owned(),
            "pipeline.micro_batches=7".to_owned(),
            "pipeline.groups=4".to_owned(),
            format!("pipeline.replicas={replicas}"),
            format!("pipeline.zero={zero}"),
            format!("pipeline.stages={stages}"),
            format!("pipeline.schedule={schedule}"),
            format!("pipeline.remat={remat}"),
        ];
        let equal = is_equal(&settings, replicas * ranks);
        assert!(equal, "{replicas} x {ranks}: {settings:?}");
    }
}

/// Every replica runs the table.
#[test]
fn a_table_of_actions_is_that_of_each_replica() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("table.csv");
    // Two stages and three micro-batches, in no order of a schedule with a name.
    let actions = "0F0,0F1,0F2,,0B0,0B1,0B2\n,1F0,1F1,1B0,1B1,1F2,1B2\n";
    fs::write(&table, actions).expect("a file");
    let settings = |replicas: usize| {
        vec![
            "model.width=16".to_owned(),
            "model.heads=2".to_owned(),
            "data.seq_len=8".to_owned(),
            "data.batch_size=13".to_owned(),
            "pipeline.threads=1".to_owned(),
            "pipeline.groups=4".to_owned(),
            format!("pipeline.replicas={replicas}"),
            format!("pipeline.schedule={}", table.display()),
        ]
    };
    for (replicas, ranks) in [(2, 1), (4, 1), (2, 2)] {
        let config = configuration(&settings(replicas), replicas * ranks);
        let sizes = (
            config.pipeline.stages.get(),
            config.pipeline.micro_batches.get(),
        );
        assert_eq!(sizes, (2, 3 * replicas));
        let equal = is_equal(&settings(replicas), replicas * ranks);
        assert!(equal, "{replicas} x {ranks}");
    }
}

/// Each replica evaluates some of the batches, the last of which are for some replicas only; the sum is that of one
/// process, and the same on all ranks.
#[test]
fn replicas_share_an_evaluation() {
    let settings = |replicas: usize, stages: usize| {
        vec![
            "model.width=16".to_owned(),
            "model.heads=2".to_owned(),
            "model.dropout=0.2".to_owned(),
            "data.seq_len=64".to_owned(),
            "data.batch_size=6".to_owned(),
            "run.eval_every=1".to_owned(),
            "pipeline.threads=1".to_owned(),
            "pipeline.micro_batches=4".to_owned(),
            "pipeline.groups=4".to_owned(),
            format!("pipeline.replicas={replicas}"),
            format!("pipeline.stages={stages}"),
        ]
    };
    let evaluated = |replicas: usize, ranks: usize, stages: usize| {
        on_threads(replicas * ranks, |world| {
            let config = configuration(&settings(replicas, stages), replicas * ranks);
            let found = gpipe_train::vocabulary(&config, None).expect("a vocabulary");
            let dataset = gpipe_train::dataset(&config, &found.vocabulary).expect("a text");
            let setup = Setup::over(&config, Some(&world)).expect("a way");
            let recipe = Recipe {
                config: &config,
                dataset: &dataset,
                optimizer: setup.optimizer.clone(),
                learning_rate: setup.learning_rate.clone(),
            };
            let mut run = setup.assemble(&config).expect("a pipeline");
            let held_out = dataset.held_out();
            let batches = (held_out.end - held_out.start).div_ceil(6);
            assert!(batches > 2 && !batches.is_multiple_of(4), "{batches}");
            let mut found = Vec::new();
            // The second one finds nothing of the first.
            for step in 0..2 {
                let one = evaluate(&recipe, &mut run.pipeline, &run.transit, step);
                let one = one.expect("an evaluation");
                found.push((one.loss.to_bits(), one.accuracy.to_bits(), one.targets));
            }
            found
        })
    };
    let whole = evaluated(1, 1, 2);
    let expected = &whole[0];
    for (replicas, ranks, stages) in [(1, 2, 2), (2, 1, 1), (4, 1, 2), (2, 2, 2)] {
        for found in evaluated(replicas, ranks, stages) {
            assert_eq!(found, *expected, "{replicas} x {ranks}");
        }
    }
}

/// Messages never take more bytes than predicted, and between replicas a good part of those.
#[test]
fn messages_take_at_most_the_predicted_bytes() {
    let settings = |replicas: usize, stages: usize, zero: usize, schedule: &str| {
        vec![
            "model.width=16".to_owned(),
            "model.heads=2".to_owned(),
            "data.seq_len=16".to_owned(),
            "data.batch_size=9".to_owned(),
            "pipeline.threads=1".to_owned(),
            "pipeline.micro_batches=7".to_owned(),
            "pipeline.groups=4".to_owned(),
            format!("pipeline.replicas={replicas}"),
            format!("pipeline.zero={zero}"),
            format!("pipeline.stages={stages}"),
            format!("pipeline.schedule={schedule}"),
        ]
    };
    let held = |replicas: usize, ranks: usize, stages: usize, zero: usize, schedule: &str| {
        on_threads(replicas * ranks, |world| {
            let config = configuration(
                &settings(replicas, stages, zero, schedule),
                replicas * ranks,
            );
            let found = gpipe_train::vocabulary(&config, None).expect("a vocabulary");
            let dataset = gpipe_train::dataset(&config, &found.vocabulary).expect("a text");
            let setup = Setup::over(&config, Some(&world)).expect("a way");
            let (own, predicted) = (world.rank() % ranks, setup.messages.clone());
            let recipe = Recipe {
                config: &config,
                dataset: &dataset,
                optimizer: setup.optimizer.clone(),
                learning_rate: setup.learning_rate.clone(),
            };
            let forecast = setup.forecast().expect("a forecast").message_bytes;
            let mut run = setup.assemble(&config).expect("a pipeline");
            let mut most = 0;
            train(&recipe, &mut run, 0..3, |_, _, step| {
                most = most.max(step.message_bytes.expect("other ranks"));
                Ok::<_, gpipe_train::Error>(ControlFlow::Continue(()))
            })
            .expect("steps");
            assert_eq!(forecast, predicted.iter().map(MessageBytes::peak).max());
            (own, most, predicted)
        })
    };
    for (replicas, ranks, stages, zero, schedule) in [
        (1, 2, 2, 0, "gpipe"),
        (1, 2, 4, 0, "interleaved:2"),
        (1, 4, 4, 0, "1f1b"),
        (2, 1, 1, 0, "gpipe"),
        (4, 1, 2, 1, "1f1b"),
        (2, 2, 2, 0, "1f1b"),
        (2, 2, 2, 1, "zb-h1"),
    ] {
        for (rank, most, predicted) in held(replicas, ranks, stages, zero, schedule) {
            let what = format!("{replicas} x {ranks}, {stages} stages, rank {rank}, {schedule}");
            let suffices = predicted.iter().map(MessageBytes::peak).max().unwrap_or(0);
            assert!(most > 0 && most <= suffices, "{what}: {most} of {suffices}");
            let of_replicas = predicted[rank].parts > 0;
            // Half of the messages are the sender's, which has none here, and sums come after parts.
            let share = if of_replicas { 8 } else { 64 };
            assert!(share * most >= suffices, "{what}: {most} of {suffices}");
        }
    }
}

/// Replicas have the stages of each other, though some have more samples: times of updates are the same for all.
#[test]
fn replicas_of_other_sizes_have_one_cut() {
    for cost_model in ["complete", "time:2000"] {
        let settings = [
            "model.width=16".to_owned(),
            "model.blocks=5".to_owned(),
            "model.heads=2".to_owned(),
            "data.seq_len=8".to_owned(),
            "data.batch_size=13".to_owned(),
            "pipeline.micro_batches=6".to_owned(),
            "pipeline.replicas=6".to_owned(),
            "pipeline.stages=4".to_owned(),
            format!("pipeline.cost_model={cost_model}"),
        ];
        let cuts = on_threads(6, |world| {
            let setup = Setup::over(&configuration(&settings, 6), Some(&world));
            setup.expect("a way").cut()
        });
        assert!(
            cuts.iter().all(|cut| *cut == cuts[0]),
            "{cost_model}: {cuts:?}"
        );
    }
}
