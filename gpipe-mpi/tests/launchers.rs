//! Messages under real launchers, those that `GPIPE_MPIRUN` names (paths parted by `:`); the ranks are this
//! test binary again.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gpipe_mpi::{Launcher, MpiTransport};
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

#[test]
fn every_launcher_passes_messages() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let mut command = Command::new(&launcher);
        command.env_remove("GPIPE_MPIRUN");
        command.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ]);
        // Open MPI's launcher refuses root, and more ranks than cores.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.envs([(name.to_owned(), "1"), (format!("{name}_CONFIRM"), "1")]);
        }
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        command.args(["-np", &RANKS.to_string()]);
        command.arg(env::current_exe().unwrap());
        command.args(["a_rank", "--exact", "--nocapture"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let ends = said.matches("ends well").count();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && ends == RANKS,
            "{launcher:?}: {said}{errors}"
        );
    }
}
