//! Runs that save every step and are killed while they do, again and again: every resume works, each in another world.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::job::{NO_SILENCE, Random, STEPS, Start, Task, WORLDS, is_saving, process, saved, send};

/// A run from its start to its end, with at most this number of kills; how many they were.
fn killed_run(
    launcher: &Path,
    folder: &Path,
    task: &Task,
    most: usize,
    random: &mut Random,
) -> usize {
    let run = folder.join("run");
    let mut kills = 0;
    let mut world = random.choose(WORLDS.len());
    loop {
        let start = Start {
            launcher,
            options: &[],
            folder,
            said: &folder.join("said"),
            world: WORLDS[world],
            new: (kills == 0).then_some(task),
            before: &[],
            silence: NO_SILENCE,
        };
        let mut job = start.job();
        let begin = saved(&run);
        let at = (begin + 1 + random.choose(3) as u64).min(STEPS);
        let pause = |micros| thread::sleep(Duration::from_micros(micros));
        while kills < most && saved(&run) < at && job.is_running() {
            pause(500);
        }
        // Mostly while the next one is written: at its begin, or soon after.
        while kills < most && !is_saving(&run) && job.is_running() {
            pause(50);
        }
        pause(random.choose(3000) as u64);
        let victim = random.choose(WORLDS[world].0);
        if let (true, Some(process)) = (kills < most, process(folder, victim)) {
            send("KILL", process);
        }
        let what = format!("rank {victim} in world {world}, from step {begin}, kill {kills}");
        let (code, _, text) = job.end(&what);
        if code.success() {
            assert!(task.is_equal(&run), "{what}: other bits");
            fs::remove_dir_all(&run).expect("a run");
            return kills;
        }
        assert!(kills < most, "{what}: {text}");
        // A resume that does not work saves nothing.
        assert!(saved(&run) >= at, "{what}: {text}");
        kills += 1;
        world = (world + 1 + random.choose(WORLDS.len() - 1)) % WORLDS.len();
    }
}

#[test]
fn kills_while_every_step_is_saved_lose_none() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        println!("no launcher: GPIPE_MPIRUN names none");
        return;
    };
    let wanted = if env::var_os("GPIPE_EXAM").is_some() {
        100
    } else {
        2
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let task = Task::text(&folder);
    let mut all = 0;
    for (number, launcher) in env::split_paths(&launchers).enumerate() {
        let mut random = Random::new(number + 1);
        let mut kills = 0;
        while kills < wanted {
            kills += killed_run(&launcher, &folder, &task, wanted - kills, &mut random);
        }
        println!("{}: {kills} kills", launcher.display());
        all += kills;
    }
    println!("exam R2 {all}/{all}");
}
