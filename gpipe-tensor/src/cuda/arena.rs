//! The addresses of an arena: one piece of device memory, from which buffers take ranges on the host.
//!
//! The address of a buffer is a function of the ranges that are taken: the smallest free range that has room, of
//! equal ones the first. Passes that take and give in the same order get the same addresses, as CUDA graphs
//! need it. How large the piece has to be is measured: what did not fit is counted, and the next piece, made while
//! nothing is taken, is as much larger.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges begin at multiples of this, as the driver's allocations do.
const ALIGNMENT: u64 = 256;

/// Bytes behind each range that belong to nobody, in which the emulated host finds writes beyond its end.
const GUARD: u64 = if cfg!(feature = "emulated") { 256 } else { 0 };

/// Ranges of one piece of memory, taken and free, and what did not fit.
#[derive(Default)]
pub(super) struct Arena {
    /// Address and bytes of the piece.
    piece: Option<(u64, u64)>,
    taken: BTreeMap<u64, u64>,
    free: BTreeMap<u64, u64>,
    /// The free ranges by their bytes, then by their addresses.
    by_bytes: BTreeSet<(u64, u64)>,
    /// Bytes elsewhere for want of room: now, and the most since the piece was made.
    beside: u64,
    most_beside: u64,
}

impl Arena {
    /// The address of a range, if there is room.
    pub fn take(&mut self, bytes: usize) -> Option<u64> {
        let bytes = rounded(bytes);
        let &(room, at) = self.by_bytes.range((bytes, 0)..).next()?;
        self.remove(at, room);
        if room > bytes {
            self.insert(at + bytes, room - bytes);
        }
        self.taken.insert(at, bytes);
        Some(at)
    }

    /// Frees a range; whether the address was one.
    pub fn give(&mut self, at: u64) -> bool {
        let Some(mut bytes) = self.taken.remove(&at) else {
            return false;
        };
        let mut start = at;
        if let Some((&before, &room)) = self.free.range(..at).next_back()
            && before + room == at
        {
            self.remove(before, room);
            start = before;
            bytes += room;
        }
        if let Some(&room) = self.free.get(&(start + bytes)) {
            self.remove(start + bytes, room);
            bytes += room;
        }
        self.insert(start, bytes);
        true
    }

    /// Counts a buffer that lies elsewhere for want of room.
    pub fn lies_beside(&mut self, bytes: usize) {
        self.beside += rounded(bytes);
        self.most_beside = self.most_beside.max(self.beside);
    }

    /// The buffer is gone.
    pub fn left_beside(&mut self, bytes: usize) {
        self.beside = self.beside.saturating_sub(rounded(bytes));
    }

    /// Whether nobody has a range, here or elsewhere for want of room.
    pub fn is_idle(&self) -> bool {
        self.taken.is_empty() && self.beside == 0
    }

    /// Bytes of the piece.
    pub fn bytes(&self) -> u64 {
        self.piece.map_or(0, |(_, bytes)| bytes)
    }

    /// The bytes that a larger piece should have, if this one was too small.
    pub fn wanted(&self) -> Option<u64> {
        (self.most_beside > 0).then(|| self.bytes() + self.most_beside)
    }

    /// Replaces the piece, all of whose ranges are free; returns the address of the former one.
    pub fn replace(&mut self, piece: Option<(u64, u64)>) -> Option<u64> {
        debug_assert!(self.is_idle(), "ranges of the piece are taken");
        let before = self.piece.map(|(at, _)| at);
        *self = Self {
            piece,
            ..Self::default()
        };
        if let Some((at, bytes)) = piece {
            self.insert(at, bytes);
        }
        before
    }

    fn insert(&mut self, at: u64, bytes: u64) {
        self.free.insert(at, bytes);
        self.by_bytes.insert((bytes, at));
    }

    fn remove(&mut self, at: u64, bytes: u64) {
        self.free.remove(&at);
        self.by_bytes.remove(&(bytes, at));
    }
}

fn rounded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(ALIGNMENT) + GUARD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::philox4x32_10;

    fn arena(bytes: u64) -> Arena {
        let mut arena = Arena::default();
        arena.replace(Some((4096, bytes)));
        arena
    }

    #[test]
    fn ranges_do_not_overlap_and_come_together_again() {
        let mut arena = arena(1 << 20);
        let mut taken: Vec<(u64, usize)> = Vec::new();
        for i in 0..20_000 {
            let draw = philox4x32_10([7, 0], [i, 0, 0, 0])[0] as usize;
            if taken.len() > 40 || (draw % 5 < 2 && !taken.is_empty()) {
                let (at, _) = taken.swap_remove(draw / 8 % taken.len());
                assert!(arena.give(at));
                assert!(!arena.give(at));
            } else {
                let bytes = 1 + draw / 8 % 60_000;
                let Some(at) = arena.take(bytes) else {
                    continue;
                };
                assert_eq!(at % ALIGNMENT, 0);
                assert!(at >= 4096 && at + rounded(bytes) <= 4096 + (1 << 20));
                for &(other, its) in &taken {
                    assert!(at + rounded(bytes) <= other || other + rounded(its) <= at);
                }
                taken.push((at, bytes));
            }
        }
        assert!(!taken.is_empty());
        for (at, _) in taken {
            arena.give(at);
        }
        assert!(arena.is_idle());
        assert_eq!(arena.free, BTreeMap::from([(4096, 1 << 20)]));
        assert_eq!(arena.by_bytes.len(), 1);
    }

    #[test]
    fn equal_orders_give_equal_addresses() {
        let order = |arena: &mut Arena| {
            let mut seen = Vec::new();
            let mut held = Vec::new();
            for i in 0..200_usize {
                let at = arena.take(300 * (1 + i * 7 % 11)).expect("room");
                seen.push(at);
                held.push(at);
                if i % 3 == 2 {
                    arena.give(held.remove(i % 2));
                }
            }
            assert!(held.into_iter().all(|at| arena.give(at)));
            seen
        };
        let mut arena = arena(4 << 20);
        let first = order(&mut arena);
        for _ in 0..3 {
            assert_eq!(order(&mut arena), first);
        }
    }

    #[test]
    fn a_piece_grows_by_what_did_not_fit() {
        let mut arena = Arena::default();
        assert_eq!(arena.take(1), None);
        assert_eq!(arena.wanted(), None);
        arena.lies_beside(1000);
        arena.lies_beside(500);
        assert!(!arena.is_idle());
        arena.left_beside(1000);
        arena.lies_beside(200);
        arena.left_beside(500);
        arena.left_beside(200);
        assert!(arena.is_idle());
        let wanted = rounded(1000) + rounded(500);
        assert_eq!(arena.wanted(), Some(wanted));
        assert_eq!(arena.replace(Some((512, wanted))), None);
        assert_eq!((arena.bytes(), arena.wanted()), (wanted, None));
        let both = [arena.take(1000), arena.take(500)];
        assert_eq!(both, [Some(512), Some(512 + rounded(1000))]);
        assert_eq!(arena.take(1), None);
        assert!(both.into_iter().flatten().all(|at| arena.give(at)));
        assert_eq!(arena.replace(None), Some(512));
        assert_eq!(arena.bytes(), 0);
    }
}
