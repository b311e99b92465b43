//! Forward passes by the configuration of a run: what it asks of training does not count.

use super::{resolved, setting};
use crate::config::{NcclUse, Overrides};
use crate::error::Error;

/// Of a run with two stages on each worker, a single stage makes forward passes.
#[test]
fn forward_passes_need_no_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let two = resolved(&["pipeline.schedule=interleaved:2", "pipeline.devices=cpu*2"]);
    std::fs::write(&file, two.to_toml().unwrap()).unwrap();
    let forward = |set: &[&str]| {
        let overrides = Overrides::new().file(&file).unwrap().forward_only();
        let layer = set.iter().map(|text| setting(text));
        let config = overrides.layer(layer).unwrap().resolve().unwrap();
        let setup = crate::Setup::new(&config).unwrap();
        (setup.schedule.stages(), setup.schedule.devices())
    };
    assert_eq!(forward(&[]), (4, 2));
    assert_eq!(forward(&["pipeline.stages=1"]), (1, 1));
    assert_eq!(forward(&["pipeline.devices=cpu*3"]), (3, 3));
}

/// What a run asked of GPUs is asked of those that make its forward passes, and of no processor.
#[test]
fn forward_passes_on_processors_ask_for_no_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let run = resolved(&[
        "run.tf32=true",
        "run.nccl=on",
        "pipeline.devices=cuda:0,cuda:1",
    ]);
    std::fs::write(&file, run.to_toml().unwrap()).unwrap();
    let forward = |set: &[&str]| {
        let overrides = Overrides::new().file(&file).unwrap().forward_only();
        let layer = set.iter().map(|text| setting(text));
        overrides.layer(layer).unwrap().resolve()
    };
    let asked = |set: &[&str]| {
        let run = forward(set).unwrap().run;
        (run.tf32, *run.nccl == NcclUse::On)
    };
    assert_eq!(asked(&[]), (true, true));
    assert_eq!(asked(&["run.tf32=false"]), (false, true));
    for other in ["pipeline.devices=cpu", "pipeline.stages=1"] {
        assert_eq!(asked(&[other]), (false, false), "{other}");
        assert!(forward(&[other, "run.tf32=true"]).is_err(), "{other}");
    }
}

/// What a run keeps for its backward passes, in which memory and in which cut, does not limit forward passes.
#[test]
fn forward_passes_need_no_memory_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let stages = ["pipeline.stages=2", "pipeline.partition=3,8"];
    let trained = [
        "pipeline.remat=budget:8MiB",
        "pipeline.memory=8MiB",
        "data.batch_size=8",
    ];
    let set = [&stages[..], &trained].concat();
    std::fs::write(&file, resolved(&set).to_toml().unwrap()).unwrap();
    let forward = |set: &[&str]| {
        let overrides = Overrides::new().file(&file).unwrap().forward_only();
        let layer = set.iter().map(|text| setting(text));
        let config = overrides.layer(layer)?.resolve()?;
        let setup = crate::Setup::new(&config)?.forward_only();
        setup.check_memory(&config)?;
        Ok::<_, Error>(setup.partition.sizes())
    };
    assert_eq!(forward(&[]).unwrap(), [3, 8]);
    assert_eq!(
        forward(&["pipeline.stages=1", "data.batch_size=64"]).unwrap(),
        [11]
    );
    // A limit that is given counts.
    let limited = ["pipeline.stages=1", "pipeline.memory=1MiB"];
    assert!(
        forward(&limited)
            .unwrap_err()
            .to_string()
            .contains("worker 0 needs ")
    );
}
