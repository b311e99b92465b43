//! Captures and graphs by calls of the driver.

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
};

use crate::driver::{Address, Gpu, N, call, first_of, ok};

/// Begins a capture.
pub fn begin(stream: CUstream) -> CUresult {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    call!(sys::cuStreamBeginCapture_v2, stream, mode)
}

/// Ends a capture: its graph.
pub fn end(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = std::ptr::null_mut();
    ok(call!(sys::cuStreamEndCapture, stream, &mut graph))?;
    Ok(graph)
}

/// The node that was captured last.
pub fn last(stream: CUstream) -> Result<CUgraphNode, CUresult> {
    let (mut graph, mut nodes) = (std::ptr::null_mut(), std::ptr::null());
    let (mut id, mut count) = (0, 0);
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    ok(call!(
        sys::cuStreamGetCaptureInfo_v3,
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        std::ptr::null_mut(),
        &mut count
    ))?;
    assert_eq!(count, 1);
    Ok(first_of(nodes))
}

/// A graph that can be launched.
pub fn ready(graph: CUgraph) -> Result<CUgraphExec, CUresult> {
    let mut ready = std::ptr::null_mut();
    ok(call!(
        sys::cuGraphInstantiateWithFlags,
        &mut ready,
        graph,
        0
    ))?;
    Ok(ready)
}

pub fn launch(graph: CUgraphExec, stream: CUstream) -> CUresult {
    call!(sys::cuGraphLaunch, graph, stream)
}

/// y = x · by in a graph, and the node of that.
pub fn scaling(
    gpu: &Gpu,
    stream: CUstream,
    x: Address,
    y: Address,
    by: f32,
) -> Result<(CUgraph, CUgraphNode), CUresult> {
    ok(begin(stream))?;
    ok(gpu.scale(stream, x, y, N as u64, by))?;
    let node = last(stream)?;
    Ok((end(stream)?, node))
}

/// Other numbers to multiply by, from the next launch on.
pub fn change(
    gpu: &Gpu,
    graph: CUgraphExec,
    node: CUgraphNode,
    [x, y]: [Address; 2],
    by: f32,
) -> CUresult {
    let n = N as u64;
    let mut arguments: [*mut c_void; 4] = [
        (&raw const x).cast_mut().cast(),
        (&raw const y).cast_mut().cast(),
        (&raw const n).cast_mut().cast(),
        (&raw const by).cast_mut().cast(),
    ];
    let params = sys::CUDA_KERNEL_NODE_PARAMS {
        func: gpu.kernel("scale_f32"),
        gridDimX: 2,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 256,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    call!(sys::cuGraphExecKernelNodeSetParams_v2, graph, node, &params)
}
