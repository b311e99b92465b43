//! Checks of the predicted memory against limits and devices.

use gpipe_data::PIXELS;
use gpipe_remat::Bytes;
use gpipe_report::numbers;
use gpipe_tensor::{DeviceId, find_cuda};

use super::Setup;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::machine;

impl Setup {
    /// Checks the predicted memory against `pipeline.memory`, this machine and its GPUs.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not fit; the message has the needed bytes.
    pub fn check_memory(&self, config: &TrainConfig) -> Result<()> {
        if let Some(limit) = config.pipeline.memory.bytes() {
            let mut workers = vec![0_u64; self.schedule.devices()];
            for (memory, &worker) in self.memory.iter().zip(self.schedule.device_of()) {
                workers[worker] = workers[worker].saturating_add(memory.peak());
            }
            let most = (0..workers.len()).max_by_key(|&worker| workers[worker]);
            if let Some(worker) = most.filter(|&worker| workers[worker] > limit) {
                let stages = self.schedule.stages() / workers.len();
                return Err(Error::invalid(format!(
                    "worker {worker} needs {} but `pipeline.memory` is {}: use `pipeline.memory = {}`, \
                     `pipeline.remat = budget:{}` or --auto",
                    numbers::bytes(workers[worker]),
                    Bytes(limit),
                    Bytes(workers[worker]).rounded_up(),
                    Bytes(limit / stages.max(1) as u64),
                )));
            }
        }
        // A batch has samples and targets, with four bytes per token or pixel.
        let sample = match config.model.is_classifier() {
            true => PIXELS as u64 + 1,
            false => 2 * config.data.seq_len.u64(),
        };
        let batch = config
            .data
            .batch_size
            .u64()
            .saturating_mul(sample)
            .saturating_mul(4);
        // A checkpoint copies the value and two moments of each parameter, as tensors and as files.
        let copies = match config.run.keep.get() {
            0 => 0,
            _ => self.parameters.saturating_mul(2 * 3 * 4),
        };
        let on_host = batch.saturating_add(copies);
        let on_host = on_host.saturating_add(self.peaks_on(DeviceId::Cpu));
        enough("this machine", on_host, machine::memory_to_come())?;
        let devices = find_cuda().map_or_else(|_| Vec::new(), |found| found.devices);
        for device in devices {
            let name = device.id.to_string();
            enough(&name, self.peaks_on(device.id), Some(device.memory_bytes))?;
        }
        Ok(())
    }

    /// The sum of the peaks of all stages on a device.
    fn peaks_on(&self, device: DeviceId) -> u64 {
        let stages = self.memory.iter().zip(&self.devices);
        let peaks = stages.filter(|&(_, &id)| id == device);
        peaks.fold(0, |sum: u64, (stage, _)| sum.saturating_add(stage.peak()))
    }
}

/// Refuses a need beyond the available bytes.
fn enough(place: &str, needed: u64, available: Option<u64>) -> Result<()> {
    match available {
        Some(available) if needed > available => Err(Error::invalid(format!(
            "the run needs {} but {place} has {}: use a smaller `data.batch_size`, `data.seq_len` or model, \
             or `pipeline.remat = stage`",
            numbers::bytes(needed),
            numbers::bytes(available)
        ))),
        _ => Ok(()),
    }
}
