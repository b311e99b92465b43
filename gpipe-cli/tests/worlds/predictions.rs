//! Classes of pictures over ranks: those of one process, and refused where ranks are asked for others.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use gpipe_data::named_pictures;
use gpipe_sched::{InMemory, World};
use gpipe_train::{Overrides, Prediction, Predictor, Result, Setting, Setup};

/// Pictures of stripes.
fn draw(folder: &Path) {
    for number in 0..5_u8 {
        let shade = |x, y| image::Rgb([x as u8 * 5 * number, y as u8 * 9, 40 * number]);
        let picture = image::RgbImage::from_fn(12, 10, shade);
        picture
            .save(folder.join(format!("{number}.png")))
            .expect("a picture");
    }
}

/// Predicts the pictures of these names.
fn predicted(
    folder: &Path,
    world: Option<&Arc<World>>,
    replicas: usize,
    names: &[&str],
) -> Result<Vec<Prediction>> {
    let ranks = world.map_or(1, |world| world.ranks());
    let settings = [
        ("model.name", "convnet:4,4,4".to_owned()),
        ("data.source", "synthetic".to_owned()),
        ("data.image_size", "8".to_owned()),
        ("data.batch_size", "4".to_owned()),
        ("pipeline.micro_batches", "2".to_owned()),
        ("pipeline.threads", "1".to_owned()),
        ("pipeline.stages", (ranks / replicas).to_string()),
        ("pipeline.replicas", replicas.to_string()),
    ];
    let settings = settings.map(|(key, value)| Setting::text("a test", key, value));
    let config = Overrides::new().layer(settings)?;
    let config = config.on_ranks(ranks, ranks).resolve()?;
    let setup = Setup::forward_only_over(&config, world)?;
    let mut predictor = Predictor::new(setup, &config)?;
    let paths: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
    let pictures = named_pictures(&paths)?;
    let mut all = Vec::new();
    for pictures in pictures.chunks(predictor.batch()) {
        all.extend(predictor.predict(pictures)?);
    }
    Ok(all)
}

#[test]
fn ranks_predict_what_one_process_does_and_refuse_other_pictures() {
    const NAMES: [&str; 5] = ["0.png", "1.png", "2.png", "3.png", "4.png"];
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    draw(folder);
    let alone = predicted(folder, None, 1, &NAMES).expect("predictions");
    assert_eq!(alone.len(), 5);
    assert_ne!(alone[0], alone[1]);
    let over = |ranks: usize, replicas: usize, last: &[&str]| -> Vec<Result<Vec<Prediction>>> {
        thread::scope(|scope| {
            let start = |end| {
                let world = World::new(end);
                let is_last = world.rank() == ranks - 1;
                let names = if is_last { last } else { &NAMES };
                scope.spawn(move || predicted(folder, Some(&world), replicas, names))
            };
            let started: Vec<_> = InMemory::new(ranks).into_iter().map(start).collect();
            let ends = started.into_iter().map(|rank| rank.join().expect("a rank"));
            ends.collect()
        })
    };
    for (ranks, replicas) in [(2, 1), (2, 2), (4, 2)] {
        for found in over(ranks, replicas, &NAMES) {
            assert_eq!(found.expect("predictions"), alone, "{ranks} {replicas}");
        }
    }
    for found in over(2, 1, &["0.png", "1.png", "3.png", "2.png"]) {
        let told = found.expect_err("other pictures").to_string();
        assert!(
            told.starts_with("rank 1 (here) was asked for another picture than rank 0 (here): "),
            "{told}"
        );
    }
}
