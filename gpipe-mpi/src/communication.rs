//! The communication thread, the only one that calls MPI, as a transport: how it starts and ends.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpipe_sched::{Deliver, Gauge, Parcel, Transport};

use crate::error::Error;
use crate::launcher::Launcher;
use crate::library::{self, FoundLibrary};
use crate::pulse::{self, GRACE, ORPHANED, PULSE};
use crate::traffic::{LONGEST_NAP, Shared, communicate, lock};

/// MPI starts on all ranks together. The time for that is the silence of a rank, times this: hosts are slow to load a program,
/// and some MPIs wait without end for a rank that ended before it came so far.
const STARTS: u32 = 10;
/// How often the start and the end look whether the launcher is gone.
const LOOK: Duration = Duration::from_millis(50);

/// The ranks that one MPI launcher started, as a transport.
///
/// Dropped without [`close`](Transport::close), it ends its thread as that does: what was sent leaves, and the other ranks
/// are waited for, since MPI ends on all ranks together. If they do not end within the time `silence` of
/// [`start`](Self::start) (10 s at least; 1 s where one is lost), this process may say so for another 10 s, after which it
/// is ended with all ranks (`MPI_Abort`). A transport whose last owner is a delivery, on the communication thread, does
/// not wait.
pub struct MpiTransport {
    shared: Arc<Shared>,
    rank: usize,
    hosts: Vec<String>,
    library: FoundLibrary,
    /// The process that started this one.
    parent: Option<u32>,
    /// How long a rank may be silent.
    silence: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How the communication thread ended.
    end: Mutex<mpsc::Receiver<Result<(), String>>>,
}

impl MpiTransport {
    /// Opens MPI and starts it: the library at `library`, or else that of the launcher, or else one that the
    /// loader finds. A rank that gives no sign of life for the time `silence`, of three seconds or more, fails, as all do when
    /// their launcher has ended.
    ///
    /// # Errors
    /// If there is none, it is not that of the launcher, or it cannot be started; if some rank has not started it after ten
    /// times `silence`. The thread in MPI stays behind then: the process should end.
    pub fn start(
        library: Option<&Path>,
        launcher: Option<&Launcher>,
        silence: Duration,
    ) -> Result<Self, Error> {
        // Signs come every second, and some are late.
        let silence = silence.max(3 * PULSE);
        let (shared, parent) = (Arc::new(Shared::default()), pulse::parent());
        let (ready, answer) = mpsc::channel();
        let (library, launcher) = (library.map(Path::to_owned), launcher.cloned());
        let of_thread = shared.clone();
        let (over, end) = mpsc::channel();
        let work = move || {
            // Linux adds 50 µs to every nap unless told otherwise; where it cannot be told, naps are that much longer.
            #[cfg(target_os = "linux")]
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            // MPI is ended by the thread that started it.
            let begun = library::start(library.as_deref(), launcher.as_ref());
            let begun = begun.and_then(|(mut mpi, library)| {
                let hosts = mpi.hosts()?;
                Ok((mpi, (hosts, library)))
            });
            let mut mpi = match begun {
                Ok((mpi, told)) => {
                    let _ = ready.send(Ok((mpi.rank(), told)));
                    mpi
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let result = communicate(mpi.as_mut(), &of_thread, silence);
            let failed = result.is_err();
            let _ = over.send(result);
            if failed {
                // It ends this process too, which has something to say first, or to save; and it may not return. The others hear
                // nothing of this rank, and end it after that time.
                let since = Instant::now();
                let limit = || match of_thread.is_over.load(Ordering::Acquire) {
                    true => GRACE,
                    false => silence,
                };
                while !of_thread.is_closed.load(Ordering::Acquire) && since.elapsed() < limit() {
                    thread::park_timeout(LONGEST_NAP);
                }
                mpi.abort(1);
            }
        };
        let thread = thread::Builder::new().name("gpipe-mpi".to_owned());
        let thread = thread.spawn(work);
        let thread = thread.map_err(|error| Error::Thread(error.to_string()))?;
        let (limit, since) = (silence.saturating_mul(STARTS), Instant::now());
        let (rank, (hosts, library)) = loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => break answer?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Thread("it panicked".to_owned()));
                }
                Err(_) if pulse::parent() != parent => {
                    return Err(Error::Thread(ORPHANED.to_owned()));
                }
                Err(_) if since.elapsed() > limit => {
                    let seconds = limit.as_secs();
                    return Err(Error::NotStarted { seconds });
                }
                Err(_) => {}
            }
        };
        Ok(Self {
            shared,
            rank,
            hosts,
            library,
            parent,
            silence,
            thread: Mutex::new(Some(thread)),
            end: Mutex::new(end),
        })
    }

    /// The library.
    pub fn library(&self) -> &FoundLibrary {
        &self.library
    }

    fn wake(&self) {
        if let Some(thread) = &*lock(&self.thread) {
            thread.thread().unpark();
        }
    }

    /// Waits for the end of the communication thread.
    fn end(&self) -> Result<(), String> {
        self.shared.is_over.store(true, Ordering::Release);
        self.wake();
        let Some(thread) = lock(&self.thread).take() else {
            return Ok(());
        };
        if thread.thread().id() == thread::current().id() {
            return Ok(());
        }
        // MPI itself may not come back, where a rank, a link or the launcher is gone. Messages, the other ranks and MPI have a
        // time each.
        let limit = 2 * pulse::grace(self.silence) + GRACE;
        let since = Instant::now();
        loop {
            match lock(&self.end).recv_timeout(LOOK) {
                Ok(Ok(())) => {
                    let ended = thread.join();
                    return ended.map_err(|_| "the communication thread panicked".to_owned());
                }
                Ok(failed) => return failed,
                Err(_) if pulse::parent() != self.parent => return Err(ORPHANED.to_owned()),
                Err(RecvTimeoutError::Timeout) if since.elapsed() < limit => {}
                Err(_) => return Err("MPI did not end".to_owned()),
            }
        }
    }
}

impl fmt::Debug for MpiTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MpiTransport(rank {} of {})",
            self.rank,
            self.hosts.len()
        )
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.end();
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.hosts.len()
    }

    fn host(&self, rank: usize) -> String {
        self.hosts.get(rank).cloned().unwrap_or_default()
    }

    fn count(&self, gauge: Arc<Gauge>) {
        // Called once.
        let _ = self.shared.gauge.set(gauge);
    }

    fn start(&self, deliver: Arc<Deliver>) {
        *lock(&self.shared.deliver) = Some(deliver);
        self.wake();
    }

    fn send(&self, to: usize, parcel: Parcel) {
        if let Some(gauge) = self.shared.gauge.get() {
            gauge.add(parcel.bytes());
        }
        lock(&self.shared.queue).push_back((to, parcel));
        self.wake();
    }

    fn waiting(&self, waits: bool) {
        if waits {
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            self.wake();
        } else {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn close(&self) -> Result<(), String> {
        self.shared.is_closed.store(true, Ordering::Release);
        self.end()
    }
}
