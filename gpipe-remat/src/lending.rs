//! Copies of parameters and optimizer states, which stay on their ranks until rank 0 asks for them, one tensor at a time:
//! so no rank ever holds those of another.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use gpipe_sched::{
    Codec, Label, LossStage, Parcel, Pipeline, PipelineError, Reader, World, Writer,
};
use gpipe_tensor::safetensors::Stored;
use gpipe_tensor::{Device, Tensor, Tensors};

use crate::param_state::{ParamState, in_model_order};
use crate::wire::{get_form, pack, put_form, unpack};
use crate::{Error, LayerStage, Result};

/// Of a stage, with their places in it.
type OfStage = Vec<(usize, ParamState<Stored>)>;

/// The thread of a rank that gives its copies to rank 0, until that needs no more of them. Dropped, it waits for the end.
#[derive(Debug, Default)]
pub struct Lender(Option<JoinHandle<()>>);

impl Lender {
    /// Waits until rank 0 needs no more copies, or cannot get them because a rank failed.
    pub fn wait(&mut self) {
        if let Some(thread) = self.0.take() {
            // It gives what it has; there is nothing of it that a panic could leave half done.
            let _ = thread.join();
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Copies the value and the optimizer state of every owner, in model order, to new buffers on `device`, which later steps
/// do not change. Rank 0 gets all: those of other ranks are fetched from there, to `device`, when they are needed, as long
/// as any of them is held. The other ranks get their own, and the thread that gives them away.
///
/// # Errors
/// If there is no room for the copies, or no thread.
pub fn lend_owned<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    device: &Device,
) -> Result<(Vec<ParamState<Stored>>, Lender)> {
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
) -> Result<(Vec<ParamState<Stored>>, Lender)> {
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
) -> Result<(Vec<ParamState<Stored>>, Lender)> {
    let copies = device.clone();
    let world = pipeline.world().cloned();
    let loans = Loans::new(world.clone(), device);
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
                owned.push((place, state));
            }
            place += 1;
            Ok(())
        })?;
        Ok::<OfStage, Error>(owned)
    })?;
    let lender = match world {
        Some(world) if world.rank() > 0 => Lender(Some(loans.lend(world)?)),
        _ => Lender::default(),
    };
    Ok((in_model_order(owned), lender))
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
    let (params, mut lender) = lend_owned(pipeline, device)?;
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

    /// Starts the thread that gives this rank's copies to rank 0.
    fn lend(self, world: Arc<World>) -> Result<JoinHandle<()>> {
        let own = self
            .own
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let place = self.place;
        let give = move || {
            let given = panic::catch_unwind(AssertUnwindSafe(|| give(&world, place, &own)));
            let given = given.unwrap_or_else(|_| Err("panicked".to_owned()));
            if let Err(fault) = given {
                // Rank 0 would wait for the copies that it asks for.
                let message = format!("the thread that gives copies of parameters away: {fault}");
                world.fail(&message, 1);
            }
        };
        let thread = thread::Builder::new().name("gpipe-lend".into()).spawn(give);
        thread.map_err(|source| PipelineError::Thread { device: 0, source }.into())
    }
}

/// Gives copies to rank 0, by their numbers, until it asks for no more or a rank fails.
fn give(world: &World, place: usize, own: &[Tensor]) -> std::result::Result<(), String> {
    for part in 0.. {
        let Ok(asked) = world.take_posted(0, label(place, part)) else {
            break;
        };
        let number = Reader::new(asked).number()?;
        if number == NO_MORE {
            break;
        }
        let tensor = own.get(number).ok_or("no copy has this number")?;
        let mut out = Writer::default();
        pack(tensor, &mut out)?;
        world.post(0, label(place, part), out.finish());
    }
    Ok(())
}

impl Codec<OfStage> for Loans {
    fn pack(&self, owned: OfStage, out: &mut Writer) -> std::result::Result<(), String> {
        out.number(self.rank);
        out.number(owned.len());
        owned.iter().try_for_each(|(place, param)| {
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
            Ok((place, ParamState { name, value, state }))
        });
        params.collect()
    }
}

/// Rank 0's way to the copies of other ranks. Dropped, it tells them that no more are needed.
struct Borrowed {
    world: Arc<World>,
    /// Of what arrives.
    device: Device,
    place: usize,
    /// By rank: how often it was asked; held while it is.
    asked: Vec<Mutex<usize>>,
}

/// Asked for when no more is needed: no copy has this number.
const NO_MORE: usize = usize::MAX;

impl Borrowed {
    fn fetch(&self, rank: usize, number: usize) -> std::result::Result<Tensor, String> {
        let asked = self.asked.get(rank).ok_or("no such rank")?;
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let label = label(self.place, *asked);
        self.world.post(rank, label, request(number));
        *asked += 1;
        let parcel = self.world.take_posted(rank, label);
        let parcel = parcel.map_err(|error| error.to_string())?;
        unpack(&mut Reader::new(parcel), &self.device)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        for (rank, asked) in self.asked.iter().enumerate().skip(1) {
            let asked = *asked.lock().unwrap_or_else(PoisonError::into_inner);
            self.world
                .post(rank, label(self.place, asked), request(NO_MORE));
        }
    }
}

fn label(place: usize, part: usize) -> Label {
    let call = Label::OF_NO_CALL;
    Label { call, place, part }
}

fn request(number: usize) -> Parcel {
    let mut out = Writer::default();
    out.number(number);
    out.finish()
}
