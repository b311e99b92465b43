//! Results of the stages and of the loss stage of all ranks, on every rank or on rank 0.

use std::error::Error;

use crate::executor::across::{unreadable, unsendable};
use crate::executor::failure::PipelineError;
use crate::executor::far::Far;
use crate::executor::loss_stage::LossStage;
use crate::executor::pipeline::Pipeline;
use crate::executor::stage::Stage;
use crate::executor::wire::{Codec, Reader, Writer};

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// [`gather`](Self::gather) with the results of the stages of all ranks, on every rank.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_across<R, E>(
        &mut self,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<R>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather_at(Self::near, codec, visit)
    }

    /// [`gather_across`](Self::gather_across) with the results of all replicas: for each its stages in model order.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_replicas<R, E>(
        &mut self,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<Vec<R>>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather_replicas_at(|_, _, _| true, codec, visit)
    }

    /// [`gather_across`](Self::gather_across) for rank 0: the others get the results of their own stages.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_at_root<R, E>(
        &mut self,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<R>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather_at(
            |far, from, to| Self::near(far, from, to) && to == 0,
            codec,
            visit,
        )
    }

    /// [`gather_replicas`](Self::gather_replicas) for rank 0: the others get the results of their own stages.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_replicas_at_root<R, E>(
        &mut self,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<Vec<R>>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather_replicas_at(|_, _, to| to == 0, codec, visit)
    }

    /// Whether two ranks are of one replica.
    fn near(far: &Far<S::Flow>, from: usize, to: usize) -> bool {
        far.replica_of(from) == far.replica_of(to)
    }

    fn gather_at<R, E>(
        &mut self,
        tells: impl Fn(&Far<S::Flow>, usize, usize) -> bool,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<R>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let all = self.gather_replicas_at(tells, codec, visit)?;
        Ok(all.into_iter().flatten().collect())
    }

    /// The results by replica; `tells` says whether the first of two ranks tells the second its own.
    fn gather_replicas_at<R, E>(
        &mut self,
        tells: impl Fn(&Far<S::Flow>, usize, usize) -> bool,
        codec: &impl Codec<R>,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<Vec<R>>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let call = self.begin_call();
        let own = self.visit_own(call, visit);
        let Some(far) = self.mailboxes.far() else {
            let own = own?;
            return Ok(vec![own.into_iter().map(|(_, result)| result).collect()]);
        };
        let (world, rank) = (&far.world, far.world.rank());
        let packed = own.and_then(|own| {
            let mut out = Writer::default();
            for (stage, result) in own {
                out.number(stage);
                codec.pack(result, &mut out).map_err(unsendable(world))?;
            }
            Ok(out.finish())
        });
        let parcels = self.exchange(call, packed, &|to| tells(far, rank, to))?;
        let (stages, each) = (self.schedule.stages(), world.ranks() / far.replicas);
        let mut results: Vec<Option<R>> = Vec::new();
        results.resize_with(far.replicas * stages, || None);
        for (from, parcel) in parcels.into_iter().enumerate() {
            if from != rank && !tells(far, from, rank) {
                continue;
            }
            let results = &mut results[far.replica_of(from) * stages..][..stages];
            let mut parcel = Reader::new(parcel);
            let unreadable = unreadable(world, from);
            for _ in self.stages_of(rank / each * each + from % each) {
                let stage = parcel.number().map_err(&unreadable)?;
                let result = codec.unpack(&mut parcel).map_err(&unreadable)?;
                if let Some(place) = results.get_mut(stage) {
                    *place = Some(result);
                }
            }
        }
        let mut results = results.into_iter();
        let replicas = 0..far.replicas;
        let replicas = replicas.map(|_| results.by_ref().take(stages).flatten().collect());
        Ok(replicas.collect())
    }

    /// [`with_loss_stage`](Self::with_loss_stage), with its result on every rank.
    ///
    /// # Errors
    /// As [`with_loss_stage`](Self::with_loss_stage).
    pub fn with_loss_stage_across<R, E>(
        &mut self,
        codec: &impl Codec<R>,
        visit: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> Result<R, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (call, device) = (self.begin_call(), self.last_device());
        let own = self.visit_loss_stage(call, visit);
        let Some(far) = self.mailboxes.far() else {
            return own;
        };
        let own = match own {
            Err(PipelineError::Elsewhere { .. }) => Ok(None),
            own => own.map(Some),
        };
        let world = &far.world;
        let packed = own.and_then(|own| {
            let mut out = Writer::default();
            if let Some(own) = own {
                codec.pack(own, &mut out).map_err(unsendable(world))?;
            }
            Ok(out.finish())
        });
        let mut parcels = self.exchange(call, packed, &|to| far.is_near(to))?;
        let parcel = parcels.swap_remove(far.rank_of[device]);
        codec
            .unpack(&mut Reader::new(parcel))
            .map_err(unreadable(world, far.rank_of[device]))
    }
}
