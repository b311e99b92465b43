//! CUDA graphs: work of a stream that is captured once, and launched by one call from then on.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock, PoisonError};

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use smallvec::SmallVec;

use super::context::Context;
use super::entry::{Launch, THREADS};
use super::raw_handle::RawHandle;
use super::status::Status;
use super::stream::Stream;
use crate::{Error, Result};

/// A captured graph, ready to be launched. Its owner holds a lock: the driver's graphs may not be used by two
/// threads at once.
pub(super) struct Graph {
    /// What was captured, whose nodes name those of `ready`.
    captured: RawHandle<CUgraph>,
    ready: RawHandle<CUgraphExec>,
    context: Arc<Context>,
}

/// The node of a kernel.
pub(super) type Node = RawHandle<CUgraphNode>;

/// A capture under way; only [`Graph::capture`] makes one.
pub(super) struct Capture<'a>(&'a Stream);

impl Graph {
    /// Whether the driver has all calls: those of CUDA 12.3.
    pub fn is_supported() -> bool {
        static SUPPORTED: OnceLock<bool> = OnceLock::new();
        *SUPPORTED.get_or_init(|| {
            let names = [
                "cuStreamBeginCapture_v2",
                "cuStreamEndCapture",
                "cuStreamGetCaptureInfo_v3",
                "cuGraphInstantiateWithFlags",
                "cuGraphExecKernelNodeSetParams_v2",
                "cuGraphLaunch",
                "cuGraphExecDestroy",
                "cuGraphDestroy",
            ];
            names.into_iter().all(|name| {
                // SAFETY: the library is loaded, as a device was opened; the symbol is only looked for.
                unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
            })
        })
    }

    /// The graph of what `work` asks of the stream; none of it is done. The calls that another thread makes
    /// meanwhile on other streams are its own.
    ///
    /// # Errors
    /// Those of the work, and of the driver, which ends the capture in any case.
    pub fn capture(stream: &Stream, work: impl FnOnce(&Capture) -> Result<()>) -> Result<Self> {
        let context = stream.context();
        context.bind()?;
        let held = context.capturing.lock();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and of the thread's context.
        unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) }
            .check("cuStreamBeginCapture_v2")?;
        let worked = work(&Capture(stream));
        let mut captured = std::ptr::null_mut();
        // SAFETY: this thread began the capture of this stream; the call writes one name.
        let ended = unsafe { sys::cuStreamEndCapture(stream.raw(), &mut captured) }
            .check("cuStreamEndCapture");
        drop(held);
        let mut graph = Self {
            captured: RawHandle(captured),
            ready: RawHandle(std::ptr::null_mut()),
            context: context.clone(),
        };
        worked.and(ended)?;
        // SAFETY: the capture has ended well; the call writes one name.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.ready.0, captured, 0) }
            .check("cuGraphInstantiateWithFlags")?;
        Ok(graph)
    }

    /// Gives a kernel's node other arguments, for the launches from now on.
    ///
    /// # Safety
    /// The node is one of this graph, of the same kernel in as many blocks with as much shared memory; the pointers
    /// are as those of [`Stream::launch`] whenever the graph is launched.
    pub unsafe fn set_arguments(&mut self, node: Node, launch: &Launch) -> Result<()> {
        self.context.bind()?;
        let module = self.context.module();
        let func = module.and_then(|module| module.function(launch.form));
        let func = func.ok_or_else(|| Error::Cuda {
            call: "cuGraphExecKernelNodeSetParams_v2",
            message: format!("there is no kernel {}", launch.form.name()),
        })?;
        let args = launch.args.iter().map(|arg| arg.address().cast_mut());
        let mut args: SmallVec<[*mut c_void; 16]> = args.collect();
        let params = sys::CUDA_KERNEL_NODE_PARAMS {
            func,
            gridDimX: launch.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: THREADS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            kernelParams: args.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        // SAFETY: the caller vouches for the node; the driver copies the arguments, one for each parameter, before
        // it answers. Launches under way keep theirs.
        unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.ready.0, node.0, &params) }
            .check("cuGraphExecKernelNodeSetParams_v2")
    }

    /// Does the captured work after that of the stream so far.
    ///
    /// # Safety
    /// As for each part of the work, had it been asked of this stream now. The stream is the one of the capture, so that
    /// one launch follows the other.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the graph is alive and of the stream's context; the caller vouches for the work.
        let status = unsafe { sys::cuGraphLaunch(self.ready.0, stream.raw()) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            // The step may be made once more without graphs.
            self.context.spares.count();
        }
        status.check("cuGraphLaunch")
    }
}

impl Capture<'_> {
    /// The node of what was captured last.
    pub fn last(&self) -> Result<Node> {
        let (mut graph, mut nodes) = (std::ptr::null_mut(), std::ptr::null());
        let (mut id, mut count) = (0, 0);
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive and captured by this thread. The call writes to each of these; edges have
        // no data here, and where they had, it would say so.
        unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                self.0.raw(),
                &mut status,
                &mut id,
                &mut graph,
                &mut nodes,
                std::ptr::null_mut(),
                &mut count,
            )
        }
        .check("cuStreamGetCaptureInfo_v3")?;
        if count != 1 || nodes.is_null() {
            return Err(Error::Cuda {
                call: "cuStreamGetCaptureInfo_v3",
                message: format!("{count} nodes are the last of a stream, {status:?}"),
            });
        }
        // SAFETY: as many names as were counted lie there until the next call about this stream.
        Ok(RawHandle(unsafe { *nodes }))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        if !self.context.bind().unwrap_or(false) {
            return;
        }
        // SAFETY: both are destroyed once; what is under way is done still.
        unsafe {
            if !self.ready.0.is_null() {
                let _destroyed = sys::cuGraphExecDestroy(self.ready.0);
            }
            if !self.captured.0.is_null() {
                let _destroyed = sys::cuGraphDestroy(self.captured.0);
            }
        }
    }
}
