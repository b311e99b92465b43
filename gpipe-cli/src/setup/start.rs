//! From a plan to workers that run: here a run begins to need memory.

use gpipe_layers::{Loss, Optimizer};
use gpipe_remat::{Assembled, Assembly, AssemblyError, LossTurn};
use gpipe_sched::Turn;
use gpipe_tensor::{Device, Tensors};

use super::Setup;
use crate::config::Config;
use crate::fail::{Fail, Result};
use crate::{machine, model_folder};

impl Setup {
    /// Starts the workers, which end in the loss and can train.
    pub fn assemble(self, config: &Config) -> Result<Assembled> {
        let optimizer = Some(self.optimizer.clone());
        self.start(config, optimizer, |last, transit| {
            LossTurn::new(Loss::CrossEntropy, last, transit)
        })
    }

    /// Starts workers that only run forward, to another end.
    pub fn assemble_to<T: Turn<Tensors> + 'static>(
        self,
        config: &Config,
        turn: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        self.start(config, None, turn)
    }

    fn start<T: Turn<Tensors> + 'static>(
        self,
        config: &Config,
        optimizer: Option<Optimizer>,
        turn: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        let host = machine::host(config, optimizer.is_some()).map_err(Fail::usage)?;
        // What cannot be used is said before anything begins; what can stays open until it is.
        let mut open: Vec<Device> = Vec::new();
        for &id in &self.devices {
            if open.iter().all(|device| device.id() != id) {
                open.push(host.device(id).map_err(Fail::usage)?);
            }
        }
        let assembly = Assembly {
            cut: self.cut(),
            layers: self.layers,
            schedule: self.schedule,
            table: self.table,
            devices: self.devices,
            loss: Loss::CrossEntropy,
            optimizer,
            seed: config.run.seed.u64(),
        };
        let mut assembled = assembly
            .build_to(&host, turn)
            .map_err(|error| match error {
                AssemblyError::Plan(error) => Fail::usage(error),
                error => Fail::run(error),
            })?;
        drop(open);
        if let Some(weights) = self.weights {
            model_folder::fill(&mut assembled.pipeline, weights)?;
        }
        Ok(assembled)
    }
}
