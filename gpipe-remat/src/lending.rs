//! Copies of parameters and optimizer states, which stay on their ranks until rank 0 asks for them, one tensor at a time,
//! or asks the rank that has them to write them itself: so no rank ever holds those of another.

mod lender;
mod others;

use std::sync::{Arc, Mutex, PoisonError};

use gpipe_sched::{Codec, LossStage, Pipeline, Reader, World, Writer};
use gpipe_tensor::safetensors::Stored;
use gpipe_tensor::{Device, Tensor, Tensors};

use crate::param_state::{ParamState, in_model_order};
use crate::wire::{get_form, put_form};
use crate::{Error, LayerStage, Result};
use lender::Gift;
pub use lender::{Answer, Lender};
use others::Borrowed;
pub use others::Others;

/// Of a stage, with their places in it and the rank that has them.
type OfStage = Vec<(usize, (usize, ParamState<Stored>))>;

/// Copies of values and optimizer states, in model order. Rank 0 has all: those of other ranks are fetched from there when
/// they are needed, as long as any of them is held. The other ranks have their own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lent {
    /// The copies.
    pub params: Vec<ParamState<Stored>>,
    /// The rank that holds each of them.
    pub ranks: Vec<usize>,
    /// Rank 0's way to the others.
    pub others: Option<Others>,
}

/// Copies the value and the optimizer state of every owner to new buffers on `device`, which later steps do not change, and
/// to which rank 0 fetches those of other ranks.
///
/// # Errors
/// If there is no room for the copies.
pub fn lend_owned<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    device: &Device,
) -> Result<(Lent, Lender)> {
    lend(pipeline, device, Tensor::copy_to)
}

/// As [`lend_owned`] after the last step of a pipeline: what lies on the processor is lent itself, without a copy. As long
/// as any of it is held, an update would fail ([`gpipe_tensor::Error::Shared`]).
///
/// # Errors
/// As [`lend_owned`].
pub fn lend_last<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    device: &Device,
) -> Result<(Lent, Lender)> {
    lend(pipeline, device, |tensor, device| {
        match tensor.device().id() == device.id() {
            true => Ok(tensor.clone()),
            false => tensor.copy_to(device),
        }
    })
}

fn lend<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    device: &Device,
    copy: fn(&Tensor, &Device) -> gpipe_tensor::Result<Tensor>,
) -> Result<(Lent, Lender)> {
    let copies = device.clone();
    let world = pipeline.world().cloned();
    let loans = Loans::new(world.clone(), device);
    let rank = loans.rank;
    let task = pipeline.during("the copy");
    let replica = task.replica();
    let owned = task.gather_replicas_at_root(&loans, move |_, stage| {
        let (mut owned, mut place) = (Vec::new(), 0);
        stage.try_owned(|param, owner, _| {
            if !param.tied && owner.unwrap_or(0) == replica {
                let copy = |tensor: &Tensor| copy(tensor, &copies).map(Stored::from);
                let state = ParamState {
                    name: param.name.clone(),
                    value: copy(param.exact()?)?,
                    state: param
                        .state
                        .iter()
                        .map(copy)
                        .collect::<std::result::Result<_, _>>()?,
                };
                owned.push((place, (rank, state)));
            }
            place += 1;
            Ok(())
        })?;
        Ok::<OfStage, Error>(owned)
    })?;
    let others = loans.borrowed.clone().map(Others);
    let lender = match world {
        Some(world) if rank > 0 => Lender::of(loans.gift(world)),
        _ => Lender::default(),
    };
    let (ranks, params) = in_model_order(owned).into_iter().unzip();
    let lent = Lent {
        params,
        ranks,
        others,
    };
    Ok((lent, lender))
}

/// Copies the value and the optimizer state of every owner, in model order, to new buffers on `device`,
/// which later steps do not change. Over several ranks rank 0 gets all, the others those that they give it.
///
/// # Errors
/// If there is no room for the copies.
pub fn copy_owned<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    device: &Device,
) -> Result<Vec<ParamState>> {
    let (Lent { params, .. }, mut lender) = lend_owned(pipeline, device)?;
    let fetched = params.into_iter().map(|param| {
        let ParamState { name, value, state } = param;
        let state = state.iter().map(Stored::get);
        Ok(ParamState {
            name,
            value: value.get()?,
            state: state.collect::<std::result::Result<_, _>>()?,
        })
    });
    let fetched = fetched.collect();
    lender.wait();
    fetched
}

/// The codec that sends where a copy is instead of the copy.
struct Loans {
    place: usize,
    /// The copies of this rank, by their numbers.
    own: Mutex<Vec<Tensor>>,
    /// Rank 0's way to those of others.
    borrowed: Option<Arc<Borrowed>>,
    rank: usize,
}

impl Loans {
    fn new(world: Option<Arc<World>>, device: &Device) -> Self {
        let rank = world.as_ref().map_or(0, |world| world.rank());
        // The same on all ranks, and another one each time.
        let place = world.as_ref().map_or(0, |world| world.call() as usize);
        let borrowed = world.filter(|_| rank == 0).map(|world| {
            let asked = (0..world.ranks()).map(|_| Mutex::new(0)).collect();
            let device = device.clone();
            Arc::new(Borrowed {
                world,
                device,
                place,
                asked,
            })
        });
        Self {
            place,
            own: Mutex::default(),
            borrowed,
            rank,
        }
    }

    fn pack_one(&self, stored: &Stored, out: &mut Writer) -> std::result::Result<(), String> {
        let tensor = stored.get().map_err(|error| error.to_string())?;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        out.number(own.len());
        put_form(stored.dtype(), stored.shape(), out)?;
        own.push(tensor);
        Ok(())
    }

    fn unpack_one(&self, rank: usize, from: &mut Reader) -> std::result::Result<Stored, String> {
        let number = from.number()?;
        let (dtype, shape) = get_form(from)?;
        if rank == self.rank {
            let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
            let tensor = own.get(number).ok_or("a copy that was never made")?;
            return Ok(tensor.clone().into());
        }
        let borrowed = self.borrowed.clone();
        let borrowed = borrowed.ok_or("a copy for another rank")?;
        Ok(Stored::later(dtype, shape, move || {
            borrowed
                .fetch(rank, number)
                .map_err(gpipe_tensor::Error::Fetch)
        }))
    }

    /// What this rank gives to rank 0.
    fn gift(self, world: Arc<World>) -> Gift {
        let own = self.own.into_inner();
        Gift {
            world,
            place: self.place,
            own: own.unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Codec<OfStage> for Loans {
    fn pack(&self, owned: OfStage, out: &mut Writer) -> std::result::Result<(), String> {
        out.number(self.rank);
        out.number(owned.len());
        owned.iter().try_for_each(|(place, (_, param))| {
            out.number(*place);
            out.text(&param.name);
            out.number(param.state.len());
            let mut tensors = std::iter::once(&param.value).chain(&param.state);
            tensors.try_for_each(|stored| self.pack_one(stored, out))
        })
    }

    fn unpack(&self, from: &mut Reader) -> std::result::Result<OfStage, String> {
        let rank = from.number()?;
        let params = 0..from.number()?;
        let params = params.map(|_| {
            let (place, name) = (from.number()?, from.text()?);
            let states = 0..from.number()?;
            let value = self.unpack_one(rank, from)?;
            let state = states.map(|_| self.unpack_one(rank, from));
            let state = state.collect::<std::result::Result<_, String>>()?;
            Ok((place, (rank, ParamState { name, value, state })))
        });
        params.collect()
    }
}
