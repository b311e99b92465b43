//! Other systems and processors: types checked for macOS and Windows, operations run on an emulated
//! processor of 64-bit ARM.

use std::process::Command;

use xshell::{Shell, cmd};

// Systems on which the program must compile. Their tokenizers would need a C++ compiler for them.
const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";

/// The processor that is emulated, its linker, and the command that runs its programs.
const ARM: &str = "aarch64-unknown-linux-gnu";
const ARM_LINKER: &str = "aarch64-linux-gnu-gcc";
const ARM_RUNNER: &str = "qemu-aarch64";

/// Checks the program for each other system whose standard library is installed: for macOS, which shares most of its
/// code with Linux, by the `oldest` toolchain that is promised, if that is here. What the standard library got later, a lint finds
/// everywhere.
pub fn systems(shell: &Shell, oldest: Option<&str>) -> anyhow::Result<()> {
    let program = ["-p", "gpipe-cli", "--no-default-features", "--target"];
    let lint = |target| {
        if is_installed(None, target) {
            return Ok(cmd!(shell, "cargo clippy {program...} {target} -- -D warnings").run()?);
        }
        println!("skipped: {target}: `rustup target add {target}` installs it");
        anyhow::Ok(())
    };
    lint(WINDOWS)?;
    match oldest.filter(|oldest| is_installed(Some(oldest), MACOS)) {
        Some(oldest) => {
            let toolchain = format!("+{oldest}");
            Ok(cmd!(shell, "cargo {toolchain} check {program...} {MACOS}").run()?)
        }
        None => {
            println!(
                "skipped: the oldest compiler: `rustup toolchain install VERSION --target {MACOS}` installs it"
            );
            lint(MACOS)
        }
    }
}

/// Runs the tests of operations on an emulated ARM processor, where its tools are installed.
pub fn arm(shell: &Shell) -> anyhow::Result<()> {
    for tool in [ARM_LINKER, ARM_RUNNER] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!(
                "skipped: no {tool}: Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and \
                 qemu-user have it"
            );
            return Ok(());
        }
    }
    if !is_installed(None, ARM) {
        println!("skipped: {ARM}: `rustup target add {ARM}` installs it");
        return Ok(());
    }
    let test = cmd!(shell, "cargo test -p gpipe-tensor --lib --target {ARM}");
    let test = test.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER);
    // A library of this machine's processor, which the emulated one cannot load.
    let test = test.env_remove("GPIPE_NVRTC");
    let runner = format!("{ARM_RUNNER} -L /usr/aarch64-linux-gnu");
    Ok(test
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)
        .run()?)
}

/// Whether the standard library for a target is installed, for this toolchain or the one in use.
fn is_installed(toolchain: Option<&str>, target: &str) -> bool {
    let listed = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .args(toolchain.iter().flat_map(|name| ["--toolchain", *name]))
        .output();
    listed.is_ok_and(|output| {
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        names.lines().any(|name| name == target)
    })
}
