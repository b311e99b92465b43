//! `gpipe devices`: the devices of this machine.

use gpipe_tensor::{CudaDevice, CudaInfo, DeviceId, find_cuda};

use gpipe_report::{Event, FoundDevice};
use gpipe_train::machine;
use gpipe_train::ranks::{pinned, ranks_of, table_of};

use crate::args::OutputArgs;
use crate::fail::Result;
use crate::output::{print, style, warn};
use crate::ranks;

/// Prints each device, named as in `--devices`.
pub fn run(output: OutputArgs) -> Result<()> {
    let devices: Vec<FoundDevice> = std::iter::once(cpu()).chain(cuda()).collect();
    let launched = ranks::launched();
    let ranks = match launched {
        Some(launched) => {
            let usable = devices.iter().filter(|device| device.usable);
            let names: Vec<String> = usable.map(|device| device.device.clone()).collect();
            ranks_of(&launched.world, &names)?
        }
        None => Vec::new(),
    };
    for found in devices {
        print(&match output.json {
            true => Event::Device(found).to_json()?,
            false => named(&found.device, &found.facts()),
        })?;
    }
    let mpi = gpipe_train::found_mpi(launched);
    print(&match output.json {
        true => Event::Mpi(mpi).to_json()?,
        false => named("mpi", &mpi.facts()),
    })?;
    if output.json {
        for rank in &ranks {
            print(&Event::Rank(rank.clone()).to_json()?)?;
        }
    } else if !ranks.is_empty() {
        print(&format!("\n{}", table_of(&ranks)))?;
    }
    if let Some(warning) = pinned(&ranks, None) {
        warn(&warning);
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
        ..FoundDevice::default()
    }
}

/// The CUDA devices, or the reason why there is none.
fn cuda() -> Vec<FoundDevice> {
    let found = match find_cuda() {
        Ok(found) => found,
        Err(reason) => {
            return vec![FoundDevice {
                device: DeviceId::Cuda(0).to_string(),
                reason: Some(reason),
                ..FoundDevice::default()
            }];
        }
    };
    let CudaInfo {
        driver,
        cublas,
        nvrtc,
        devices,
    } = found;
    let libraries = format!("driver for CUDA {driver}, cuBLAS {cublas}, NVRTC {nvrtc}");
    let describe = |device: CudaDevice| FoundDevice {
        device: device.id.to_string(),
        usable: true,
        name: Some(device.name),
        memory_bytes: Some(device.memory_bytes),
        capability: Some(format!("{}.{}", device.capability.0, device.capability.1)),
        peers: Some(names(&device.peers)),
        libraries: Some(libraries.clone()),
        ..FoundDevice::default()
    };
    devices.into_iter().map(describe).collect()
}

fn names(devices: &[DeviceId]) -> String {
    let names: Vec<String> = devices.iter().map(DeviceId::to_string).collect();
    names.join(",")
}

/// Facts under each other beside a name.
fn named(name: &str, facts: &[String]) -> String {
    let below = format!("\n{:8}", "");
    format!(
        "{}{name:<6}{}  {}",
        style::HEADING,
        style::RESET,
        facts.join(&below)
    )
}
