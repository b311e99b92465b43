//! Ranks that do not begin alike.

use std::fs;
use std::thread;

use gpipe_layers::Sampling;
use gpipe_report::NewRun;
use gpipe_sched::InMemory;

use super::*;
use crate::config::{Overrides, Setting};
use crate::ranks;
use crate::{Generation, Generator, PreparedRun, RunOptions, Setup, Silent, StartPoint};

const SMALL: [&str; 7] = [
    "model.width=8",
    "model.blocks=1",
    "model.heads=1",
    "data.seq_len=8",
    "pipeline.stages=2",
    "run.steps=3",
    "run.save_every=1",
];

fn configuration(own: &str) -> TrainConfig {
    let settings = SMALL.into_iter().chain([own]).map(|text| {
        let (key, value) = text.split_once('=').unwrap();
        Setting::text(text, key, value)
    });
    Overrides::new().layer(settings).unwrap().resolve().unwrap()
}

/// What two ranks say, each of which does something of its own.
fn two_ranks(of_rank: impl Fn(usize, Arc<World>) -> Result<()> + Sync) -> [String; 2] {
    let said = thread::scope(|scope| {
        let start = |end| {
            let (of_rank, world) = (&of_rank, World::new(end));
            scope.spawn(move || match of_rank(world.rank(), world) {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            })
        };
        let started: Vec<_> = InMemory::new(2).into_iter().map(start).collect();
        let said = started.into_iter().map(|rank| rank.join().unwrap());
        said.collect::<Vec<String>>()
    });
    said.try_into().unwrap()
}

#[test]
fn a_rank_begins_that_hears_first_of_one_that_has_failed() {
    let said = two_ranks(|rank, world| match rank {
        0 => {
            let ranks = ranks_that_begin(&world)?;
            assert_eq!((ranks.len(), ranks[1].rank), (2, 1));
            assert!(ranks::pinned(&ranks, None).is_none() && world.is_over());
            check_alike(&world, &configuration("run.seed=0")).map(drop)
        }
        _ => {
            world.fail("refused", 2);
            Ok(())
        }
    });
    assert!(said[0].contains("refused"), "{said:?}");
}

/// Where its copy of the run is finished.
#[test]
fn a_rank_that_has_come_to_its_end_is_named() {
    let said = two_ranks(|rank, world| match rank {
        0 => check_alike(&world, &configuration("run.seed=0")).map(drop),
        _ => world
            .share(Parcel::default(), None)
            .map(drop)
            .map_err(Error::run),
    });
    assert!(
        said[0].starts_with(
            "rank 1 (here) has nothing to do: start all ranks with the same flags, and copy "
        ),
        "{said:?}"
    );
}

#[test]
fn ranks_with_other_samples_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let texts = ["a text of its own, ", "another text, "].map(|text| text.repeat(20));
    let path = folder.path().join("text");
    let datasets = texts.map(|text| {
        fs::write(&path, text).unwrap();
        let config = configuration(&format!("data.source={}", path.display()));
        let found = crate::vocabulary(&config, None).unwrap();
        crate::dataset(&config, &found.vocabulary).unwrap()
    });
    let same = |other: usize| {
        two_ranks(|rank, world| check_same_files(&world, &datasets[rank * other], None))
    };
    assert_eq!(same(0), ["", ""]);
    for said in same(1) {
        assert!(
            said.starts_with("rank 1 (here) reads other samples than rank 0 (here): copy "),
            "{said}"
        );
    }
}

#[test]
fn ranks_with_another_model_are_refused() {
    let said = two_ranks(|rank, world| {
        let config = configuration(["model.name=gpt-nano", "model.name=bench-tiny"][rank]);
        Setup::forward_only_over(&config, Some(&world)).map(drop)
    });
    for said in said {
        assert!(
            said.starts_with(
                "rank 1 (here) has the model bench-tiny, but rank 0 (here) gpt-nano: "
            ),
            "{said}"
        );
    }
}

#[test]
fn ranks_that_are_asked_for_other_texts_are_refused() {
    let asked = |prompt: &str, tokens, beams: Option<usize>| (prompt.to_owned(), tokens, beams);
    let usual = asked("ab", 3, None);
    let said = |other: &(String, usize, Option<usize>)| {
        two_ranks(|rank, world| {
            let config = configuration("run.seed=0");
            let mut setup = Setup::forward_only_over(&config, Some(&world))?;
            setup.open_weights(&config)?;
            let (prompt, tokens, beams) = [&usual, other][rank];
            let generation = Generation {
                sampling: Sampling {
                    temperature: 1.0,
                    top_k: None,
                    top_p: None,
                },
                tokens: *tokens,
                ends: Vec::new(),
            };
            let prompt = prompt.bytes().map(u32::from).collect();
            let mut generator = Generator::new(setup, &config, vec![prompt], generation)?;
            match beams {
                Some(beams) => generator.beam_search(*beams).map(drop),
                None => {
                    while !generator.next_tokens()?.is_empty() {}
                    Ok(())
                }
            }
        })
    };
    assert_eq!(said(&usual), ["", ""]);
    for other in [
        asked("ac", 3, None),
        asked("ab", 4, None),
        asked("ab", 0, None),
        asked("ab", 3, Some(2)),
    ] {
        for said in said(&other) {
            assert!(
                said.starts_with("rank 1 (here) was asked for another text than rank 0 (here): "),
                "{other:?}: {said}"
            );
        }
    }
}

/// A run in a folder.
fn train(path: &Path, own: &str) {
    let options = RunOptions::new(NewRun::at(path, false).unwrap());
    let start = StartPoint::fresh(configuration(own)).unwrap();
    let run = PreparedRun::new(start, options).unwrap();
    run.train(&mut Silent, || false).unwrap();
}

/// As where each host has its own copy of the model.
#[test]
fn ranks_with_other_weights_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let models = ["run.seed=0", "run.seed=1"].map(|own| {
        let run = folder.path().join(own);
        train(&run, own);
        run.join("checkpoints/step-00000003/model")
    });
    let said = |other: usize| {
        two_ranks(|rank, world| {
            let model = models[rank * other].display();
            let config = configuration(&format!("model.name={model}"));
            Setup::over(&config, Some(&world))?.open_weights(&config)
        })
    };
    assert_eq!(said(0), ["", ""]);
    for said in said(1) {
        assert!(
            said.starts_with("rank 1 (here) has other weights than rank 0 (here): copy "),
            "{said}"
        );
    }
}

/// As where each host has a copy of the run's folder.
#[test]
fn ranks_that_resume_from_other_checkpoints_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    train(&one, "run.seed=0");
    train(&other, "run.seed=0");
    let said = |others: &Path| {
        two_ranks(|rank, world| {
            let more = |overrides: Overrides| {
                let steps = Setting::text("", "run.steps", "4");
                Ok(overrides.layer([steps])?.on_ranks(2, 2))
            };
            let start = match rank {
                0 => StartPoint::resume(&one, None, 2, more),
                _ => StartPoint::follow(others, 2, more),
            };
            let options = RunOptions::new(NewRun::within(folder.path()));
            PreparedRun::new(start?, options.over(Some(world))).map(drop)
        })
    };
    assert_eq!(said(&one), ["", ""]);
    for said in said(&other) {
        assert!(
            said.contains("after step 3, but rank 1 (here) from another one: copy "),
            "{said}"
        );
    }
    let stale = folder.path().join("stale");
    copy(&one, &stale);
    fs::remove_dir_all(stale.join("checkpoints/step-00000003")).unwrap();
    for said in said(&stale) {
        assert!(
            said.starts_with(
                "rank 0 (here) resumes from the checkpoint after step 3, but rank 1 (here) from the checkpoint after \
                 step 2: copy the run's folder of rank 0 (here) to the same path"
            ),
            "{said}"
        );
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}
