//! Products plus a bias, a matrix that lies elsewhere, or both, by cuBLASLt: one launch for all of it.
//!
//! The library chooses an algorithm once for each shape. It is asked with sizes, types, strides, the epilogue, a fixed
//! workspace and addresses of which nothing is known but that they are multiples of 16 bytes, so that the bits of a
//! product depend on these alone: neither on where tensors lie nor on free memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as DescAttribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute,
    cublasLtMatrixLayout_t, cublasLtReductionScheme_t, cublasStatus_t, cudaDataType,
};

use super::entry::Pointer;
use super::probe;
use super::product::{Added, Product, form};
use super::raw_handle::RawHandle;
use super::status::Status;
use super::stream::Stream;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Workspace of products in bytes, those of cuBLAS included: what NVIDIA recommends for its largest devices. Fixed, so
/// that neither the choice of algorithms nor their bits depend on free memory.
pub(super) const WORKSPACE: usize = 32 << 20;

/// What addresses and rows are multiples of, in bytes, where the library is asked.
const ALIGNMENT: usize = 16;

/// A handle of the library, and its choices.
pub(super) struct BlasLt {
    raw: RawHandle<cublasLtHandle_t>,
    tf32: bool,
    /// None for a product that the library has no algorithm for.
    plans: HashMap<Key, Option<Plan>>,
}

/// What an algorithm is chosen by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    product: Product,
    bias: bool,
}

impl BlasLt {
    /// A handle in the thread's context; none where the library is missing or too old.
    pub fn new(tf32: bool) -> Result<Option<Self>> {
        if probe::blas_lt_version().is_none() {
            return Ok(None);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is there; the call writes one name.
        unsafe { sys::cublasLtCreate(&mut raw) }.check("cublasLtCreate")?;
        Ok(Some(Self {
            raw: RawHandle(raw),
            tf32,
            plans: HashMap::new(),
        }))
    }

    /// Ends the handle, whose context is the thread's.
    pub fn end(&mut self) {
        self.plans.clear();
        // SAFETY: the handle is alive and destroyed once; its work goes on. A destructor cannot report an error.
        let _destroyed = unsafe { sys::cublasLtDestroy(self.raw.0) };
    }

    /// Whether the library has an algorithm for a product that [`is_taken`], which is asked for at the first one of a shape.
    pub fn has(&mut self, product: Product, added: &Added) -> Result<bool> {
        Ok(self.plan(product, added)?.is_some())
    }

    fn plan(&mut self, product: Product, added: &Added) -> Result<&mut Option<Plan>> {
        let key = Key {
            product,
            bias: added.bias.is_some(),
        };
        Ok(match self.plans.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Plan::new(self.raw.0, product, added, self.tf32)?),
        })
    }

    /// Writes the product and what is added to it to c after the work of the stream, whose context is the thread's.
    ///
    /// # Safety
    /// The stream may read a, b and what is added and write c, which are as large as the product says; the library
    /// [`has`](Self::has) it, and none of its extents is zero. The workspace is of the stream, and of [`WORKSPACE`] bytes.
    pub unsafe fn run(
        &mut self,
        stream: &Stream,
        workspace: u64,
        product: Product,
        [a, b]: [Pointer; 2],
        added: Added,
        c: Pointer,
    ) -> Result<()> {
        let handle = self.raw.0;
        let Some(plan) = self.plan(product, &added)? else {
            return Err(Error::Cuda {
                call: "cublasLtMatmulAlgoGetHeuristic",
                message: "no algorithm".into(),
            });
        };
        if let Some(bias) = added.bias {
            plan.desc
                .set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        let (one, old) = (1.0_f32, if added.onto.is_some() { 1.0_f32 } else { 0.0 });
        let onto = added.onto.unwrap_or(c);
        let [left, right, result] =
            [&plan.left, &plan.right, &plan.result].map(|layout| layout.0.0);
        // SAFETY: handle, descriptors and algorithm are alive and belong together, the factors outlive the call; the
        // caller vouches for the matrices, whose addresses were just looked at, and for the workspace.
        unsafe {
            sys::cublasLtMatmul(
                handle,
                plan.desc.0.0,
                (&raw const one).cast(),
                b.0 as *const c_void,
                left,
                a.0 as *const c_void,
                right,
                (&raw const old).cast(),
                onto.0 as *const c_void,
                result,
                c.0 as *mut c_void,
                result,
                &plan.chosen.algo,
                workspace as *mut c_void,
                WORKSPACE,
                stream.raw().cast(),
            )
        }
        .check("cublasLtMatmul")
    }
}

/// Whether the library is asked for it: one product in the type of its factors, where rows and all that is read and
/// written begin at multiples of 16 bytes. Other rows are where bias epilogues went wrong
/// (github.com/dfyz/cublaslt-bias-epilogue).
pub(super) fn is_taken(
    product: &Product,
    operands: [Pointer; 2],
    added: &Added,
    c: Pointer,
) -> bool {
    let places = operands.into_iter().chain([c]);
    let mut places = places.chain(added.bias).chain(added.onto);
    let is_aligned = places.all(|place| place.0.is_multiple_of(ALIGNMENT as u64));
    let [a, b, c] = product.row_strides();
    let rows = [a, b, c].map(|stride| stride * product.stored.bytes());
    is_aligned
        && product.items == 1
        && !product.accumulate
        && product.stored == product.result
        && product.pads[2] == 0
        && rows.iter().all(|bytes| bytes.is_multiple_of(ALIGNMENT))
}

/// The library's descriptors and its choice for a product. It counts by columns, so that it sees every matrix transposed: cᵀ = bᵀ·aᵀ.
struct Plan {
    desc: Desc,
    left: Layout,
    right: Layout,
    result: Layout,
    chosen: cublasLtMatmulHeuristicResult_t,
}

impl Plan {
    fn new(
        handle: cublasLtHandle_t,
        product: Product,
        added: &Added,
        tf32: bool,
    ) -> Result<Option<Self>> {
        let single = product.stored == DType::F32;
        let (dtype, compute) = match (single, tf32) {
            (false, _) => (
                cudaDataType::CUDA_R_16BF,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
            ),
            (true, false) => (
                cudaDataType::CUDA_R_32F,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
            ),
            (true, true) => (
                cudaDataType::CUDA_R_32F,
                cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            ),
        };
        let mut desc = Desc::new(compute)?;
        let transposed = [product.b_transposed, product.a_transposed];
        let forms = transposed.map(form);
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, &forms[0])?;
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, &forms[1])?;
        if let Some(bias) = added.bias {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &dtype)?;
            // A bias without an address may count as none.
            desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        let Product { m, n, k, .. } = product;
        let [a, b, c] = product.row_strides();
        let turned = |transposed, rows, columns| match transposed {
            false => [rows, columns],
            true => [columns, rows],
        };
        let left = Layout::new(dtype, turned(transposed[0], n, k), b)?;
        let right = Layout::new(dtype, turned(transposed[1], k, m), a)?;
        let result = Layout::new(dtype, [n, m], c)?;
        let preference = Preference::new()?;
        let (mut chosen, mut found) = (std::mem::MaybeUninit::uninit(), 0);
        // SAFETY: handle and descriptors are alive; the call writes as many results as it says, at most one.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                desc.0.0,
                left.0.0,
                right.0.0,
                result.0.0,
                result.0.0,
                preference.0,
                1,
                chosen.as_mut_ptr(),
                &mut found,
            )
        };
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED || found == 0 {
            return Ok(None);
        }
        status.check("cublasLtMatmulAlgoGetHeuristic")?;
        // SAFETY: the call succeeded and wrote one result.
        let chosen = unsafe { chosen.assume_init() };
        let is_usable = chosen.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS
            && chosen.workspaceSize <= WORKSPACE;
        Ok(is_usable.then_some(Self {
            desc,
            left,
            right,
            result,
            chosen,
        }))
    }
}

/// The description of a product.
struct Desc(RawHandle<cublasLtMatmulDesc_t>);

impl Desc {
    fn new(compute: cublasComputeType_t) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one name.
        unsafe { sys::cublasLtMatmulDescCreate(&mut raw, compute, cudaDataType::CUDA_R_32F) }
            .check("cublasLtMatmulDescCreate")?;
        Ok(Self(RawHandle(raw)))
    }

    /// Sets an attribute of this type.
    fn set<T: Copy>(&mut self, attribute: DescAttribute, value: &T) -> Result<()> {
        let (at, bytes) = ((&raw const *value).cast(), size_of::<T>());
        // SAFETY: the descriptor is alive; as many bytes are read as the value has, and the library refuses another
        // number than the attribute's.
        unsafe { sys::cublasLtMatmulDescSetAttribute(self.0.0, attribute, at, bytes) }
            .check("cublasLtMatmulDescSetAttribute")
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: the descriptor is alive and destroyed once.
        let _destroyed = unsafe { sys::cublasLtMatmulDescDestroy(self.0.0) };
    }
}

/// The description of a matrix.
struct Layout(RawHandle<cublasLtMatrixLayout_t>);

impl Layout {
    fn new(dtype: cudaDataType, [rows, columns]: [usize; 2], stride: usize) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        let (rows, columns) = (rows as u64, columns as u64);
        // SAFETY: the call writes one name.
        unsafe { sys::cublasLtMatrixLayoutCreate(&mut raw, dtype, rows, columns, stride as i64) }
            .check("cublasLtMatrixLayoutCreate")?;
        Ok(Self(RawHandle(raw)))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: the descriptor is alive and destroyed once.
        let _destroyed = unsafe { sys::cublasLtMatrixLayoutDestroy(self.0.0) };
    }
}

/// What an algorithm may use.
struct Preference(cublasLtMatmulPreference_t);

impl Preference {
    /// The workspace, addresses at multiples of [`ALIGNMENT`], and partial sums in single precision alone.
    fn new() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one name.
        unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) }
            .check("cublasLtMatmulPreferenceCreate")?;
        let mut preference = Self(raw);
        let workspace = WORKSPACE as u64;
        preference.set(
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &workspace,
        )?;
        let sums = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            &sums,
        )?;
        for matrix in [
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(matrix, &(ALIGNMENT as u32))?;
        }
        Ok(preference)
    }

    /// Sets an attribute of this type.
    fn set<T: Copy>(&mut self, attribute: PreferenceAttribute, value: &T) -> Result<()> {
        let (at, bytes) = ((&raw const *value).cast(), size_of::<T>());
        // SAFETY: as for descriptors.
        unsafe { sys::cublasLtMatmulPreferenceSetAttribute(self.0, attribute, at, bytes) }
            .check("cublasLtMatmulPreferenceSetAttribute")
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it is alive and destroyed once.
        let _destroyed = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}
