//! Products of matrices by the emulated cuBLAS, against a plain loop in double precision.

use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cublasStatus_t, cudaDataType,
};

use crate::driver::{Gpu, alloc, bytes, call, copy_in, copy_out, synchronize};
use crate::{Host, run};

/// Values that are exact in every type, different everywhere.
fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * 7 + seed * 13) % 31) as f32 / 8.0 - 1.75)
        .collect()
}

/// Every way of turning the operands, over a few shapes.
pub fn products(_: &str) -> bool {
    let gpu = Gpu::open(0).expect("a device");
    let stream = gpu.stream();
    let mut handle = std::ptr::null_mut();
    let made = call!(sys::cublasCreate_v2, &mut handle);
    assert_eq!(made, cublasStatus_t::CUBLAS_STATUS_SUCCESS);
    call!(sys::cublasSetStream_v2, handle, stream.cast());
    let operations = [
        cublasOperation_t::CUBLAS_OP_N,
        cublasOperation_t::CUBLAS_OP_T,
    ];
    for (m, n, k) in [(1, 1, 1), (5, 3, 4), (33, 17, 65), (128, 1, 31)] {
        for (turn_a, turn_b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (a, b, c) = (values(m * k, 1), values(k * n, 2), values(m * n, 3));
            let mut places = [0; 3];
            for (place, values) in places.iter_mut().zip([&a, &b, &c]) {
                *place = alloc(stream, bytes(values.len())).expect("memory");
                copy_in(stream, *place, values.as_ptr(), values.len());
            }
            let (alpha, beta) = (2.0_f32, 0.5_f32);
            let float = cudaDataType::CUDA_R_32F;
            let status = call!(
                sys::cublasGemmEx_64,
                handle,
                operations[turn_a],
                operations[turn_b],
                m as i64,
                n as i64,
                k as i64,
                (&raw const alpha).cast(),
                places[0] as *const _,
                float,
                if turn_a == 1 { k } else { m } as i64,
                places[1] as *const _,
                float,
                if turn_b == 1 { n } else { k } as i64,
                (&raw const beta).cast(),
                places[2] as *mut _,
                float,
                m as i64,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT
            );
            assert_eq!(status, cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            let mut got = vec![0.0_f32; m * n];
            copy_out(stream, got.as_mut_ptr(), places[2], m * n);
            for j in 0..n {
                for i in 0..m {
                    let products = (0..k).map(|l| {
                        let a = if turn_a == 1 {
                            a[i * k + l]
                        } else {
                            a[l * m + i]
                        };
                        let b = if turn_b == 1 {
                            b[l * n + j]
                        } else {
                            b[j * k + l]
                        };
                        f64::from(a) * f64::from(b)
                    });
                    let wanted = 2.0 * products.sum::<f64>() + 0.5 * f64::from(c[j * m + i]);
                    let got = f64::from(got[j * m + i]);
                    assert!(
                        (got - wanted).abs() < 1e-3,
                        "{m} {n} {k}: {got} is not {wanted}"
                    );
                }
            }
        }
    }
    synchronize(stream) == cudarc::driver::sys::CUresult::CUDA_SUCCESS
}

#[test]
fn products_are_right() {
    let Some(host) = Host::get() else { return };
    let outcome = run(host, "products", "", "");
    assert!(outcome.is_right(), "{outcome:?}");
}
