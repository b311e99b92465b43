//! Channels: tensors from a GPU of this process to one of another process, in one direction, by NCCL.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::{Comm, Event, Gpu, Nccl, UNIQUE_ID_BYTES};
use crate::{DType, Device, DeviceId, Error, Host, Result, Shape, Tensor};

/// The elements of the first transfer, by which a channel is tried.
const TRIAL: usize = 1024;

/// One of the two ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// Tensors leave here.
    Sender,
    /// They arrive here.
    Receiver,
}

/// One end of a channel from a GPU to another one of another process. Tensors arrive in the order in which they were
/// sent: the receiver asks for each with its shape, which it has learned otherwise, as often as the sender sends.
///
/// ```text
///  stage     ── kernels ──●                         ╭─► kernels ──
///                         ╰─► wait                  │
///  channel                ── send ── free     recv ─●
/// ```
///
/// A channel has a handle of its own at both ends; tensors are handed to it and from it without a copy.
pub struct NcclChannel {
    comm: Comm,
    device: Device,
    end: ChannelEnd,
    state: Mutex<State>,
    /// After the last transfer.
    last: Mutex<Option<Event>>,
}

impl fmt::Debug for NcclChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclChannel")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// How far a channel has come.
enum State {
    /// The ends look for each other.
    Connecting,
    /// The first transfer is asked for.
    Asking(Tensor),
    /// It is on its way.
    Moving(Tensor, Event),
    Open,
}

impl NcclChannel {
    /// Begins one end of the channel named `id` ([`Nccl::unique_id`]) on a CUDA device of `host`. Returns at once;
    /// [`advance_all`](Self::advance_all) goes on.
    ///
    /// # Errors
    /// Those of opening the device; [`Error::Argument`] for one that is no GPU; [`Error::Cuda`].
    pub fn begin(
        nccl: &Nccl,
        host: &Host,
        device: DeviceId,
        id: &[u8; UNIQUE_ID_BYTES],
        end: ChannelEnd,
    ) -> Result<Self> {
        let device = host.device(device)?;
        let rank = match end {
            ChannelEnd::Sender => 0,
            ChannelEnd::Receiver => 1,
        };
        let comm = Comm::begin(nccl, gpu_of(&device)?, id, rank)?;
        Ok(Self {
            comm,
            device,
            end,
            state: Mutex::new(State::Connecting),
            last: Mutex::default(),
        })
    }

    /// Goes on to connect the ends of all channels of this process and to try each with one transfer, without waiting; true once all are
    /// open. From then on, no call waits for the other end.
    ///
    /// A transfer holds a GPU up until the other end has come to it, and what connects may wait for all that a GPU does (NCCL's User Guide,
    /// "Using multiple NCCL communicators concurrently"). All are therefore connected before the first is tried, and they are tried one
    /// after the other: processes that share several list them in the same order.
    ///
    /// # Errors
    /// [`Error::Cuda`] if the ends cannot be connected, or what was sent is not what arrived.
    pub fn advance_all(channels: &[&Self]) -> Result<bool> {
        let mut are_connected = true;
        for channel in channels {
            are_connected &= channel.is_connected()?;
        }
        if !are_connected {
            return Ok(false);
        }
        for channel in channels {
            if !channel.advance()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_connected(&self) -> Result<bool> {
        match *lock(&self.state) {
            State::Connecting => self.comm.is_settled(),
            _ => Ok(true),
        }
    }

    /// Goes on to try a channel that is connected; true once it is open. Connections between GPUs are made by the first transfer.
    fn advance(&self) -> Result<bool> {
        let gpu = gpu_of(&self.device)?;
        let mut state = lock(&self.state);
        match &*state {
            State::Open => return Ok(true),
            State::Connecting if self.comm.is_settled()? => *state = State::Asking(self.ask(gpu)?),
            State::Asking(_) if self.comm.is_settled()? => {
                let event = gpu.record_end()?;
                if let State::Asking(tensor) = std::mem::replace(&mut *state, State::Connecting) {
                    *state = State::Moving(tensor, event);
                }
            }
            State::Moving(tensor, event) if event.is_done()? => {
                if tensor.to_f32s()? != pattern() {
                    return Err(Error::Cuda {
                        call: "ncclRecv",
                        message: "what arrived is not what was sent".to_owned(),
                    });
                }
                *state = State::Open;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Asks for the first transfer.
    fn ask(&self, gpu: &Gpu) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(&self.device, [TRIAL])?;
        if self.end == ChannelEnd::Sender {
            tensor = Tensor::from_f32(&self.device, [TRIAL], pattern())?;
        }
        let (at, bytes) = (tensor.written("nccl", gpu, DType::F32)?, tensor.bytes());
        // SAFETY: the tensor lives on this handle, has as many bytes, and is kept until the transfer is done.
        unsafe {
            match self.end {
                ChannelEnd::Sender => self.comm.send(gpu, at, bytes, false)?,
                ChannelEnd::Receiver => self.comm.receive(gpu, at, bytes, false)?,
            }
        }
        Ok(tensor)
    }

    /// Sends the elements of a tensor of a handle to the same GPU after the operations so far of that handle, or after
    /// those before [`Tensor::send`]. Does not wait for the other end to take them.
    ///
    /// # Errors
    /// [`Error::Cuda`], also if the channel was ended.
    pub fn send(&self, tensor: Tensor) -> Result<()> {
        if tensor.elements() == 0 {
            return Ok(());
        }
        let gpu = gpu_of(&self.device)?;
        let tensor = tensor.receive(&self.device)?;
        let operand = tensor.operand("nccl", gpu, tensor.dtype())?;
        let bytes = tensor.dtype().bytes() * tensor.elements();
        // SAFETY: the operand lives on this handle, which frees it behind the transfer.
        unsafe { self.comm.send(gpu, operand.at, bytes, true) }?;
        *lock(&self.last) = Some(gpu.record_end()?);
        Ok(())
    }

    /// The next tensor that the other end sends, of floats of this type in this shape; `transit` counts it until somebody
    /// [receives](Tensor::receive) it, whose operations wait for the elements. Does not wait for them itself.
    ///
    /// # Errors
    /// Those of allocating the tensor; [`Error::Cuda`], also if the channel was ended.
    pub fn receive(&self, dtype: DType, shape: Shape, transit: &Device) -> Result<Tensor> {
        let gpu = gpu_of(&self.device)?;
        let mut tensor = Tensor::empty_of(&self.device, shape, dtype)?;
        if tensor.elements() > 0 {
            let (at, bytes) = (tensor.written("nccl", gpu, dtype)?, tensor.bytes());
            // SAFETY: as in `send`.
            unsafe { self.comm.receive(gpu, at, bytes, true) }?;
            *lock(&self.last) = Some(gpu.record_end()?);
        }
        tensor.send(transit)
    }

    /// Whether NCCL found a fault while a transfer is on its way.
    ///
    /// # Errors
    /// [`Error::Cuda`] with NCCL's text.
    pub fn check(&self) -> Result<()> {
        let is_done = lock(&self.last).as_ref().map(Event::is_done);
        // The other end may be gone when nothing is left to be passed.
        if is_done.transpose()?.unwrap_or(true) {
            return Ok(());
        }
        self.comm.check()
    }

    /// Ends the channel: a GPU that waits for its other end waits no more, and what was not received yet is undefined.
    /// Any thread may call it at any time.
    pub fn abort(&self) {
        self.comm.abort();
    }
}

/// The elements of the first transfer.
fn pattern() -> Vec<f32> {
    (0..TRIAL).map(|i| (i * 7 + 1) as f32).collect()
}

fn gpu_of(device: &Device) -> Result<&Gpu> {
    device.gpu().ok_or_else(|| Error::Argument {
        op: "nccl",
        message: format!("{} is no GPU: use cuda:N", device.id()),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
