//! Opening devices of a host.

use super::Device;
#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::device_id::DeviceId;
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::find_cuda::find_cuda;
use crate::host::Host;
#[cfg(feature = "cuda")]
use crate::precision::Precision;

/// The oldest major compute capability that kernels are compiled for: `cp.async`, and `mma` of bf16 and TF32, are there since 8.0 (PTX ISA).
#[cfg(feature = "cuda")]
const OLDEST: u32 = 8;

impl Host {
    /// A new handle to the device `id`, for one worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a device that this build or machine does not have.
    pub fn device(&self, id: DeviceId) -> Result<Device> {
        match id {
            DeviceId::Cpu => Ok(Device::cpu(self.clone())),
            #[cfg(feature = "cuda")]
            DeviceId::Cuda(_) | DeviceId::Known(_) if self.is_on_paper() => {
                let gpu = Gpu::on_paper(self.tf32())?;
                Ok(Device::new(id, self.clone(), Some(gpu)))
            }
            DeviceId::Cuda(ordinal) => self.cuda(ordinal),
            DeviceId::Known(_) => Err(Error::Unavailable {
                device: id,
                reason:
                    "it is the name of a GPU to plan for: use cuda:N to run on one, or `gpipe plan`"
                        .into(),
            }),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, ordinal: u32) -> Result<Device> {
        let device = DeviceId::Cuda(ordinal);
        let unavailable = |reason| Error::Unavailable { device, reason };
        let found = find_cuda().map_err(unavailable)?;
        if self.precision() == Precision::Bf16 {
            let reason = "products in bf16 are the processor's: use f32, or --devices cpu";
            return Err(unavailable(reason.into()));
        }
        if ordinal as usize >= found.devices.len() {
            let reason = match found.devices.len() {
                1 => "this machine has cuda:0 alone".into(),
                count => format!("this machine has cuda:0 to cuda:{}", count - 1),
            };
            return Err(unavailable(reason));
        }
        let (major, minor) = found.devices[ordinal as usize].capability;
        if major < OLDEST {
            return Err(unavailable(format!(
                "it has compute capability {major}.{minor}, and kernels need {OLDEST}.0 or newer: use another GPU, or --devices cpu"
            )));
        }
        let how = [self.tf32(), self.traces(), self.makes_graphs()];
        let gpu = Gpu::open(ordinal, self.kernel_cache(), how)?;
        Ok(Device::new(device, self.clone(), Some(gpu)))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(&self, ordinal: u32) -> Result<Device> {
        Err(Error::Unavailable {
            device: DeviceId::Cuda(ordinal),
            reason: crate::find_cuda::NO_SUPPORT.into(),
        })
    }
}
