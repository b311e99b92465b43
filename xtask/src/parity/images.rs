//! Networks for images here and in PyTorch.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use super::numbers::{LOGITS, number};

/// The networks in PyTorch; what the script said once is recorded beside it, for the test that runs where there is
/// no Python.
const NETWORKS: &str = "gpipe-layers/tests/networks/reference.py";
/// Opens a saved ResNet in torchvision.
const SAVED: &str = "gpipe-cli/tests/parity/resnet.py";

/// Compares all networks with what PyTorch says now, and a ResNet that is saved here with torchvision's.
pub fn run(
    shell: &Shell,
    root: &Path,
    program: &Path,
    python: &Path,
    scratch: &Path,
    record: bool,
) -> anyhow::Result<()> {
    let import = cmd!(shell, "{python} -c 'import torchvision'");
    let has_torchvision = import.quiet().ignore_stdout().ignore_stderr().run().is_ok();
    if !has_torchvision {
        println!("torchvision is not there: its ResNets are compared as they are written out");
    }
    let script = root.join(NETWORKS);
    let option = has_torchvision.then_some("--torchvision");
    let said = cmd!(shell, "{python} {script} {option...}").read()?;
    let file = scratch.join("networks.json");
    fs::write(&file, &said).with_context(|| format!("writing {}", file.display()))?;
    if record {
        fs::write(script.with_file_name("expected.json"), said + "\n")?;
    }
    cmd!(shell, "cargo test --quiet -p gpipe-layers --test networks")
        .env("GPIPE_NETWORKS", &file)
        .run()?;
    println!(
        "losses, gradients, running statistics and logits of ResNets, U-Net and AmoebaNet-D are PyTorch's"
    );
    if !has_torchvision {
        return Ok(());
    }
    for name in ["resnet18", "resnet50"] {
        let run = scratch.join(name);
        let options = "--data synthetic --image-size 64 --batch-size 16 --micro-batches 2 --stages 3 --schedule 1f1b";
        let options = options.split(' ');
        cmd!(
            shell,
            "{program} -q train --model {name} {options...} --steps 2 --eval-every 2 --out {run}"
        )
        .quiet()
        .ignore_stdout()
        .run()?;
        let logits = scratch.join("logits.safetensors");
        cmd!(
            shell,
            "cargo run --quiet -p gpipe-train --example logits -- {run} {logits}"
        )
        .run()?;
        let saved = run.join("checkpoints/step-00000002/model/model.safetensors");
        let script = root.join(SAVED);
        let compared = cmd!(shell, "{python} {script} {name} {saved} {logits}").read()?;
        let compared: Value = serde_json::from_str(&compared).context("what the script printed")?;
        let (images, difference) = (&compared["images"], number(&compared["difference"])?);
        ensure!(
            difference < LOGITS && images.as_u64() > Some(0),
            "the logits of a saved {name} are {difference:.1e} from torchvision's"
        );
        println!(
            "a saved {name} opens in torchvision: logits of {images} images within {difference:.1e}"
        );
    }
    Ok(())
}
