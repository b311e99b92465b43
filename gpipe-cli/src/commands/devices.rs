//! `gpipe devices`: where stages can run on this machine.

use gpipe_tensor::{DeviceId, Error, Host};

use crate::args::Talk;
use crate::fail::{Fail, Result};
use crate::machine;
use crate::output::{Event, FoundDevice, numbers, print, style};

/// Prints a device after the other, as `--devices` names them.
pub fn run(talk: Talk) -> Result<()> {
    for found in [cpu(), cuda()?] {
        print(&match talk.json {
            true => Event::Device(found).to_json()?,
            false => described(&found),
        })?;
    }
    Ok(())
}

fn cpu() -> FoundDevice {
    let processor = machine::processor();
    FoundDevice {
        device: DeviceId::Cpu.to_string(),
        usable: true,
        name: processor.name,
        cores: processor.cores,
        threads: Some(processor.threads),
        vectors: Some(machine::vectors().to_owned()),
        memory_bytes: machine::memory(),
        free_bytes: machine::free_memory(),
        reason: None,
    }
}

/// The first CUDA device, or why there is none.
fn cuda() -> Result<FoundDevice> {
    let id = DeviceId::Cuda(0);
    let found = Host::new(1).and_then(|host| host.device(id));
    let reason = match found {
        Ok(_) => None,
        Err(Error::Unavailable { reason, .. }) => Some(reason),
        Err(error) => return Err(Fail::run(error)),
    };
    Ok(FoundDevice {
        device: id.to_string(),
        usable: reason.is_none(),
        reason,
        ..FoundDevice::default()
    })
}

/// Its name, and below what is known of it.
fn described(found: &FoundDevice) -> String {
    let count = |number: usize, thing: &str| match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    };
    let free = |bytes| format!(", {} of it free", numbers::bytes(bytes));
    let memory = |bytes| {
        let free = found.free_bytes.map_or(String::new(), free);
        format!("{} of memory{free}", numbers::bytes(bytes))
    };
    let parts = [
        found.cores.map(|cores| count(cores, "core")),
        found.threads.map(|threads| count(threads, "thread")),
        found
            .vectors
            .as_ref()
            .map(|name| format!("computes with {name}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let facts = [
        found.name.clone(),
        Some(parts.join(", ")).filter(|parts| !parts.is_empty()),
        found.memory_bytes.map(memory),
        found
            .reason
            .as_ref()
            .map(|reason| format!("not available: {reason}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let (device, below) = (&found.device, format!("\n{:8}", ""));
    format!(
        "{}{device:<6}{}  {}",
        style::HEADING,
        style::RESET,
        facts.join(&below)
    )
}
