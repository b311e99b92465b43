//! Plain loops, compiled for each generation of vector instructions and chosen at run time.

use std::sync::atomic::{AtomicBool, Ordering};

use pulp::WithSimd;

/// Evaluates an expression of plain loops with the widest vectors that this processor has.
///
/// What the expression calls must be `#[inline(always)]`, closures included, and loops are best
/// written as `for`: a function that stays a function of its own is compiled for the oldest
/// processor, where `f32::mul_add` is a call. The bits are the same on every path as long as no
/// sum depends on the number of lanes.
macro_rules! vectorised {
    ($body:expr) => {
        $crate::simd::dispatch(
            #[inline(always)]
            || $body,
        )
    };
}
pub(crate) use vectorised;

/// Whether loops of this process use no vectors wider than those of AVX2.
static NARROW: AtomicBool = AtomicBool::new(false);

/// Limits all loops of this process to the vectors of AVX2. The bits are the same, so hosts of other levels lose speed
/// alone.
pub(crate) fn narrow() {
    NARROW.store(true, Ordering::Relaxed);
}

/// Runs `body` inside a function that has the processor's vector instructions switched on.
#[inline(always)]
pub(crate) fn dispatch<R>(body: impl FnMut() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if NARROW.load(Ordering::Relaxed)
        && let Some(avx2) = pulp::x86::V3::try_new()
    {
        return pulp::Simd::vectorize(avx2, Body(body));
    }
    pulp::Arch::new().dispatch(Body(body))
}

/// `pulp` takes closures as they are, but calls them as `FnOnce`: through a shim that ignores the
/// closure's `inline(always)`, which leaves long bodies without the vector instructions.
struct Body<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Body<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}
