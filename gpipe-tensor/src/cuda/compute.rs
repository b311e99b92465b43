//! The stream of a handle's operations. Within an action it puts them together, so that they are asked of the device as one
//! graph; whatever else is asked of the stream comes after them.
//!
//! ```text
//!  begin   launch  launch  product  launch …  record            launch …   end
//!    │        ╰───────┴───────┴────────┴─────────┤                 ╰─────────┤
//!    │                                 one graph, then the event        one graph
//! ```
//!
//! Buffers of an action lie in an arena, which needs no call of the driver and has the same addresses whenever actions
//! come in the same order.

mod memory;
mod operations;

pub(super) use memory::Home;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::arena::Arena;
use super::asked::Asked;
use super::blas::Blas;
use super::context::Context;
use super::graph::Graph;
use super::replays::Replays;
use super::shortage::Pause;
use super::stream::{Event, Stream};
use crate::error::Result;
use crate::graph_counts::GraphCounts;

/// The stream of a handle's operations.
pub(crate) struct Compute {
    stream: Stream,
    /// Created for the first product: a handle that never multiplies needs no workspace.
    blas: Mutex<Option<Blas>>,
    tf32: bool,
    /// Where operations become graphs.
    record: Option<Mutex<Record>>,
    /// Whether the arena has memory.
    has_arena: AtomicBool,
}

/// What was put together, and with what.
#[derive(Default)]
struct Record {
    /// Whether an action is under way.
    is_open: bool,
    /// Operations that the stream was not asked for yet.
    asked: Vec<Asked>,
    /// Memory of the pool to be freed behind them.
    freed: Vec<CUdeviceptr>,
    arena: Arena,
    /// While memory is short there is no arena and no graph.
    pause: Pause,
    replays: Replays,
}

impl Record {
    /// Whether operations wait for the end of the action. Without an arena their addresses will not come again, and what
    /// they free would be missed until then.
    fn puts_together(&self) -> bool {
        self.is_open && self.arena.bytes() > 0 && !self.pause.is_now()
    }
}

impl Compute {
    /// A new stream; with `graphs`, operations within actions become CUDA graphs, if the driver has those.
    pub fn new(context: &Arc<Context>, tf32: bool, graphs: bool) -> Result<Self> {
        let graphs = graphs && !context.is_on_paper() && Graph::is_supported();
        Ok(Self {
            stream: Stream::new(context)?,
            blas: Mutex::default(),
            tf32,
            record: graphs.then(Mutex::default),
            has_arena: AtomicBool::new(false),
        })
    }

    /// Whether products may round factors in f32 to TF32.
    pub fn tf32(&self) -> bool {
        self.tf32
    }

    /// The context that it works in.
    pub fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    /// The driver's name for it, for work after all operations so far.
    pub(super) fn raw(&self) -> Result<CUstream> {
        let _held = self.caught_up()?;
        Ok(self.stream.raw())
    }

    /// Records an event after all operations so far.
    pub fn record(&self) -> Result<Event> {
        let _held = self.caught_up()?;
        self.stream.record()
    }

    /// Records an event with its time.
    pub fn record_timed(&self) -> Result<Event> {
        let _held = self.caught_up()?;
        self.stream.record_timed()
    }

    /// Orders all later operations after an event of another stream.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _held = self.caught_up()?;
        self.stream.wait(event)
    }

    /// Waits on the host until all operations so far are done; reports their failures.
    pub fn synchronize(&self) -> Result<()> {
        drop(self.caught_up()?);
        self.stream.synchronize()
    }

    /// Makes the arena as large as actions so far wanted it, or frees it where memory ran out, if nobody uses it.
    pub fn begin_step(&self) -> Result<()> {
        let Some(record) = &mut self.lock() else {
            return Ok(());
        };
        record.is_open = false;
        self.catch_up(record)?;
        record.pause.begin_step(self.context().spares.shortages());
        if !record.arena.is_idle() {
            return Ok(());
        }
        match record.arena.wanted() {
            _ if record.pause.is_now() => match record.arena.bytes() {
                0 => Ok(()),
                _ => self.put_arena(record, None),
            },
            Some(bytes) => self.put_arena(record, Some(bytes)),
            None => Ok(()),
        }
    }

    /// Begins an action: operations are put together from now on.
    pub fn begin_action(&self) {
        if let Some(record) = &mut self.lock() {
            record.is_open = true;
        }
    }

    /// Ends the action.
    pub fn end_action(&self) -> Result<()> {
        let Some(record) = &mut self.lock() else {
            return Ok(());
        };
        record.is_open = false;
        self.catch_up(record)
    }

    /// Whether operations are put together now.
    pub(super) fn is_in_action(&self) -> bool {
        self.lock().is_some_and(|record| record.is_open)
    }

    /// What became of the operations of actions; none without graphs.
    pub fn graph_counts(&self) -> Option<GraphCounts> {
        let record = self.lock()?;
        let mut counts = record.replays.counts;
        counts.arena_bytes = record.arena.bytes();
        Some(counts)
    }

    fn lock(&self) -> Option<MutexGuard<'_, Record>> {
        let record = self.record.as_ref()?;
        Some(record.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the stream for all that was put together; nothing is put in between while the lock is held.
    fn caught_up(&self) -> Result<Option<MutexGuard<'_, Record>>> {
        let mut held = self.lock();
        if let Some(record) = &mut held {
            self.catch_up(record)?;
        }
        Ok(held)
    }

    fn catch_up(&self, record: &mut Record) -> Result<()> {
        if record.asked.is_empty() {
            return Ok(());
        }
        let asked = std::mem::take(&mut record.asked);
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: who asked for each vouched for its memory. What was given up since is freed below, or is a range of the
        // arena, whose next user comes behind this in the same stream.
        let ran = unsafe { record.replays.run(asked, &self.stream, blas.as_mut()) };
        let freed = record.freed.drain(..).map(|at| {
            // SAFETY: the memory was given up once, and operations that use it were asked for above.
            unsafe { self.stream.free(at) }
        });
        freed.fold(ran, Result::and)
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        // A destructor cannot report an error; memory is freed in any case.
        let _done = self.end_action();
        if let Some(record) = &mut self.lock()
            // After a fault a range may be kept for a copy that cannot be waited for.
            && record.arena.is_idle()
        {
            let _freed = self.put_arena(record, None);
        }
        let blas = self.blas.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(blas) = blas {
            blas.end(&self.stream);
        }
    }
}
