//! Products with a bias or a sum, by cuBLASLt and without it.

use std::collections::BTreeSet;
use std::fs;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulPreferenceAttributes_t as Attribute, cublasStatus_t,
};
use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DType, Device, DeviceId, GraphCounts, Host, Result, Tensor, init_uniform};

use crate::driver::{Gpu, alloc, bytes, call, copy_in, synchronize};
use crate::host::{Host as Emulated, LIBRARIES};
use crate::{command, run};

const STORED: [DType; 2] = [DType::F32, DType::BF16];

/// The products of one shape with everything that may be added to them; both elements of a pair are the same product.
fn products(device: &Device, stored: DType, [m, n, k]: [usize; 3]) -> Vec<[Vec<f32>; 2]> {
    let random = |shape: &[usize], seed: &str| {
        let floats = init_uniform(device, shape, 0.5, 0, seed).expect("memory");
        floats.to_dtype(stored).expect("a type of its own")
    };
    let (x, w) = (random(&[m, k], "x"), random(&[k, n], "w"));
    let (bias, onto) = (random(&[n], "bias"), random(&[m, n], "onto"));
    let of = |y: Result<Tensor>| y.and_then(|y| y.to_f32s()).expect("a product");
    let mut results = Vec::new();
    for _ in 0..2 {
        let with_bias = ops::matmul(Layout::Nn, &x, &w, Some(&bias));
        let both = ops::matmul_onto(Layout::Nn, &x, &w, Some(&bias), &onto);
        let onto = ops::matmul_onto(Layout::Nn, &x, &w, None, &onto);
        results.push([with_bias, both, onto].map(of));
    }
    let [first, second] = [0, 1].map(|i| results[i].clone());
    first.into_iter().zip(second).map(<[_; 2]>::from).collect()
}

/// Prints the launches of products by their names, and whether they are the same twice and right.
pub fn program(_: &str) -> bool {
    let host = Host::new(1).expect("one thread").with_traced_launches();
    let device = host.device(DeviceId::Cuda(0)).expect("a device");
    let processor = host.device(DeviceId::Cpu).expect("the processor");
    // The last has rows that do not begin at multiples of 16 bytes.
    for shape in [[16, 24, 40], [40, 16, 8], [16, 30, 40]] {
        for stored in STORED {
            let got = products(&device, stored, shape);
            let launches = device.take_launches().expect("no fault").expect("traced");
            let names: BTreeSet<&str> = launches.launches.iter().map(|l| l.name.as_str()).collect();
            names.iter().for_each(|name| println!("{name}"));
            for ([first, second], [wanted, _]) in
                got.iter().zip(products(&processor, DType::F32, shape))
            {
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(first), bits(second));
                let tolerance = if stored == DType::F32 { 1e-5 } else { 0.05 };
                for (got, wanted) in first.iter().zip(wanted) {
                    assert!((got - wanted).abs() < tolerance, "{got}, not {wanted}");
                }
            }
        }
    }
    true
}

/// Steps of an action, of which the first makes the arena.
const STEPS: u64 = 8;

/// Products with something added to them in an action of their own, whose operands have other contents in every step and lie
/// in one of `places` places: all results, and what became of the operations.
fn in_actions(host: &Host, stored: DType, places: u64) -> Result<(Vec<f32>, Option<GraphCounts>)> {
    let device = host.device(DeviceId::Cuda(0))?;
    let (m, n, k) = (16, 24, 40);
    let shapes: [&[usize]; 6] = [&[m, k], &[k, n], &[n], &[n], &[m, n], &[m, n]];
    let random = |shape: &[usize], step: u64, name: &str| {
        init_uniform(&device, shape, 0.5, step, name)?.to_dtype(stored)
    };
    let make = |_| {
        let operands = shapes.iter().map(|shape| random(shape, 0, "zeros"));
        operands.collect::<Result<Vec<_>>>()
    };
    let mut operands = (0..places).map(make).collect::<Result<Vec<_>>>()?;
    let mut seen = Vec::new();
    for step in 0..STEPS {
        device.begin_step()?;
        let operands = &mut operands[(step % places) as usize];
        for (index, operand) in operands.iter_mut().enumerate() {
            operand.copy_from(&random(shapes[index], step, &index.to_string())?)?;
        }
        let [x, w, bias, other, onto, last] = &operands[..] else {
            return Ok((Vec::new(), None));
        };
        device.begin_action();
        let results = [
            ops::matmul(Layout::Nn, x, w, Some(bias))?,
            ops::matmul(Layout::Nn, x, w, Some(other))?,
            ops::matmul_onto(Layout::Nn, x, w, None, onto)?,
            ops::matmul_onto(Layout::Nn, x, w, Some(bias), last)?,
        ];
        device.end_action()?;
        for result in results {
            seen.extend(result.to_f32s()?);
        }
    }
    Ok((seen, device.graph_counts()))
}

/// Whether graphs of nothing but such products have the bits of single launches.
pub fn captured(_: &str) -> bool {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let mut right = true;
    for (stored, places) in STORED
        .into_iter()
        .flat_map(|stored| [(stored, 1), (stored, 2)])
    {
        let single = Host::new(1).expect("one thread");
        let (wanted, _) = in_actions(&single, stored, places).expect("no fault");
        let graphs = Host::new(1).expect("one thread").with_cuda_graphs();
        let (got, counts) = in_actions(&graphs, stored, places).expect("no fault");
        let counts = counts.expect("graphs");
        // The first step is another list, as there is no arena, and each list is captured at its second time.
        let launches = STEPS - 1 - places;
        assert_eq!((counts.captured, counts.launches), (places, launches));
        assert_eq!((counts.in_graphs, counts.arguments_set), (4 * launches, 0));
        right &= bits(got) == bits(wanted);
    }
    right
}

/// The library's own functions as the backend must not call them.
pub fn wrong(argument: &str) -> bool {
    let ok = cublasStatus_t::CUBLAS_STATUS_SUCCESS;
    let gpu = Gpu::open(0).expect("a device");
    let stream = gpu.stream();
    let mut handle = std::ptr::null_mut();
    assert_eq!(call!(sys::cublasLtCreate, &mut handle), ok);
    let (mut desc, mut layout, mut preference) = Default::default();
    let (single, compute) = (
        sys::cudaDataType::CUDA_R_32F,
        cublasComputeType_t::CUBLAS_COMPUTE_32F,
    );
    let stored = match argument {
        "sums" => sys::cudaDataType::CUDA_R_16BF,
        _ => single,
    };
    assert_eq!(
        call!(sys::cublasLtMatmulDescCreate, &mut desc, compute, single),
        ok
    );
    assert_eq!(
        call!(
            sys::cublasLtMatrixLayoutCreate,
            &mut layout,
            stored,
            16,
            16,
            16
        ),
        ok
    );
    assert_eq!(
        call!(sys::cublasLtMatmulPreferenceCreate, &mut preference),
        ok
    );
    let least: u32 = if argument == "right" { 4 } else { 256 };
    for attribute in [
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        let at = (&raw const least).cast();
        assert_eq!(
            call!(
                sys::cublasLtMatmulPreferenceSetAttribute,
                preference,
                attribute,
                at,
                4
            ),
            ok
        );
    }
    let mut result = sys::cublasLtMatmulHeuristicResult_t {
        algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspaceSize: 0,
        state: ok,
        wavesCount: 0.0,
        reserved: [0; 4],
    };
    let mut found = 0;
    let status = call!(
        sys::cublasLtMatmulAlgoGetHeuristic,
        handle,
        desc,
        layout,
        layout,
        layout,
        layout,
        preference,
        1,
        &mut result,
        &mut found
    );
    assert_eq!((status, found), (ok, 1));
    let x = alloc(stream, bytes(300)).expect("memory");
    copy_in(stream, x, vec![0.5_f32; 300].as_ptr(), 300);
    if argument == "another" {
        result.algo.data[0] ^= 1;
    }
    if argument == "ended" {
        assert_eq!(call!(sys::cublasLtMatmulDescDestroy, desc), ok);
    }
    // An address that is a multiple of 4 bytes only.
    let at = x + if argument == "aligned" || argument == "right" {
        4
    } else {
        0
    };
    let (one, zero) = (1.0_f32, 0.0_f32);
    call!(
        sys::cublasLtMatmul,
        handle,
        desc,
        (&raw const one).cast(),
        at as *const _,
        layout,
        x as *const _,
        layout,
        (&raw const zero).cast(),
        x as *const _,
        layout,
        x as *mut _,
        layout,
        &result.algo,
        std::ptr::null_mut(),
        0,
        stream.cast()
    );
    synchronize(stream);
    true
}

#[test]
fn what_is_added_to_a_product_takes_no_launch_of_its_own() {
    let Some(host) = Emulated::get() else { return };
    let calls = host
        .links(&LIBRARIES)
        .expect("links")
        .join("calls-of-epilogues");
    let _ = fs::remove_file(&calls);
    let settings = format!("seed=1 calls={}", calls.display());
    let outcome = run(host, "epilogues", "", &settings);
    assert!(outcome.is_right(), "{outcome:?}");
    let has = |name: &str| outcome.stdout.lines().any(|line| line == name);
    for name in [
        "product 16 x 24 x 40 Nn bf16 to bf16, bias",
        "product 16 x 24 x 40 Nn bf16 to bf16, onto",
        "product 40 x 16 x 8 Nn f32 to f32, onto, bias",
        // Rows that are no multiple of 16 bytes.
        "product 16 x 30 x 40 Nn bf16 to bf16, added",
        "repeat_bf16",
    ] {
        assert!(has(name), "{name} in {outcome:?}");
    }
    assert!(!has("product 16 x 24 x 40 Nn bf16 to bf16, added"));
    // Two shapes of two types, with a bias, with it and a sum, with a sum alone; the first two differ in what is
    // read, but not for the library.
    let calls = fs::read_to_string(&calls).expect("the calls");
    for line in [
        "cublasLtCreate 1",
        "cublasLtMatmul 24",
        "cublasLtMatmulAlgoGetHeuristic 8",
        "cublasLtMatmulDescDestroy 8",
        "cublasLtDestroy 1",
    ] {
        assert!(calls.lines().any(|one| one == line), "{line} in {calls}");
    }
}

#[test]
fn graphs_of_epilogues_alone_have_the_bits_of_single_launches() {
    let Some(host) = Emulated::get() else { return };
    for seed in 0..10 {
        let outcome = run(host, "captured-epilogues", "", &format!("seed={seed}"));
        assert!(outcome.is_right(), "{seed}: {outcome:?}");
    }
    // The bias of another product; another sum, and no bias.
    for astray in [2, 4] {
        let settings = format!("seed=1 astray={astray}");
        let outcome = run(host, "captured-epilogues", "", &settings);
        assert_ne!(outcome.code, Some(0), "{settings}: {outcome:?}");
        assert!(
            outcome.faults.is_empty() && !outcome.stderr.contains("panicked"),
            "{outcome:?}"
        );
    }
}

#[test]
fn without_the_library_or_its_algorithms_launches_of_their_own_do_the_same() {
    let Some(host) = Emulated::get() else { return };
    let [cuda, blas, nvrtc, _] = LIBRARIES;
    for (libraries, settings) in [
        (LIBRARIES.to_vec(), "lt=0"),
        (LIBRARIES.to_vec(), "lt=110803"),
        (vec![cuda, blas, nvrtc], ""),
    ] {
        let outcome = host.run_with(&libraries, &mut command("epilogues", ""), settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
        let lines = || outcome.stdout.lines();
        assert!(lines().any(|line| line == "repeat_f32"), "{outcome:?}");
        assert!(!lines().any(|line| line.ends_with("bias")), "{outcome:?}");
    }
}

#[test]
fn wrong_uses_of_the_library_are_found() {
    let Some(host) = Emulated::get() else { return };
    for (argument, words) in [
        ("right", ""),
        ("aligned", "less aligned"),
        ("another", "another product"),
        ("ended", "after its end"),
        ("sums", "may round its partial sums"),
    ] {
        let outcome = run(host, "lt", argument, "seed=1");
        assert_eq!(outcome.code, Some(0), "{argument}: {outcome:?}");
        let found = outcome.faults.iter().any(|fault| fault.contains(words));
        assert_eq!(found, !words.is_empty(), "{argument}: {outcome:?}");
    }
}
