//! Starting the workers, which allocates the memory of a run.

use gpipe_layers::Optimizer;
use gpipe_remat::{Assembled, Assembly, AssemblyError, TrainingLoss};
use gpipe_report::numbers;
use gpipe_sched::LossStage;
use gpipe_tensor::{Device, Host, Tensors};

use super::Setup;
use crate::config::{ScheduleChoice, TrainConfig};
use crate::error::{Error, Result};
use crate::launch::check_replicas;
use crate::nccl::{chosen, with_nccl};
use crate::precision;

impl Setup {
    /// Starts workers for training, with the configured loss.
    ///
    /// # Errors
    /// [`Error::Input`] if a device cannot be used or the plan is refused; [`Error::Run`] if memory does not
    /// suffice or a worker fails; those of reading the weights.
    pub fn assemble(self, config: &TrainConfig) -> Result<Assembled> {
        let (optimizer, loss) = (Some(self.optimizer.clone()), config.loss());
        self.start(config, optimizer, move |last, transit| {
            TrainingLoss::new(loss, last, transit)
        })
    }

    /// Starts forward-only workers for [`evaluate`](crate::evaluate), which of a model of images counts what is predicted for each
    /// class.
    ///
    /// # Errors
    /// As [`assemble`](Self::assemble).
    pub fn assemble_for_evaluation(self, config: &TrainConfig) -> Result<Assembled> {
        let loss = config.loss().of_evaluation();
        let has_classes = config.model.is_classifier();
        self.start(config, None, move |last, transit| {
            let end = TrainingLoss::new(loss, last, transit);
            match has_classes {
                true => end.counting_predictions(),
                false => end,
            }
        })
    }

    /// Starts forward-only workers that end in a loss stage built by `loss_stage` from the device of the
    /// last stage and the transit device.
    ///
    /// # Errors
    /// As [`assemble`](Self::assemble).
    pub fn assemble_to<T: LossStage<Tensors> + 'static>(
        self,
        config: &TrainConfig,
        loss_stage: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        self.start(config, None, loss_stage)
    }

    fn start<T: LossStage<Tensors> + 'static>(
        self,
        config: &TrainConfig,
        optimizer: Option<Optimizer>,
        loss_stage: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        check_replicas(self.world.as_deref(), config)?;
        let host = self
            .host(config, optimizer.is_some())
            .map_err(Error::input)?;
        self.start_on(host, config, optimizer, loss_stage)
    }

    /// Starts workers for training on the devices of a host.
    ///
    /// # Errors
    /// As [`assemble`](Self::assemble).
    #[cfg(feature = "cuda")]
    pub(crate) fn assemble_on(self, host: Host, config: &TrainConfig) -> Result<Assembled> {
        let (optimizer, loss) = (Some(self.optimizer.clone()), config.loss());
        self.start_on(host, config, optimizer, move |last, transit| {
            TrainingLoss::new(loss, last, transit)
        })
    }

    fn start_on<T: LossStage<Tensors> + 'static>(
        self,
        host: Host,
        config: &TrainConfig,
        optimizer: Option<Optimizer>,
        loss_stage: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        let (host, reason) = with_nccl(host, self.world.as_deref(), config)?;
        // Check all devices before starting workers, and keep them open until then.
        let mut open: Vec<Device> = Vec::new();
        // Of one replica.
        let ranks = self.world.as_ref().map_or(1, |world| world.ranks());
        let ranks = ranks / config.pipeline.replicas.get();
        // Those of other ranks are alike, or not of this host.
        for &id in self.devices.iter().take(self.devices.len() / ranks) {
            if open.iter().all(|device| device.id() != id) {
                open.push(host.device(id).map_err(Error::input)?);
            }
        }
        let assembly = Assembly {
            cut: self.cut(),
            layers: self.layers,
            schedule: self.schedule,
            remat_plan: self.table,
            devices: self.devices,
            loss: config.loss(),
            optimizer,
            seed: config.run.seed.u64(),
        };
        let mut assembled = assembly
            .build_over(&host, self.world.as_ref(), loss_stage)
            .map_err(|error| match error {
                AssemblyError::Plan(error) => Error::input(error),
                error => Error::run(error),
            })?;
        drop(open);
        if let Some(reason) = reason {
            assembled.nccl = Some(Err(reason));
        }
        chosen(config, assembled.nccl.as_ref())?;
        for weights in self.weights {
            weights.load(&mut assembled.pipeline)?;
        }
        // From here on, not before: kernels were compiled when the devices were opened, and weights
        // may come from a slow disk.
        let watchdog = config.run.watchdog.deadline(None);
        assembled.pipeline.set_deadline(watchdog);
        Ok(assembled)
    }

    /// Refuses workers of which the ranks of a replica cannot have the same number each.
    ///
    /// # Errors
    /// [`Error::Invalid`] with a number of stages or ranks that fits.
    pub(super) fn check_ranks(&self, config: &TrainConfig) -> Result<()> {
        let replicas = config.pipeline.replicas.get();
        if let Some(ranks) = self.world.as_ref().map(|world| world.ranks())
            && !ranks.is_multiple_of(replicas)
        {
            return Err(Error::uneven_replicas(replicas as u64, ranks as u64));
        }
        let (workers, ranks) = (self.schedule.devices(), self.ranks);
        if workers.is_multiple_of(ranks) {
            return Ok(());
        }
        let stages = workers.next_multiple_of(ranks) * (self.schedule.stages() / workers);
        let mend = match *config.pipeline.schedule {
            ScheduleChoice::Kind(_) if stages <= self.layers.len() => {
                format!("use `pipeline.stages = {stages}`")
            }
            _ => {
                let fewer = (1..ranks).rev().find(|&few| workers.is_multiple_of(few));
                format!("start {}", fewer.unwrap_or(1) * replicas)
            }
        };
        Err(Error::invalid(format!(
            "{} on {ranks} ranks: each rank has the same number, so {mend}",
            numbers::counted(workers as u64, "worker")
        )))
    }

    /// The host with its threads, precision and kernel cache.
    pub(crate) fn host(&self, config: &TrainConfig, trains: bool) -> gpipe_tensor::Result<Host> {
        let products = precision::products(config, trains);
        let host = precision::host(config, config.pipeline.threads.get(), products)?;
        #[cfg(feature = "cuda")]
        let host = match config.run.tf32 {
            true => host.with_tf32(),
            false => host,
        };
        #[cfg(feature = "cuda")]
        let host = match config.run.cuda_graphs {
            true => host.with_cuda_graphs(),
            false => host,
        };
        #[cfg(feature = "cuda")]
        if let Some(folder) = &self.kernel_cache {
            let kernels = crate::kernel_cache::KernelFolder::new(folder);
            return Ok(host.with_kernel_cache(Box::new(kernels)));
        }
        Ok(host)
    }
}
