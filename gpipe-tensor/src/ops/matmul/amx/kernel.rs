//! The kernel of the tile unit: one block of a product at a time.

use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use super::rectangle::{Block, Rectangle};
use super::tile::{BLOCK, slab_floats};
use crate::instruction_set::has_amx;
use crate::ops::matmul::matrix::{Begin, MatrixMut};

/// Assembly that writes the tiles, all of which it declares as written.
macro_rules! with_tiles {
    ($($assembly:tt)*) => {
        asm!(
            $($assembly)*
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
        )
    };
}

/// The tile unit, configured on the calling thread during the lifetime of this value. Tiles belong to a
/// thread: the value stays on its own (a pointer is neither `Send` nor `Sync`).
pub(super) struct Unit(PhantomData<*const ()>);

thread_local! {
    /// Whether the thread has a [`Unit`]: the end of a second one would take the tiles from the first.
    static CONFIGURED: Cell<bool> = const { Cell::new(false) };
}

/// Eight tiles of 16 rows of 64 bytes each.
#[repr(C, align(64))]
struct Setting([u8; 64]);

impl Setting {
    const fn new() -> Self {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
            tile += 1;
        }
        Self(bytes)
    }
}

impl Unit {
    /// Configures the tiles; `None` unless [`has_amx`] holds, and while the thread has a unit already.
    pub(super) fn new() -> Option<Self> {
        static SETTING: Setting = Setting::new();
        if !has_amx() || CONFIGURED.replace(true) {
            return None;
        }
        // SAFETY: AMX is available and permitted; the 64 bytes are a valid configuration of palette 1.
        unsafe {
            with_tiles!(
                "ldtilecfg [{}]",
                in(reg) &raw const SETTING,
                options(nostack, readonly),
            );
        }
        Some(Self(PhantomData))
    }

    /// c = begin + a·b for a block of c; a row of `begin` has at least as many columns.
    ///
    /// `a` and `b` are consecutive packed slabs ([`super::pack`]) of `PARTS` parts, 1 or 3. Of the nine
    /// products of three parts the three smallest, together below 2⁻²³ of the whole, are left out.
    #[inline(always)]
    pub(super) fn add<const PARTS: usize>(
        &self,
        a: &[f32],
        b: &[f32],
        begin: Begin<'_>,
        mut c: Block<'_>,
    ) {
        if c.size() != (BLOCK, BLOCK) {
            return self.add_corner::<PARTS>(a, b, begin, c);
        }
        let (out, stride) = c.place();
        let bytes = stride * size_of::<f32>();
        // A stride of 0 bytes reads the same row for all rows; no address stands for zeros.
        let (row, bytes) = match begin {
            Begin::Zero => (ptr::null(), 0),
            Begin::Sum => (out.cast_const(), bytes),
            Begin::Row(row) => (row[..BLOCK].as_ptr(), 0),
        };
        // SAFETY: the block of c is borrowed exclusively, and `row` is that block, a single row or null.
        unsafe { self.block::<PARTS>(a, b, (row, bytes), out, stride) }
    }

    /// [`add`](Self::add) for a block that reaches beyond the matrix.
    #[cold]
    fn add_corner<const PARTS: usize>(
        &self,
        a: &[f32],
        b: &[f32],
        begin: Begin<'_>,
        mut c: Block<'_>,
    ) {
        let columns = c.size().1;
        let mut whole = [0.0; BLOCK * BLOCK];
        for (line, c) in whole.chunks_exact_mut(BLOCK).zip(c.rows()) {
            line[..columns].copy_from_slice(c);
            begin.row(&mut line[..columns]);
        }
        let mut block = MatrixMut::new(&mut whole, BLOCK);
        let mut block = Rectangle::whole(&mut block, BLOCK, BLOCK);
        let all = 0..BLOCK;
        self.add::<PARTS>(a, b, Begin::Sum, block.block(&all, &all));
        for (line, c) in whole.chunks_exact(BLOCK).zip(c.rows()) {
            c.copy_from_slice(&line[..columns]);
        }
    }

    /// c = start + a·b for a block of 32 by 32 floats.
    ///
    /// # Safety
    /// 32 rows of 32 floats must be readable from `start` (pointer and stride in bytes), unless the pointer is null, which stands
    /// for zeros, and 32 rows writable at `c`, `stride` floats apart.
    #[inline(always)]
    unsafe fn block<const PARTS: usize>(
        &self,
        a: &[f32],
        b: &[f32],
        start: (*const f32, usize),
        c: *mut f32,
        stride: usize,
    ) {
        let slab = slab_floats(PARTS);
        assert!(
            a.len() == b.len() && a.len().is_multiple_of(slab) && !a.is_empty(),
            "packed slabs of both operands"
        );
        // Tiles 0 to 3 hold the sums, tiles 4 and 5 one part of 32 rows of a, tiles 6 and 7 one part of
        // 32 columns of b.
        macro_rules! add_products {
            () => {
                "tdpbf16ps tmm0, tmm4, tmm6
                 tdpbf16ps tmm1, tmm4, tmm7
                 tdpbf16ps tmm2, tmm5, tmm6
                 tdpbf16ps tmm3, tmm5, tmm7"
            };
        }
        macro_rules! compute {
            ($($products:expr),* $(,)?) => {
                with_tiles!(
                    "test {start}, {start}",
                    "jnz 3f",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "jmp 2f",
                    "3:",
                    "tileloadd tmm0, [{start} + {from}]",
                    "tileloadd tmm1, [{start} + {from} + 64]",
                    "lea {half}, [{from} * 8]",
                    "lea {half}, [{start} + {half} * 2]",
                    "tileloadd tmm2, [{half} + {from}]",
                    "tileloadd tmm3, [{half} + {from} + 64]",
                    "2:",
                    $($products,)*
                    "add {a}, {bytes}",
                    "add {b}, {bytes}",
                    "dec {slabs}",
                    "jnz 2b",
                    "tilestored [{c} + {to}], tmm0",
                    "tilestored [{c} + {to} + 64], tmm1",
                    "lea {half}, [{to} * 8]",
                    "lea {half}, [{c} + {half} * 2]",
                    "tilestored [{half} + {to}], tmm2",
                    "tilestored [{half} + {to} + 64], tmm3",
                    start = in(reg) start.0,
                    from = in(reg) start.1,
                    half = out(reg) _,
                    a = inout(reg) a.as_ptr() => _,
                    b = inout(reg) b.as_ptr() => _,
                    row = in(reg) 64usize,
                    bytes = in(reg) slab * size_of::<f32>(),
                    slabs = inout(reg) a.len() / slab => _,
                    c = in(reg) c,
                    to = in(reg) stride * size_of::<f32>(),
                    options(nostack),
                )
            };
        }
        // SAFETY: the caller ensures that `start` and `c` are valid; the loop reads exactly the slabs
        // of the slices. The tiles are configured, since `self` exists, and unused by the compiler.
        unsafe {
            if PARTS == 1 {
                compute!(
                    "tileloadd tmm4, [{a} + {row}]",
                    "tileloadd tmm6, [{b} + {row}]",
                    "tileloadd tmm7, [{b} + {row} + 1024]",
                    "tileloadd tmm5, [{a} + {row} + 1024]",
                    add_products!(),
                );
                return;
            }
            // This order of the products needs the fewest loads.
            compute!(
                // First part of a by third of b.
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {row} + 4096]",
                "tileloadd tmm7, [{b} + {row} + 5120]",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                add_products!(),
                // First by second.
                "tileloadd tmm6, [{b} + {row} + 2048]",
                "tileloadd tmm7, [{b} + {row} + 3072]",
                add_products!(),
                // Second by second.
                "tileloadd tmm4, [{a} + {row} + 2048]",
                "tileloadd tmm5, [{a} + {row} + 3072]",
                add_products!(),
                // Second by first.
                "tileloadd tmm6, [{b} + {row}]",
                "tileloadd tmm7, [{b} + {row} + 1024]",
                add_products!(),
                // First by first.
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                add_products!(),
                // Third by first.
                "tileloadd tmm4, [{a} + {row} + 4096]",
                "tileloadd tmm5, [{a} + {row} + 5120]",
                add_products!(),
            );
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the tiles are configured, on this thread, and their contents are no longer needed.
        unsafe { with_tiles!("tilerelease", options(nomem, nostack),) };
        CONFIGURED.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_not_impl;

    assert_not_impl!(Unit: Send);
    assert_not_impl!(Unit: Sync);

    #[test]
    fn a_thread_has_one_unit_at_a_time() {
        for _ in 0..2 {
            let unit = Unit::new();
            assert_eq!(unit.is_some(), has_amx());
            assert!(Unit::new().is_none());
        }
    }
}
