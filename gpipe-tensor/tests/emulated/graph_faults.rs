//! What a program must not do with captures, graphs and arenas, and what the emulated host says of it.

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::captures::{begin, change, end, launch, ready, scaling};
use crate::driver::{
    Address, Gpu, N, Pinned, alloc, bytes, call, copy_in, copy_out, free, ok, range, record,
    synchronize, wait,
};
use crate::{Host, run};

/// What the device's last synchronisation says.
type Said = Result<CUresult, CUresult>;

/// A program that does wrong, and the words that its fault must have; without, it is right.
type Case = (&'static str, fn(&Gpu, CUstream) -> Said, &'static str);

const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

const CASES: [Case; 23] = [
    ("right", right, ""),
    ("changed while it runs", changed, ""),
    ("ranges", ranges, ""),
    (
        "wait on the host",
        |gpu, stream| refused(gpu, stream, synchronize),
        "cuStreamSynchronize is called",
    ),
    (
        "wait for everything",
        |gpu, stream| refused(gpu, stream, |_| call!(sys::cuCtxSynchronize,)),
        "cuCtxSynchronize is called",
    ),
    (
        "wait of another thread",
        |gpu, stream| {
            let context = gpu.context as usize;
            let other = move || {
                ok(call!(sys::cuCtxSetCurrent, context as sys::CUcontext)).expect("a context");
                call!(sys::cuCtxSynchronize,)
            };
            refused(gpu, stream, |_| {
                std::thread::spawn(other).join().expect("no panic")
            })
        },
        "cuCtxSynchronize is called",
    ),
    (
        "question",
        |gpu, stream| refused(gpu, stream, |stream| call!(sys::cuStreamQuery, stream)),
        "cuStreamQuery is called",
    ),
    (
        "question about an event",
        question,
        "cuEventQuery is called",
    ),
    (
        "wait for another stream",
        other_stream,
        "cuStreamWaitEvent is called",
    ),
    ("event", event, "cuEventRecord is called"),
    (
        "allocation",
        |gpu, stream| {
            refused(gpu, stream, |stream| {
                alloc(stream, 4).err().unwrap_or(CUresult::CUDA_SUCCESS)
            })
        },
        "an allocation in the order",
    ),
    ("freeing", freeing, "cuMemFreeAsync is called"),
    (
        "other allocation",
        |gpu, stream| refused(gpu, stream, |_| call!(sys::cuMemAlloc_v2, &mut 0, 4)),
        "cuMemAlloc_v2 is called",
    ),
    (
        "pageable memory",
        pageable,
        "a copy from or to the host is called",
    ),
    ("another thread", other_thread, "ends in another thread"),
    (
        "graph after its end",
        dead_graph,
        "a graph is used that is none",
    ),
    (
        "node after its end",
        dead_node,
        "a node is named of a graph that is no more",
    ),
    (
        "node of another graph",
        other_node,
        "a node is named that is none of the graph",
    ),
    (
        "two streams at once",
        two_streams,
        "on a second stream while it runs",
    ),
    ("memory freed before", freed_memory, "freed"),
    ("range given back", given_back, "in a range that nobody has"),
    ("range of two", of_two, "of which another has a part"),
    ("behind a range", behind, "wrote"),
];

/// Does what the argument says, and prints what came out.
pub fn program(argument: &str) -> bool {
    let gpu = Gpu::open(0).expect("a device");
    let stream = gpu.stream();
    let case = CASES.iter().find(|(name, ..)| *name == argument);
    let said = case.expect("a case").1(&gpu, stream);
    println!("said {:?}", said.unwrap_or_else(|early| early));
    true
}

/// Memory of ones, and memory of nothing.
fn two(stream: CUstream) -> Result<[Address; 2], CUresult> {
    let both = [alloc(stream, bytes(N))?, alloc(stream, bytes(N))?];
    ok(call!(
        sys::cuMemsetD32Async,
        both[0],
        1.0_f32.to_bits(),
        N,
        stream
    ))?;
    Ok(both)
}

fn is_all(stream: CUstream, x: Address, value: f32) -> Said {
    let numbers = Pinned::new();
    ok(copy_out(stream, numbers.0, x, N))?;
    let said = synchronize(stream);
    assert!(said != CUresult::CUDA_SUCCESS || numbers.are_all(value));
    Ok(said)
}

/// What is captured is done by a launch, not before, as often as it is launched.
fn right(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let (graph, _) = scaling(gpu, stream, x, x, 2.0)?;
    ok(is_all(stream, x, 1.0)?)?;
    let graph = ready(graph)?;
    for _ in 0..3 {
        ok(launch(graph, stream))?;
    }
    ok(gpu.scale(stream, x, y, N as u64, 10.0))?;
    is_all(stream, y, 80.0)
}

/// A launch has the numbers of its time, and so has the next.
fn changed(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let (graph, node) = scaling(gpu, stream, x, x, 2.0)?;
    let graph = ready(graph)?;
    ok(launch(graph, stream))?;
    ok(change(gpu, graph, node, [x, y], 3.0))?;
    ok(launch(graph, stream))?;
    // Destroyed while it runs: what was launched is done.
    ok(call!(sys::cuGraphExecDestroy, graph))?;
    ok(is_all(stream, x, 2.0)?)?;
    is_all(stream, y, 6.0)
}

/// A call within a capture is refused, and the capture ends without a graph.
fn refused(gpu: &Gpu, stream: CUstream, wrong: impl FnOnce(CUstream) -> CUresult) -> Said {
    let [x, y] = two(stream)?;
    ok(synchronize(stream))?;
    ok(begin(stream))?;
    ok(gpu.scale(stream, x, y, N as u64, 2.0))?;
    let said = wrong(stream);
    assert_ne!(said, CUresult::CUDA_SUCCESS);
    assert_eq!(
        end(stream),
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    // The stream goes on.
    ok(synchronize(stream))?;
    Ok(said)
}

fn question(gpu: &Gpu, stream: CUstream) -> Said {
    let event = record(gpu, gpu.stream());
    refused(gpu, stream, |_| call!(sys::cuEventQuery, event))
}

fn other_stream(gpu: &Gpu, stream: CUstream) -> Said {
    let event = record(gpu, gpu.stream());
    refused(gpu, stream, |stream| wait(stream, event))
}

fn event(gpu: &Gpu, stream: CUstream) -> Said {
    let event = record(gpu, gpu.stream());
    refused(gpu, stream, |stream| {
        call!(sys::cuEventRecord, event, stream)
    })
}

fn freeing(gpu: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, 4)?;
    refused(gpu, stream, |stream| free(stream, x))
}

fn pageable(gpu: &Gpu, stream: CUstream) -> Said {
    let x = alloc(stream, bytes(N))?;
    let numbers = vec![0.0; N];
    refused(gpu, stream, |stream| {
        copy_in(stream, x, numbers.as_ptr(), N)
    })
}

fn other_thread(_: &Gpu, stream: CUstream) -> Said {
    ok(begin(stream))?;
    let at = stream as usize;
    let ended = std::thread::spawn(move || end(at as CUstream).err());
    let said = ended.join().expect("no panic");
    assert_eq!(said, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    Ok(ILLEGAL)
}

fn dead_graph(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let graph = ready(scaling(gpu, stream, x, y, 2.0)?.0)?;
    ok(call!(sys::cuGraphExecDestroy, graph))?;
    Ok(launch(graph, stream))
}

fn dead_node(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let (graph, node) = scaling(gpu, stream, x, y, 2.0)?;
    let executable = ready(graph)?;
    ok(call!(sys::cuGraphDestroy, graph))?;
    ok(launch(executable, stream))?;
    Ok(change(gpu, executable, node, [x, y], 3.0))
}

fn other_node(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let graph = ready(scaling(gpu, stream, x, y, 2.0)?.0)?;
    let (_, node) = scaling(gpu, stream, x, y, 2.0)?;
    Ok(change(gpu, graph, node, [x, y], 3.0))
}

fn two_streams(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    ok(synchronize(stream))?;
    let graph = ready(scaling(gpu, stream, x, y, 2.0)?.0)?;
    ok(launch(graph, stream))?;
    ok(launch(graph, gpu.stream()))?;
    Ok(ILLEGAL)
}

/// A graph does not hold the memory that it uses.
fn freed_memory(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = two(stream)?;
    let graph = ready(scaling(gpu, stream, x, y, 2.0)?.0)?;
    ok(launch(graph, stream))?;
    ok(free(stream, y))?;
    ok(launch(graph, stream))?;
    Ok(synchronize(stream))
}

/// An arena of two ranges, each with the bytes behind it that are nobody's.
fn arena(stream: CUstream) -> Result<[Address; 2], CUresult> {
    let room = bytes(N).next_multiple_of(256) + 256;
    let at = alloc(stream, 2 * room)?;
    Ok([at, at + room as u64])
}

/// Ranges that change hands, also within a graph.
fn ranges(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = arena(stream)?;
    let size = bytes(N);
    ok(begin(stream))?;
    range(stream, x, size, true);
    ok(call!(
        sys::cuMemsetD32Async,
        x,
        1.0_f32.to_bits(),
        N,
        stream
    ))?;
    range(stream, y, size, true);
    ok(gpu.scale(stream, x, y, N as u64, 2.0))?;
    range(stream, x, size, false);
    range(stream, x, size - 8, true);
    ok(gpu.scale(stream, y, x, N as u64 - 2, 2.0))?;
    range(stream, x, size - 8, false);
    let graph = ready(end(stream)?)?;
    ok(launch(graph, stream))?;
    ok(is_all(stream, y, 2.0)?)?;
    range(stream, y, size, false);
    ok(launch(graph, stream))?;
    is_all(stream, y, 2.0)
}

fn given_back(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = arena(stream)?;
    range(stream, x, bytes(N), true);
    ok(call!(sys::cuMemsetD32Async, x, 1, N, stream))?;
    range(stream, y, bytes(N), true);
    range(stream, x, bytes(N), false);
    ok(gpu.scale(stream, x, y, N as u64, 2.0))?;
    Ok(synchronize(stream))
}

fn of_two(_: &Gpu, stream: CUstream) -> Said {
    let [x, _] = arena(stream)?;
    range(stream, x, bytes(N), true);
    range(stream, x + 256, bytes(10), true);
    Ok(synchronize(stream))
}

fn behind(gpu: &Gpu, stream: CUstream) -> Said {
    let [x, y] = arena(stream)?;
    range(stream, x, bytes(N), true);
    range(stream, y, bytes(N), true);
    let numbers = alloc(stream, bytes(N + 1))?;
    ok(call!(sys::cuMemsetD32Async, numbers, 7, N + 1, stream))?;
    ok(gpu.scale(stream, numbers, x, N as u64 + 1, 2.0))?;
    Ok(synchronize(stream))
}

#[test]
fn faults_of_graphs_and_arenas_are_found() {
    let Some(host) = Host::get() else { return };
    for (name, _, words) in CASES {
        let outcome = run(host, "graph-fault", name, "order=lazy");
        let right = "said CUDA_SUCCESS";
        if words.is_empty() {
            assert!(outcome.is_right(), "{name}: {outcome:?}");
            assert!(outcome.stdout.contains(right), "{name}: {outcome:?}");
            continue;
        }
        let found = outcome.faults.iter().any(|fault| fault.contains(words));
        assert!(found, "{name}: {outcome:?}");
        assert_eq!(outcome.code, Some(0), "{name}: {outcome:?}");
        assert!(!outcome.stdout.contains(right), "{name}: {outcome:?}");
    }
    println!(
        "{} faults found",
        CASES.iter().filter(|case| !case.2.is_empty()).count()
    );
}
