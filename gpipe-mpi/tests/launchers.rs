//! Messages under real launchers, those that `GPIPE_MPIRUN` names (paths parted by `:`); the ranks are this
//! test binary again.

#[path = "common/launcher.rs"]
mod launcher;

use std::env;
#[cfg(target_os = "linux")]
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use gpipe_mpi::{Launcher, MpiTransport, raw};
use gpipe_sched::{Parcel, World};

const RANKS: usize = 3;
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// A message whose bytes depend on its sender.
fn parcel(rank: usize, head: usize, bodies: &[usize]) -> Parcel {
    let bytes = |length: usize, salt: usize| {
        let byte = move |place: usize| (place.wrapping_mul(31) ^ salt ^ rank << 4) as u8;
        (0..length).map(byte).collect::<Vec<u8>>()
    };
    Parcel {
        head: bytes(head, 1),
        bodies: bodies.iter().map(|&length| bytes(length, length)).collect(),
    }
}

/// Runs in each rank; in a process of its own it does nothing.
#[test]
fn a_rank() {
    let Some(launcher) = Launcher::of_environment() else {
        return;
    };
    let transport = MpiTransport::start(None, Some(&launcher), Duration::from_secs(60)).unwrap();
    let world: Arc<World> = World::new(transport);
    assert_eq!(
        (world.rank(), world.ranks()),
        (launcher.rank, launcher.ranks)
    );
    assert!(!world.host(world.rank()).is_empty());
    // Heads within a slot and beyond it, no bodies and many, small ones and some that MPI does not buffer.
    let sizes: [(usize, &[usize]); 5] = [
        (0, &[]),
        (40, &[8]),
        (2_000, &[0, 3, 1 << 20]),
        (450, &[64; 40]),
        (100, &[5 << 20, 1]),
    ];
    for round in 0..20 {
        for (head, bodies) in sizes {
            let own = parcel(world.rank() + round, head, bodies);
            let all = world.share(own, LIMIT).unwrap();
            for (rank, other) in all.into_iter().enumerate() {
                assert!(other == parcel(rank + round, head, bodies), "{rank} {head}");
            }
        }
    }
    world.close().unwrap();
    println!("rank {} ends well", launcher.rank);
}

/// A test of this binary as the ranks of a launcher.
fn launched(launcher: &Path, near: &Path, ranks: usize, test: &str) -> Command {
    launched_by(&[], launcher, near, ranks, test)
}

/// [`launched`], each rank by a command that stands between.
fn launched_by(
    between: &[&str],
    launcher: &Path,
    near: &Path,
    ranks: usize,
    test: &str,
) -> Command {
    let mut command = launcher::launcher(launcher, near);
    command.env_remove("GPIPE_MPIRUN");
    command.args(["-np", &ranks.to_string()]);
    command.args(between).arg(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command
}

/// Checks that a job ends as all of its ranks do: well.
fn ends_well(mut job: Command, ranks: usize) {
    let output = job.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.matches("ends well").count() == ranks,
        "{job:?}: {said}{errors}"
    );
}

#[test]
fn every_launcher_passes_messages() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    // A script that starts the program, and goes on behind it.
    let script: &[&str] = &["sh", "-c", "\"$@\"; exit $?", "sh"];
    let launchers: Vec<_> = env::split_paths(&launchers).collect();
    let ways = (launchers.iter()).flat_map(|launcher| [(launcher, &[] as _), (launcher, script)]);
    for (launcher, between) in ways {
        let folder = tempfile::tempdir().unwrap();
        let command = launched_by(between, launcher, folder.path(), RANKS, "a_rank");
        ends_well(command, RANKS);
    }
}

/// The folder in which ranks of a launcher that is killed say who they are and how they ended.
#[cfg(target_os = "linux")]
const ORPHANS: &str = "GPIPE_TEST_ORPHANS";

/// Runs in each rank of a launcher that is killed; in a process of its own it does nothing.
#[cfg(target_os = "linux")]
#[test]
fn an_orphan() {
    use std::os::unix::process::parent_id;
    let (Some(folder), Some(launcher)) = (env::var_os(ORPHANS), Launcher::of_environment()) else {
        return;
    };
    let say = |what: &str, text: &str| {
        let file = Path::new(&folder).join(format!("{what}-{}", launcher.rank));
        let partial = file.with_extension("partial");
        fs::write(&partial, text).unwrap();
        fs::rename(partial, file).unwrap();
    };
    let transport = MpiTransport::start(None, Some(&launcher), Duration::from_secs(60)).unwrap();
    let world: Arc<World> = World::new(transport);
    world.share(Parcel::default(), LIMIT).unwrap();
    let parent = parent_id();
    say("begun", &format!("{} {parent}", std::process::id()));
    while parent_id() == parent {
        thread::sleep(Duration::from_millis(5));
    }
    say("ended", &world.close().err().unwrap_or_default());
}

/// MPI may wait for its launcher in the end: ranks do not.
#[cfg(target_os = "linux")]
#[test]
fn ranks_end_without_their_launcher() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    let since = Instant::now();
    let wait = |launcher: &Path, is_over: &dyn Fn(usize) -> bool| {
        while !(0..RANKS).all(is_over) {
            assert!(since.elapsed() < 2 * LIMIT.unwrap(), "{launcher:?}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let said = |what: &str, rank: usize| {
            fs::read_to_string(folder.path().join(format!("{what}-{rank}"))).ok()
        };
        let mut command = launched(&launcher, folder.path(), RANKS, "an_orphan");
        let mut job = command.env(ORPHANS, folder.path()).spawn().unwrap();
        wait(&launcher, &|rank| said("begun", rank).is_some());
        job.kill().unwrap();
        job.wait().unwrap();
        let mut ranks = Vec::new();
        for rank in 0..RANKS {
            let begun = said("begun", rank).unwrap_or_default();
            let (own, parent) = begun.split_once(' ').unwrap();
            // The launcher's own process on this host, which may outlive it.
            let _ = Command::new("kill").args(["-KILL", parent]).output();
            ranks.push(Path::new("/proc").join(own).join("exe"));
        }
        // Some launchers end their ranks with them.
        wait(&launcher, &|rank| {
            said("ended", rank).is_some() || ranks[rank].read_link().is_err()
        });
        for fault in (0..RANKS).filter_map(|rank| said("ended", rank)) {
            println!("{}: {fault:?}", launcher.display());
            assert!(
                fault.is_empty() || fault.contains("the launcher of this process has ended"),
                "{launcher:?}: {fault}"
            );
        }
    }
}

/// Set for ranks that drop their transport without closing it.
#[cfg(target_os = "linux")]
const DROPS: &str = "GPIPE_TEST_DROPS";

/// Runs in each of these ranks; in a process of its own it does nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_rank_that_drops_its_transport() {
    let (Some(_), Some(launcher)) = (env::var_os(DROPS), Launcher::of_environment()) else {
        return;
    };
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
        let names = tasks.filter_map(|task| name(task.unwrap()).ok());
        names.filter(|name| name.trim_end() == "gpipe-mpi").count()
    };
    let transport = MpiTransport::start(None, Some(&launcher), Duration::from_secs(60)).unwrap();
    let world: Arc<World> = World::new(transport);
    world.share(Parcel::default(), LIMIT).unwrap();
    // MPI's own threads have that name too.
    assert!(threads() > 0);
    // Others still send to the first one.
    thread::sleep(Duration::from_millis(100) * launcher.rank as u32);
    drop(world);
    // A delivery may have been its last owner.
    let since = Instant::now();
    while threads() > 0 {
        assert!(since.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(5));
    }
    println!("rank {} ends well", launcher.rank);
}

#[cfg(target_os = "linux")]
#[test]
fn a_transport_that_is_dropped_ends_its_thread() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let test = "a_rank_that_drops_its_transport";
        let mut command = launched(&launcher, folder.path(), RANKS, test);
        command.env(DROPS, "1");
        ends_well(command, RANKS);
    }
}

/// Set for ranks of which the last one comes late to its end.
const LATE: &str = "GPIPE_TEST_LATE";

/// Runs in each of these ranks; in a process of its own it does nothing.
#[test]
fn a_rank_that_is_late() {
    let (Some(_), Some(launcher)) = (env::var_os(LATE), Launcher::of_environment()) else {
        return;
    };
    let transport = MpiTransport::start(None, Some(&launcher), Duration::from_secs(60)).unwrap();
    let world: Arc<World> = World::new(transport);
    world.share(Parcel::default(), LIMIT).unwrap();
    if launcher.rank + 1 == launcher.ranks {
        thread::sleep(Duration::from_secs(12));
    }
    world.close().unwrap();
    println!("rank {} ends well", launcher.rank);
}

/// A busy host may keep a rank from its processors for more than 10 s.
#[test]
fn the_end_waits_for_a_rank_that_is_late() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    thread::scope(|scope| {
        for launcher in env::split_paths(&launchers) {
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let mut command = launched(&launcher, folder.path(), RANKS, "a_rank_that_is_late");
                command.env(LATE, "1");
                ends_well(command, RANKS);
            });
        }
    });
}

/// Set for the one rank of a launcher that starts MPI wrongly.
const WRONGLY: &str = "GPIPE_TEST_WRONGLY";

/// Runs in that rank; in a process of its own it does nothing.
#[test]
fn a_rank_that_starts_wrongly() {
    let (Some(_), Some(launcher)) = (env::var_os(WRONGLY), Launcher::of_environment()) else {
        return;
    };
    // There is no second rank.
    let error = raw::ping_pong(None, Some(&launcher), &[8], |_| 1).unwrap_err();
    assert!(error.to_string().contains("nobody to send to"), "{error}");
    let again = MpiTransport::start(None, Some(&launcher), Duration::from_secs(60));
    let error = again.err().unwrap().to_string();
    assert!(error.contains("MPI starts once in a process"), "{error}");
    println!("rank {} ends well", launcher.rank);
}

/// A wrong start is an error, which neither MPI nor the process makes its end.
#[test]
fn a_wrong_start_is_an_error() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = launched(&launcher, folder.path(), 1, "a_rank_that_starts_wrongly");
        command.env(WRONGLY, "1");
        ends_well(command, 1);
    }
}
