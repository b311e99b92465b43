//! Resolution of settings, and invalid settings.

mod forward_passes;

use std::path::Path;

use super::numbers::Fraction;
use super::{Family, GptKeys, Overrides, Setting, TrainConfig, presets};
use crate::error::{Error, Result};

fn setting(text: &str) -> Setting {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Setting::text(text, key, value)
}

fn resolve(set: &[&str]) -> Result<TrainConfig> {
    let layer = set.iter().map(|text| setting(text));
    Overrides::new().layer(layer)?.resolve()
}

pub(super) fn resolved(set: &[&str]) -> TrainConfig {
    resolve(set).unwrap()
}

pub(super) fn refused(set: &[&str]) -> String {
    match resolve(set).unwrap_err() {
        Error::Invalid(message) => message,
        other => panic!("{other:?}"),
    }
}

fn gpt(config: &TrainConfig) -> &GptKeys {
    match &config.model.family {
        Family::Gpt(keys) => keys,
        other => panic!("{other:?}"),
    }
}

/// Resolves a file with layers of settings.
fn over(file: &Path, layers: &[&[&str]]) -> Result<TrainConfig> {
    let mut overrides = Overrides::new().file(file)?;
    for layer in layers {
        overrides = overrides.layer(layer.iter().map(|text| setting(text)))?;
    }
    overrides.resolve()
}

#[test]
fn every_model_has_a_complete_configuration_that_reads_back() {
    for name in presets::NAMES {
        let config = resolved(&[&format!("model.name={name}")]);
        assert_eq!(config.model.name, name);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, config.to_toml().unwrap()).unwrap();
        assert_eq!(over(&file, &[]).unwrap(), config);
    }
}

#[test]
fn later_layers_win_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "[run]\nsteps = 1\nseed = 1\n[optimizer]\nlr = 1\n").unwrap();
    let layers: [&[&str]; 2] = [&["run.steps=2", "run.seed=2"], &["run.seed=3"]];
    let config = over(&file, &layers).unwrap();
    assert_eq!(
        (
            config.run.steps.get(),
            config.run.seed.u64(),
            config.optimizer.lr.get()
        ),
        (2, 3, 1.0)
    );
}

#[test]
fn stages_and_workers_follow_each_other() {
    let stages = |set: &[&str]| {
        let config = resolved(set);
        (
            config.pipeline.stages.get(),
            config.pipeline.devices.to_string(),
        )
    };
    assert_eq!(stages(&[]), (4, "cpu".into()));
    assert_eq!(stages(&["pipeline.stages=3"]), (3, "cpu".into()));
    assert_eq!(stages(&["pipeline.devices=cpu*3"]), (3, "cpu".into()));
    assert_eq!(stages(&["pipeline.devices=cpu,cpu"]), (2, "cpu".into()));
    assert_eq!(stages(&["pipeline.devices=cpu"]), (1, "cpu".into()));
    assert_eq!(
        stages(&["pipeline.devices=cpu", "pipeline.stages=5"]),
        (5, "cpu".into())
    );
    assert!(refused(&["pipeline.devices=cpu*2", "pipeline.stages=3"]).contains("2 workers"));
    let folded = ["pipeline.devices=cpu*2", "pipeline.schedule=zb-v"];
    assert_eq!(stages(&folded), (4, "cpu".into()));
    let three = |stages| {
        let schedule = "pipeline.schedule=interleaved:3";
        ["pipeline.devices=cpu*2", stages, schedule]
    };
    let every = refused(&three("pipeline.stages=9"));
    assert!(every.contains("list one for every 3 stages"), "{every}");
    let uneven = refused(&three("pipeline.stages=8"));
    assert!(uneven.ends_with("use `pipeline.stages = 6`"), "{uneven}");
    assert_eq!(stages(&three("pipeline.stages=6")), (6, "cpu".into()));
    let many = "pipeline.devices=cpu*4294967295,cpu*4294967295";
    assert!(refused(&[many]).contains("8589934590 workers"));
}

/// Costs of a file are of its batch; bare ones of as many samples as there are micro-batches.
#[test]
fn a_batch_follows_the_costs() {
    let resolve = |set: &[&str], batch| {
        let layers = Overrides::new().layer(set.iter().map(|text| setting(text)));
        layers.unwrap().of_costs(batch).resolve()
    };
    let sizes = |set: &[&str], batch| {
        let config = resolve(set, batch).unwrap();
        (
            config.data.batch_size.get(),
            config.pipeline.micro_batches.get(),
        )
    };
    assert_eq!(sizes(&["pipeline.micro_batches=32"], None), (32, 32));
    assert_eq!(sizes(&["pipeline.micro_batches=32"], Some(64)), (64, 32));
    assert_eq!(sizes(&["pipeline.micro_batch_size=2"], Some(64)), (64, 32));
    assert_eq!(sizes(&[], Some(4)), (4, 4));
    let refused = |set: &[&str]| resolve(set, Some(4)).unwrap_err().to_string();
    let said = refused(&["pipeline.micro_batches=8"]);
    assert!(
        said.ends_with("use `pipeline.micro_batches = 4` or fewer"),
        "{said}"
    );
    let said = refused(&["data.batch_size=8"]);
    assert!(said.ends_with("use `data.batch_size = 4`"), "{said}");
}

#[test]
fn a_number_of_a_file_beyond_64_bits_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "[run]\nsteps = 99999999999999999999999\n").unwrap();
    let said = over(&file, &[]).unwrap_err().to_string();
    assert!(said.ends_with("use a smaller number"), "{said}");
}

#[test]
fn a_later_layer_replaces_what_the_file_said_in_other_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let text = "[model]\nname = 'gpt-mini'\nblocks = 2\n\
                [pipeline]\ndevices = 'cpu,cuda:0'\nmicro_batches = 16\n";
    std::fs::write(&file, text).unwrap();
    let with = |set: &str| over(&file, &[&[set]]).unwrap();
    let config = with("pipeline.stages=3");
    assert_eq!(config.pipeline.devices.to_string(), "cpu");
    let config = with("pipeline.micro_batch_size=3");
    assert_eq!(config.pipeline.micro_batches.get(), 6);
    let blocks = |config: &TrainConfig| gpt(config).blocks.get();
    assert_eq!(blocks(&with("model.name=gpt-nano")), 4);
    assert_eq!(blocks(&with("model.name=gpt-mini")), 2);
    let layers = [setting("model.blocks=3")];
    let config = Overrides::new().layer(layers).unwrap();
    let config = config.layer([setting("model.name=gpt-mini")]).unwrap();
    assert_eq!(blocks(&config.resolve().unwrap()), 3);
}

#[test]
fn defaults_follow_the_keys_they_depend_on() {
    assert_eq!(
        resolved(&["data.batch_size=3"])
            .pipeline
            .micro_batches
            .get(),
        3
    );
    assert_eq!(gpt(&resolved(&["data.seq_len=99"])).context.get(), 99);
    assert_eq!(gpt(&resolved(&["model.name=gpt2"])).context.get(), 1024);
    assert!(refused(&["data.seq_len=99", "model.context=98"]).contains("`data.seq_len = 98`"));
}

#[test]
fn an_optimizer_has_its_keys_and_its_decay() {
    let sgd = ["optimizer.name=sgd", "optimizer.momentum=0.9"];
    let decay = |set: &[&str]| resolved(set).optimizer.weight_decay.get();
    assert_eq!(decay(&[]), 0.1);
    assert_eq!(decay(&sgd), 0.0);
    assert_eq!(decay(&[sgd[0], "optimizer.weight_decay=1e-4"]), 1e-4);
    let error = refused(&[sgd[0], "optimizer.nesterov=true"]);
    assert!(error.contains("`optimizer.momentum = 0.9`"), "{error}");
    for (name, key, default) in [
        ("sgd", "beta1", "0.9"),
        ("sgd", "beta2", "0.95"),
        ("sgd", "eps", "1e-8"),
        ("rmsprop", "beta2", "0.95"),
        ("rmsprop", "nesterov", "false"),
        ("adamw", "momentum", "0"),
        ("adamw", "alpha", "0.99"),
    ] {
        let name = format!("optimizer.name={name}");
        let other = match key {
            "nesterov" => "true",
            _ => "0.5",
        };
        let error = refused(&[&name, &format!("optimizer.{key}={other}")]);
        assert!(error.contains(&format!("has no {key}")), "{error}");
        assert!(
            error.ends_with(&format!("`optimizer.{key} = {default}`")),
            "{error}"
        );
        resolved(&[&name, &format!("optimizer.{key}={default}")]);
    }
    // Another optimizer in a later layer does not have to be told what it lacks, and keeps what it has.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sgd.toml");
    let text = "[optimizer]\nname = \"sgd\"\nmomentum = 0.9\nnesterov = true\n";
    std::fs::write(&file, text).unwrap();
    for (name, momentum) in [("adamw", 0.0), ("rmsprop", 0.9)] {
        let config = over(&file, &[&[&format!("optimizer.name={name}")]]).unwrap();
        let optimizer = config.optimizer;
        assert_eq!(
            (optimizer.momentum.get(), optimizer.nesterov),
            (momentum, false)
        );
    }
    std::fs::write(
        &file,
        "[optimizer]\nbeta1 = 0.8\nbeta2 = 0.99\neps = 1e-6\n",
    )
    .unwrap();
    for name in ["sgd", "rmsprop"] {
        let config = over(&file, &[&[&format!("optimizer.name={name}")]]).unwrap();
        assert_eq!(config.optimizer.beta1, Fraction::BETA1);
    }
    // Files omit what is the default, and read the rest back.
    let written = |set: &[&str]| resolved(set).to_toml().unwrap();
    for key in ["name = \"adamw\"", "alpha", "momentum", "nesterov"] {
        assert!(!written(&[]).contains(key), "{key}");
    }
    let rmsprop = [
        "optimizer.name=rmsprop",
        "optimizer.alpha=0.9",
        "optimizer.momentum=0.9",
    ];
    for set in [
        &sgd[..],
        &rmsprop,
        &[sgd[0], sgd[1], "optimizer.nesterov=true"],
    ] {
        let config = resolved(set);
        let path = Path::new("config.toml");
        let bytes = config.to_toml().unwrap().into_bytes();
        let read = Overrides::new().file_bytes(path, bytes).unwrap().resolve();
        assert_eq!(read.unwrap(), config);
    }
}

#[test]
fn values_that_are_impossible_are_refused_with_the_mend() {
    let cases = [
        ("pipeline.stages=0", "use a whole number from 1"),
        ("pipeline.stages=-1", "use a whole number from 1"),
        ("pipeline.stages=four", "not a whole number"),
        ("data.batch_size=99999999999", "out of range"),
        ("data.batch_size=99999999999999999999", "too large"),
        ("optimizer.lr=fast", "not a number"),
        ("optimizer.lr=nan", "finite"),
        ("optimizer.lr=-1", "from 0 up"),
        ("optimizer.name=adam", "use adamw, sgd or rmsprop"),
        ("optimizer.momentum=0.9", "`optimizer.name = sgd`"),
        ("optimizer.momentum=1", "below 1"),
        ("optimizer.nesterov=true", "adamw has no nesterov"),
        ("optimizer.alpha=0.9", "`optimizer.name = rmsprop`"),
        ("model.dropout=1", "below 1"),
        ("model.dropout=0.99999999999", "0.9999999"),
        ("optimizer.label_smoothing=0.9999999999999999", "0.9999999"),
        ("model.weights=x", "leave `model.weights` out"),
        ("data.shuffle=maybe", "true or false"),
        ("pipeline.schedule=gpip", "use gpipe, 1f1b, "),
        ("pipeline.schedule=interleaved:0", "from 1 to 65535"),
        ("pipeline.schedule=interleaved", "interleaved:V"),
        ("pipeline.remat=every:0", "every:N"),
        ("pipeline.partition=even", "3,3,4,2"),
        ("pipeline.devices=gpu", "gpu"),
        ("pipeline.micro_batches=17", "`pipeline.micro_batches = 16`"),
        ("model.name=gpt-nanu", "did you mean `gpt-nano`"),
        ("pipeline.stagse=1", "did you mean `pipeline.stages`"),
        ("stages=1", "did you mean `pipeline.stages`"),
        ("=3", "names no key"),
        ("modle.name=x", "did you mean `model.name`?"),
        ("run.learning_rate=1", "did you mean `optimizer.lr`?"),
        ("model.name=GPT2", "did you mean `gpt2`?"),
        ("run.xyzzy=3", "the keys of [run] are cuda_graphs, dtype, "),
        (
            "foo.bar=3",
            "unknown key `foo.bar`: sections are data, lora, ",
        ),
        ("optimiser.beta_1=1", "did you mean `optimizer.beta1`"),
    ];
    for (set, mend) in cases {
        let message = refused(&[set]);
        assert!(message.contains(mend), "{set}: {message}");
    }
}

/// Each rank has the workers that are listed: the mend is of one rank.
#[test]
fn a_list_of_workers_is_that_of_each_rank() {
    let resolved = |devices: &str, stages: i64| {
        let settings = [
            Setting::new("pipeline.devices", devices),
            Setting::new("pipeline.stages", stages),
        ];
        let config = Overrides::new().layer(settings).unwrap().on_ranks(2, 2);
        config.resolve().map_err(|error| error.to_string())
    };
    let said = resolved("cpu*2", 2).unwrap_err();
    let words =
        "2 stages but 4 workers in `pipeline.devices = cpu*2` on 2 ranks: list 1 for each rank,";
    assert!(said.starts_with(words), "{said}");
    assert!(resolved("cpu*1", 2).is_ok());
    let said = resolved("cpu*2", 3).unwrap_err();
    assert!(said.contains("use `pipeline.stages = 4`"), "{said}");
    assert!(resolved("cpu*2", 4).is_ok());
}

#[test]
fn a_fault_in_a_file_has_its_line() {
    let cases = [
        (
            "[run]\nseed = 1\nstpes = 3\n",
            "line 3: unknown key `run.stpes`: did you mean `run.steps`?",
        ),
        (
            "[runn]\nseed = 1\n",
            "line 1: unknown section [runn]: did you mean [run]?",
        ),
        (
            "[xyzzy]\n",
            "line 1: unknown section [xyzzy]: sections are data, ",
        ),
        (
            "steps = 3\n",
            "line 1: unknown key `steps`: did you mean `run.steps`?",
        ),
        (
            "[run]\n\nsteps = 0\n",
            "line 3: run.steps: 0 is out of range",
        ),
        (
            "[run]\nsteps = 'x'\n",
            "line 2: run.steps: `x` is not a whole number",
        ),
        ("[run]\nsteps = \n", "line 2: "),
        ("run = 3\n", "line 1: `run` is a section"),
        (
            "[run]\nseed = 18446744073709551615\n",
            "line 2: u64 value was too large: use a smaller number",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    for (text, fault) in cases {
        std::fs::write(&file, text).unwrap();
        let Err(error) = over(&file, &[]) else {
            panic!("{text}")
        };
        assert!(error.to_string().contains(fault), "{text}: {error}");
    }
}

/// What a run read may be gone once its file says what was found in it.
#[test]
fn the_file_of_a_run_needs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let [file, table, pictures] = ["c.toml", "table.csv", "p"].map(|name| folder.path().join(name));
    let save = |config: &TrainConfig| std::fs::write(&file, config.to_toml().unwrap()).unwrap();
    std::fs::write(&table, "0F0,0F1,0B0,0B1\n").unwrap();
    let scheduled = resolved(&[&format!("pipeline.schedule={}", table.display())]);
    save(&scheduled);
    std::fs::remove_file(&table).unwrap();
    assert_eq!(
        Overrides::new().file(&file).unwrap().of_run().unwrap(),
        scheduled
    );
    assert!(over(&file, &[]).is_err());
    assert!(over(&file, &[&["pipeline.schedule=gpipe"]]).is_ok());

    std::fs::create_dir_all(pictures.join("cat")).unwrap();
    let source = format!("data.source={}", pictures.display());
    let classified = resolved(&["model.name=convnet:4", &source]);
    assert_eq!(classified.model.images().unwrap().classes.get(), 1);
    save(&classified);
    std::fs::remove_dir_all(&pictures).unwrap();
    assert_eq!(over(&file, &[]).unwrap(), classified);
}

/// A rank of 0 takes the settings of adapters in earlier layers with it.
#[test]
fn adapters_are_left_out_by_their_rank() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let adapted = resolved(&["lora.rank=2", "lora.alpha=4"]);
    std::fs::write(&file, adapted.to_toml().unwrap()).unwrap();
    assert!(
        over(&file, &[&["lora.rank=0"]])
            .unwrap()
            .lora
            .settings()
            .is_none()
    );
    assert!(refused(&["lora.rank=0", "lora.alpha=4"]).contains("leave `lora.alpha` out"));
}

/// Graphs are the default on every device, and change nothing on processors; files say so where they are off.
#[test]
fn graphs_are_on_unless_they_are_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let written = |set: &[&str]| {
        let config = resolved(set);
        (config.run.cuda_graphs, config.to_toml().unwrap())
    };
    for devices in ["pipeline.devices=cpu", "pipeline.devices=cuda:0"] {
        for set in [&[devices][..], &[devices, "run.cuda_graphs=true"]] {
            let (is_on, toml) = written(set);
            assert!(is_on && !toml.contains("cuda_graphs"), "{set:?}: {toml}");
        }
        let (is_on, toml) = written(&[devices, "run.cuda_graphs=false"]);
        assert!(!is_on && toml.contains("cuda_graphs = false"), "{toml}");
        std::fs::write(&file, toml).unwrap();
        let of_file = |set: &[&str]| {
            let overrides = Overrides::new().file(&file).unwrap();
            let layer = set.iter().map(|text| setting(text));
            let config = overrides.layer(layer).unwrap().resolve().unwrap();
            config.run.cuda_graphs
        };
        assert!(!of_file(&[]));
        assert!(of_file(&["run.cuda_graphs=true"]));
    }
}

/// Where a network does not fit the size of its images, the mend is one that it fits.
#[test]
fn a_size_of_images_that_fits_is_named() {
    let setup = |network: &str, size: &str| {
        let [network, size] = [
            format!("model.name={network}"),
            format!("data.image_size={size}"),
        ];
        crate::Setup::new(&resolved(&[&network, &size]))
    };
    for (network, size) in [
        ("amoebanetd:3,8", "48"),
        ("unet:1,2", "33"),
        // Of digits.
        ("convnet", "3"),
    ] {
        let said = setup(network, size).err().unwrap().to_string();
        let (_, named) = said.split_once("`data.image_size = ").unwrap();
        assert!(
            setup(network, named.strip_suffix("` fits").unwrap()).is_ok(),
            "{said}"
        );
    }
    // Digits have one size.
    let of_digits = ["data.source=digits", "data.batch_size=2"];
    for network in ["model.name=resnet18", "model.name=convnet:4,4,4,4,4"] {
        let config = resolved(&[&of_digits[..], &[network]].concat());
        let said = crate::Setup::new(&config).err().unwrap().to_string();
        assert!(!said.contains("image_size"), "{said}");
    }
}
