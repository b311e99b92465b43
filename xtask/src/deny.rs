//! What the workspace depends on: licences, duplicates, sources and known faults, by cargo-deny and
//! `.cargo/deny.toml`.

use xshell::{Shell, cmd};

/// Runs the checks; without the tool, or the data that one of them needs, says what is skipped.
pub fn run(shell: &Shell) -> anyhow::Result<()> {
    let tool = cmd!(shell, "cargo deny --version");
    if tool.quiet().ignore_stderr().read().is_err() {
        println!("skipped: no cargo-deny: `cargo install cargo-deny --locked` builds it");
        return Ok(());
    }
    cmd!(shell, "cargo deny check bans licenses sources").run()?;
    let fetch = cmd!(shell, "cargo deny fetch db").quiet().ignore_stdout();
    if fetch.ignore_stderr().run().is_err() {
        println!("skipped: advisories: their data base cannot be fetched from this machine");
        return Ok(());
    }
    Ok(cmd!(shell, "cargo deny check advisories").run()?)
}
