//! Launchers of MPI, as tests start them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A launcher that takes root for its user, and more ranks than cores. What it and its ranks leave in folders for temporary
/// files is below the folder `near`, and goes with it.
pub fn launcher(program: &Path, near: &Path) -> Command {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let mut command = Command::new(program);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        command.envs([(name.to_owned(), "1"), (format!("{name}_CONFIRM"), "1")]);
    }
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    // Open MPI's launcher keeps files in a folder that it names by its process. Those of a launcher that was killed stay, and
    // one that gets the same number finds them there and does not start.
    let started = STARTED.fetch_add(1, Ordering::Relaxed);
    let own = near.join(format!("launcher-{started}"));
    std::fs::create_dir_all(&own).expect("a folder");
    command.env("TMPDIR", own);
    // Open MPI names files of shared memory by 16 bits of a hash of the job: in the folder of all jobs two could meet in one
    // file, and those of a killed job would stay.
    command.env("OMPI_MCA_btl_sm_backing_directory", near);
    command
}
