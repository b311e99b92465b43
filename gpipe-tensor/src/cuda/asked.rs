//! What a stream of operations is asked to do, as data: it can be compared, and asked for later.

use std::hash::{Hash, Hasher};

use super::blas::Blas;
use super::entry::{Arg, Launch, Pointer};
use super::product::{Added, Product};
use super::stream::Stream;
use crate::{Error, Result};

/// One operation of a handle.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are launches: a box would be an allocation for each"
)]
pub(super) enum Asked {
    /// A kernel.
    Launch(Launch),
    /// A product of matrices: a, b and c.
    Product(Product, [Pointer; 3]),
    /// A product plus what is added to it, by cuBLASLt: a, b and c.
    Sum(Product, Added, [Pointer; 3]),
    /// As many words of 32 bits.
    Fill { at: u64, word: u32, n: usize },
    /// A copy within the device.
    Copy { to: u64, from: u64, bytes: usize },
    /// A range of an arena that is taken, or given back; the emulated host knows by it whose memory is used.
    #[cfg(feature = "emulated")]
    Range {
        at: u64,
        bytes: usize,
        is_taken: bool,
    },
}

impl Asked {
    /// Whether the device does anything for it.
    pub fn is_work(&self) -> bool {
        #[cfg(feature = "emulated")]
        if let Self::Range { .. } = self {
            return false;
        }
        true
    }

    /// Whether a graph that was captured of this does `other` with no more than other arguments for kernels of this
    /// crate. What cuBLAS, fillings and copies are given has to be the same.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Launch(a), Self::Launch(b)) => {
                let kinds = a.args.iter().zip(&b.args);
                a.form == b.form
                    && (a.blocks, a.shared) == (b.blocks, b.shared)
                    && a.args.len() == b.args.len()
                    && kinds.into_iter().all(|(a, b)| words(a).0 == words(b).0)
            }
            (Self::Product(a, of_a), Self::Product(b, of_b)) => (a, of_a) == (b, of_b),
            (Self::Sum(a, to_a, of_a), Self::Sum(b, to_b, of_b)) => {
                (a, to_a, of_a) == (b, to_b, of_b)
            }
            (
                &Self::Fill { at, word, n },
                &Self::Fill {
                    at: other,
                    word: with,
                    n: count,
                },
            ) => (at, word, n) == (other, with, count),
            (
                &Self::Copy { to, from, bytes },
                &Self::Copy {
                    to: other,
                    from: of,
                    bytes: count,
                },
            ) => (to, from, bytes) == (other, of, count),
            #[cfg(feature = "emulated")]
            (
                &Self::Range {
                    at,
                    bytes,
                    is_taken,
                },
                &Self::Range {
                    at: other,
                    bytes: count,
                    is_taken: taken,
                },
            ) => (at, bytes, is_taken) == (other, count, taken),
            _ => false,
        }
    }

    /// Adds all that [`is_like`](Self::is_like) compares.
    pub fn hash_likeness(&self, state: &mut impl Hasher) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Launch(launch) => {
                std::ptr::from_ref(launch.form.entry).hash(state);
                (launch.form.stored, launch.blocks, launch.shared).hash(state);
                launch.args.len().hash(state);
            }
            Self::Product(product, places) => (product, places.map(|place| place.0)).hash(state),
            Self::Sum(product, added, places) => {
                let added = [added.bias, added.onto].map(|added| added.map(|place| place.0));
                (product, added, places.map(|place| place.0)).hash(state);
            }
            Self::Fill { at, word, n } => (at, word, n).hash(state),
            Self::Copy { to, from, bytes } => (to, from, bytes).hash(state),
            #[cfg(feature = "emulated")]
            Self::Range {
                at,
                bytes,
                is_taken,
            } => (at, bytes, is_taken).hash(state),
        }
    }

    /// Asks it of the stream now.
    ///
    /// # Safety
    /// As the functions of [`Stream`] and [`Blas`] say, for this stream and memory as it is now in the order of the stream.
    pub unsafe fn ask(&self, stream: &Stream, blas: Option<&mut Blas>) -> Result<()> {
        match *self {
            // SAFETY: the caller vouches for this and what follows.
            Self::Launch(ref launch) => unsafe { stream.launch(launch) },
            Self::Product(product, [a, b, c]) => {
                let blas = blas.ok_or_else(|| missing("cublasGemmEx"))?;
                stream.context().bind()?;
                // SAFETY: as above.
                unsafe { blas.run(product, [a, b, c]) }
            }
            Self::Sum(product, added, [a, b, c]) => {
                stream.context().bind()?;
                let missing = || missing("cublasLtMatmul");
                let blas = blas.ok_or_else(missing)?;
                let (lt, workspace) = blas.lt_for(product, &added)?.ok_or_else(missing)?;
                // SAFETY: as above; the workspace is of this stream.
                unsafe { lt.run(stream, workspace, product, [a, b], added, c) }
            }
            // SAFETY: as above.
            Self::Fill { at, word, n } => unsafe { stream.fill(at, word, n) },
            // SAFETY: as above.
            Self::Copy { to, from, bytes } => unsafe { stream.copy(to, from, bytes) },
            #[cfg(feature = "emulated")]
            Self::Range {
                at,
                bytes,
                is_taken,
            } => {
                tell_range(stream, at, bytes, is_taken);
                Ok(())
            }
        }
    }
}

fn missing(call: &'static str) -> Error {
    Error::Cuda {
        call,
        message: "a product before there is a handle for it".into(),
    }
}

/// Whether both are the same to the bit.
pub(super) fn same_arguments(a: &Launch, b: &Launch) -> bool {
    let pairs = a.args.iter().zip(&b.args);
    pairs.into_iter().all(|(a, b)| words(a) == words(b))
}

/// The kind of an argument, and its bits.
fn words(arg: &Arg) -> (u8, u64) {
    match *arg {
        Arg::Pointer(Pointer(at)) => (0, at),
        Arg::U64(value) => (1, value),
        Arg::U32(value) => (2, value.into()),
        Arg::F32(value) => (3, value.to_bits().into()),
        Arg::F64(value) => (4, value.to_bits()),
    }
}

/// The function by which an emulated host learns the owner of a range.
///
/// # Safety
/// It takes any numbers, and a stream that is alive.
#[cfg(feature = "emulated")]
type Tell = unsafe extern "C" fn(u64, u64, i32, cudarc::driver::sys::CUstream);

/// Tells an emulated host, in the order of the stream, whose range of an arena it is from here on.
#[cfg(feature = "emulated")]
fn tell_range(stream: &Stream, at: u64, bytes: usize, is_taken: bool) {
    use std::sync::OnceLock;

    use cudarc::driver::sys;

    static TELL: OnceLock<Option<Tell>> = OnceLock::new();
    let tell = TELL.get_or_init(|| {
        // SAFETY: the library is loaded, as the stream is one of it; an emulated host exports this function, and no
        // other library has one of its name.
        let tell = unsafe { sys::culib().get::<Tell>(b"emulated_range\0") };
        tell.ok().map(|tell| *tell)
    });
    if let Some(tell) = tell {
        // SAFETY: it takes any numbers, and a stream that is alive.
        unsafe { tell(at, bytes as u64, i32::from(is_taken), stream.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn a_sum_is_like_one_of_the_same_operands_alone() {
        let product = Product {
            m: 16,
            n: 24,
            k: 40,
            a_transposed: false,
            b_transposed: false,
            accumulate: false,
            items: 1,
            pads: [0; 3],
            stored: DType::BF16,
            result: DType::BF16,
        };
        let added = Added {
            bias: Some(Pointer(64)),
            onto: Some(Pointer(128)),
        };
        let places = [256, 512, 768].map(Pointer);
        let sum = Asked::Sum(product, added, places);
        let key = |asked: &Asked| {
            let mut hasher = std::hash::DefaultHasher::new();
            asked.hash_likeness(&mut hasher);
            hasher.finish()
        };
        let same = sum.clone();
        assert!(sum.is_like(&same) && key(&sum) == key(&same));
        let adds = |bias, onto| Asked::Sum(product, Added { bias, onto }, places);
        let wider = Product { n: 32, ..product };
        let mut others = vec![
            Asked::Sum(wider, added, places),
            Asked::Product(product, places),
            adds(None, added.onto),
            adds(added.bias, None),
            adds(Some(Pointer(32)), added.onto),
            adds(added.bias, Some(Pointer(32))),
            adds(added.onto, added.bias),
        ];
        for place in 0..3 {
            let mut moved = places;
            moved[place] = Pointer(1024);
            others.push(Asked::Sum(product, added, moved));
        }
        for other in &others {
            assert!(!sum.is_like(other) && !other.is_like(&sum), "{other:?}");
            assert_ne!(key(&sum), key(other), "{other:?}");
        }
    }
}
