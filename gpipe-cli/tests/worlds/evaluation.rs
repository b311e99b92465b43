//! Evaluations over ranks: of a run of replicas, and with a picture that one of the ranks alone cannot read.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use gpipe_report::EvaluatedClass;
use gpipe_sched::{InMemory, World};
use gpipe_train::{Evaluation, Overrides, Recipe, Setting, Setup, evaluate, one_line};

/// Two classes of ten pictures each.
fn draw(folder: &Path) {
    for (number, class) in ["a", "b"].into_iter().enumerate() {
        fs::create_dir_all(folder.join(class)).expect("a folder");
        for picture in 0..10_u8 {
            let shade = |x, y| image::Rgb([x as u8 * picture, y as u8 * 9, 200 * number as u8]);
            let file = folder.join(format!("{class}/{picture}.png"));
            let picture = image::RgbImage::from_fn(8, 8, shade);
            picture.save(file).expect("a picture");
        }
    }
}

/// Evaluates well, then with a picture that rank `victim` cannot read, then well again: what the first and the
/// last find, and the error.
fn evaluations(
    folder: &Path,
    world: &Arc<World>,
    replicas: usize,
    victim: usize,
) -> ([Evaluation; 2], String) {
    let pictures = folder.join(format!("rank-{}", world.rank()));
    draw(&pictures);
    let source = format!("data.source={}", pictures.display());
    let stages = format!("pipeline.stages={}", world.ranks() / replicas);
    let replicas = format!("pipeline.replicas={replicas}");
    let settings = [
        "model.name=convnet:4,4,4",
        "data.image_size=8",
        "data.batch_size=8",
        "pipeline.micro_batches=2",
        "pipeline.threads=1",
        &source,
        &stages,
        &replicas,
    ];
    let settings = settings.into_iter().map(|setting| {
        let (key, value) = setting.split_once('=').expect("a key and a value");
        Setting::text(setting, key, value)
    });
    let config = Overrides::new().layer(settings).expect("known keys");
    let ranks = world.ranks();
    let config = config.on_ranks(ranks, ranks).resolve().expect("a way");
    let found = gpipe_train::vocabulary(&config, None).expect("a vocabulary");
    let dataset = gpipe_train::held_out_dataset(&config, &found.vocabulary).expect("pictures");
    let setup = Setup::over(&config, Some(world)).expect("a way");
    let recipe = Recipe {
        config: &config,
        dataset: &dataset,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let mut run = setup.assemble_for_evaluation(&config).expect("a pipeline");
    let mut evaluation = || evaluate(&recipe, &mut run.pipeline, &run.transit, 3);
    let before = evaluation().expect("an evaluation");
    if world.rank() == victim {
        // Every batch but the first has some of them, so each replica has.
        for picture in 0..10 {
            let picture = pictures.join(format!("b/{picture}.png"));
            fs::write(picture, "no picture").expect("a file");
        }
    }
    let error = one_line(&evaluation().expect_err("a picture is broken"));
    if world.rank() == victim {
        draw(&pictures);
    }
    let after = evaluation().expect("an evaluation");
    ([before, after], error)
}

/// The evaluation ends on all ranks, with the picture and its rank, and the next one is right: what it finds, of each class too,
/// depends on neither ranks nor replicas.
#[test]
fn a_picture_that_one_rank_cannot_read_ends_the_evaluation_on_all() {
    let mut first = None;
    for (ranks, replicas, victim) in [(2, 1, 1), (2, 1, 0), (2, 2, 1), (4, 2, 2)] {
        let outside = tempfile::tempdir().expect("a folder");
        let folder = &outside.path().canonicalize().expect("a folder");
        let ends: Vec<([Evaluation; 2], String)> = thread::scope(|scope| {
            let start =
                |end| scope.spawn(move || evaluations(folder, &World::new(end), replicas, victim));
            let started: Vec<_> = InMemory::new(ranks).into_iter().map(start).collect();
            let ends = started.into_iter().map(|rank| rank.join().expect("a rank"));
            ends.collect()
        });
        for (rank, ([before, after], error)) in ends.into_iter().enumerate() {
            assert_eq!(before, after);
            let first = first.get_or_insert(before);
            assert_eq!(*first, after);
            let names = after.classes.iter().map(|class| &*class.name);
            assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
            let of_ten = |class: &EvaluatedClass| class.targets == 10;
            assert!(after.classes.iter().all(of_ten), "{:?}", after.classes);
            assert!(
                error.contains("/b/") && error.contains(".png"),
                "{rank}: {error}"
            );
            let told = format!("evaluation after step 3: rank {victim} (here): ");
            assert_eq!(error.starts_with(&told), rank != victim, "{rank}: {error}");
        }
    }
}

/// The ranks of replicas of one stage have a stage each, without a flag.
#[test]
fn a_run_of_replicas_is_evaluated_by_as_many_ranks() {
    let launchers = env::var_os("GPIPE_MPIRUN");
    for launcher in launchers.iter().flat_map(env::split_paths) {
        let near = tempfile::tempdir().expect("a folder");
        let run = near.path().join("run");
        let said = |mut command: Command| {
            let output = command.env_remove("GPIPE_MPIRUN").output();
            let output = output.expect("a process");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{launcher:?}: {errors}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let over_two = || super::launched(&launcher, 2, near.path(), &[], &[]);
        let mut train = over_two();
        train.args(["train", "--quiet", "--model", "gpt-nano", "--stages", "1"]);
        train.args(["--replicas", "2", "--threads", "1", "--steps", "1"]);
        train.args(["--eval-every", "1", "--out"]).arg(&run);
        said(train);
        let mut alone = Command::new(env!("CARGO_BIN_EXE_gpipe"));
        alone.args(["eval", "--quiet"]).arg(&run);
        let mut evaluation = over_two();
        evaluation.args(["eval", "--quiet"]).arg(&run);
        let found = said(alone);
        assert!(found.starts_with("loss "), "{found}");
        assert_eq!(said(evaluation), found, "{launcher:?}");
    }
}
