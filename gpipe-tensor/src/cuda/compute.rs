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

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::arena::Arena;
use super::asked::Asked;
use super::blas::Blas;
use super::context::Context;
use super::entry::{Launch, Pointer};
use super::graph::Graph;
use super::product::{Added, Product};
use super::replays::Replays;
use super::shortage::Pause;
use super::stream::{Event, Stream};
use crate::error::{Error, Result};
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

/// Where the memory of a buffer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The driver's pool.
    Pool,
    /// A range of the arena.
    Arena,
    /// The driver's pool, as the arena had no room.
    Beside,
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

    /// Allocates memory of the pool for later operations, as [`Stream::alloc`]; arenas of the device that nobody uses make
    /// room for it.
    pub fn alloc(&self, bytes: usize) -> Result<CUdeviceptr> {
        self.context().spares.make_room(|| {
            // Nothing else is asked of the stream while it is captured.
            let mut held = self.lock();
            match (self.stream.alloc(bytes), &mut held) {
                (Err(Error::OutOfMemory { .. }), Some(record)) if !record.freed.is_empty() => {
                    self.catch_up(record)?;
                    self.stream.alloc(bytes)
                }
                (other, _) => other,
            }
        })
    }

    /// Frees the arena if nobody uses it, for others whom memory is short for; whether it did.
    pub(super) fn give_arena_back(&self) -> Result<bool> {
        match &mut self.lock() {
            Some(record) if record.arena.is_idle() && record.arena.bytes() > 0 => {
                record.pause.begin(self.context().spares.shortages());
                self.put_arena(record, None)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether there is an arena. Takes no lock.
    pub(super) fn has_arena(&self) -> bool {
        self.has_arena.load(Ordering::Relaxed)
    }

    /// Whether memory ran out since the last step began, of which arenas or graphs have some that the next step does
    /// without.
    pub fn is_short(&self) -> bool {
        let shortages = self.context().spares.shortages();
        self.lock()
            .is_some_and(|record| record.pause.is_new(shortages))
    }

    /// Frees memory of the pool after the operations so far.
    ///
    /// # Safety
    /// As [`Stream::free`].
    pub unsafe fn free(&self, at: CUdeviceptr) -> Result<()> {
        match &mut self.lock() {
            Some(record) if at != 0 && !record.asked.is_empty() => {
                record.freed.push(at);
                Ok(())
            }
            // SAFETY: the caller vouches for it.
            _ => unsafe { self.stream.free(at) },
        }
    }

    /// Uninitialized memory for later operations, and where it is from: of the arena within an action.
    pub(super) fn take(&self, bytes: usize) -> Result<(CUdeviceptr, Home)> {
        if bytes == 0 || !self.is_in_action() {
            return Ok((self.alloc(bytes)?, Home::Pool));
        }
        if let Some(at) = self.take_range(bytes) {
            return Ok((at, Home::Arena));
        }
        match self.alloc(bytes) {
            Ok(at) => Ok((at, Home::Beside)),
            Err(error) => {
                self.forget_beside(bytes);
                Err(error)
            }
        }
    }

    /// A range of the arena. If there is no room, the caller has memory elsewhere, which counts as beside the arena.
    pub(super) fn take_range(&self, bytes: usize) -> Option<CUdeviceptr> {
        let mut held = self.lock();
        let record = held.as_mut()?;
        let at = match record.pause.is_now() {
            true => None,
            false => record.arena.take(bytes),
        };
        match at {
            None => record.arena.lies_beside(bytes),
            #[cfg(feature = "emulated")]
            Some(at) => {
                let is_taken = true;
                record.asked.push(Asked::Range {
                    at,
                    bytes,
                    is_taken,
                });
            }
            #[cfg(not(feature = "emulated"))]
            Some(_) => {}
        }
        at
    }

    /// Gives back memory of [`take`](Self::take), for operations after those so far.
    ///
    /// # Safety
    /// Only earlier operations of this handle, or work that this stream waits for, use it; and it is given back only once.
    pub(super) unsafe fn give(&self, at: CUdeviceptr, bytes: usize, home: Home) -> Result<()> {
        match (home, &mut self.lock()) {
            (Home::Arena, Some(record)) => {
                let was_taken = record.arena.give(at);
                debug_assert!(was_taken, "it is a range of the arena");
                #[cfg(feature = "emulated")]
                {
                    record.asked.push(Asked::Range {
                        at,
                        bytes,
                        is_taken: false,
                    });
                    if !record.puts_together() {
                        return self.catch_up(record);
                    }
                }
                return Ok(());
            }
            (Home::Beside, Some(record)) => record.arena.left_beside(bytes),
            _ => {}
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.free(at) }
    }

    /// Counts memory no more that the arena had no room for.
    pub(super) fn forget_beside(&self, bytes: usize) {
        if let Some(record) = &mut self.lock() {
            record.arena.left_beside(bytes);
        }
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

    /// Runs a kernel; nothing if there are no blocks to run.
    ///
    /// # Safety
    /// As [`Stream::launch`]; memory that the handle gives up stays as it is until what was asked for before is done.
    pub unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        if self.is_put_together(launch.blocks > 0, || Asked::Launch(launch.clone())) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.launch(launch) }
    }

    /// Sets `n` words of 32 bits.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Stream::fill`].
    pub unsafe fn fill(&self, at: CUdeviceptr, word: u32, n: usize) -> Result<()> {
        if self.is_put_together(n > 0, || Asked::Fill { at, word, n }) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.fill(at, word, n) }
    }

    /// Copies within the device.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Stream::copy`].
    pub unsafe fn copy(&self, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<()> {
        if self.is_put_together(bytes > 0, || Asked::Copy { to, from, bytes }) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy(to, from, bytes) }
    }

    /// [`copy`](Self::copy) that is no part of a graph, of memory whose address will not come again.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    pub(super) unsafe fn copy_alone(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        let _held = self.caught_up()?;
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy(to, from, bytes) }
    }

    /// Makes the handle of cuBLAS, if there is none yet, with the context of the thread.
    pub fn open_blas(&self) -> Result<()> {
        self.with_blas(|_| Ok(()))
    }

    /// Whether cuBLASLt has an algorithm for a product to which something is added, for
    /// [`multiply_with`](Self::multiply_with).
    pub fn adds(&self, product: Product, added: &Added) -> Result<bool> {
        self.with_blas(|blas| Ok(blas.lt_for(product, added)?.is_some()))
    }

    /// Multiplies matrices, after [`open_blas`](Self::open_blas).
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Blas::run`].
    pub unsafe fn multiply(&self, product: Product, places: [Pointer; 3]) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.put_or_ask(Asked::Product(product, places)) }
    }

    /// Writes a product plus what is added to it to the third place, where the library [`adds`](Self::adds).
    ///
    /// # Safety
    /// As [`multiply`](Self::multiply), for what is added too.
    pub unsafe fn multiply_with(
        &self,
        product: Product,
        added: Added,
        places: [Pointer; 3],
    ) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.put_or_ask(Asked::Sum(product, added, places)) }
    }

    /// Puts a product behind the others of the action, or asks for it now.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Asked::ask`].
    unsafe fn put_or_ask(&self, product: Asked) -> Result<()> {
        if self.is_put_together(true, || product.clone()) {
            return Ok(());
        }
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller vouches for it.
        unsafe { product.ask(&self.stream, blas.as_mut()) }
    }

    /// Calls with the handle of cuBLAS, made at the first call; its context is the thread's.
    fn with_blas<T>(&self, act: impl FnOnce(&mut Blas) -> Result<T>) -> Result<T> {
        // Nothing else is asked of the stream while it is captured.
        let _held = self.lock();
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        let blas = match &mut *blas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.stream, self.tf32)?),
        };
        self.context().bind()?;
        act(blas)
    }

    /// Puts the operation behind the others of the action, if one is under way.
    fn is_put_together(&self, does_something: bool, asked: impl FnOnce() -> Asked) -> bool {
        let Some(record) = &mut self.lock() else {
            return false;
        };
        if record.puts_together() {
            if does_something {
                record.asked.push(asked());
            }
            return true;
        }
        if record.is_open {
            let is_short = record.pause.is_now();
            let counts = &mut record.replays.counts;
            let reason = match is_short {
                true => &mut counts.short,
                false => &mut counts.first,
            };
            *reason += u64::from(does_something);
        }
        false
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

    /// Puts a piece of this size, or none, in the place of the arena's, which nobody uses. Without memory for it there is none
    /// for some steps.
    fn put_arena(&self, record: &mut Record, bytes: Option<u64>) -> Result<()> {
        // Operations that used ranges of the piece before come before its end, and graphs name addresses in it.
        self.catch_up(record)?;
        record.replays.clear();
        if let Some(before) = record.arena.replace(None) {
            // SAFETY: nobody has a range of it: only earlier operations use it, and it is freed once.
            unsafe { self.stream.free(before) }?;
            self.has_arena.store(false, Ordering::Relaxed);
        }
        let Some(bytes) = bytes else { return Ok(()) };
        // The pool keeps what actions had of it so far, in pieces that need not make one of this size.
        self.context().trim()?;
        match self.stream.alloc(bytes as usize) {
            Ok(at) => {
                record.arena.replace(Some((at, bytes)));
                self.has_arena.store(true, Ordering::Relaxed);
            }
            Err(Error::OutOfMemory { .. }) => {
                record.pause.begin(self.context().spares.shortages());
            }
            Err(error) => return Err(error),
        }
        Ok(())
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
