//! Positions by index, in segments of a bounded length: what a GPU sums up as one, so that no frequent index is left to
//! a block alone. A function of indices and shapes, made on the host.

/// Positions of a segment at most: those of one index, in ascending order.
pub(crate) const SEGMENT: usize = 32;

/// Numbers of parts, each a bound that depends on the shapes alone, so that launches and memory do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub positions: usize,
    /// Segments: an index that is there at all has one that may be short, the others are whole.
    pub segments: usize,
    /// Indices of several segments: each has more positions than a segment.
    pub words: usize,
    /// Segments of those indices: each has a sum of its own.
    pub sums: usize,
}

impl Bounds {
    /// For as many positions that look up rows of a table.
    pub fn new(positions: usize, rows: usize) -> Self {
        let words = rows.min(positions / (SEGMENT + 1));
        Self {
            positions,
            segments: positions.min(rows.min(positions) + positions / SEGMENT),
            words,
            sums: words + positions / SEGMENT,
        }
    }

    /// Numbers in the list of [`segments`].
    pub fn numbers(self) -> usize {
        self.positions + 3 * self.segments + 1 + 2 * self.words + 1
    }
}

/// What stands for the place of a sum where a segment has none: it is all of its index.
pub(crate) const ALONE: u32 = u32::MAX;

/// The list that kernels read, padded to its bounds:
///
/// - the positions, ordered by index and ascending within one;
/// - where each segment begins among them, and where the last ends; those that are not there are empty;
/// - the index of each segment;
/// - the place of each segment's sum, or [`ALONE`];
/// - for each index of several segments the first of its sums, and where the last one's end;
/// - that index.
pub(crate) fn segments(ids: &[u32], bounds: Bounds) -> Vec<u32> {
    let mut order: Vec<u64> = (0..)
        .zip(ids)
        .map(|(at, &id)| u64::from(id) << 32 | at)
        .collect();
    order.sort_unstable();
    let (mut starts, mut owners, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let (mut firsts, mut words) = (Vec::new(), Vec::new());
    let (mut start, mut sums) = (0, 0);
    for of_one in order.chunk_by(|a, b| a >> 32 == b >> 32) {
        let id = (of_one[0] >> 32) as u32;
        let is_alone = of_one.len() <= SEGMENT;
        if !is_alone {
            firsts.push(sums);
            words.push(id);
        }
        for segment in of_one.chunks(SEGMENT) {
            starts.push(start as u32);
            owners.push(id);
            places.push(if is_alone { ALONE } else { sums });
            start += segment.len();
            sums += u32::from(!is_alone);
        }
    }
    let end = ids.len() as u32;
    starts.resize(bounds.segments + 1, end);
    owners.resize(bounds.segments, 0);
    places.resize(bounds.segments, ALONE);
    firsts.resize(bounds.words + 1, sums);
    words.resize(bounds.words, 0);
    let positions = order.into_iter().map(|one| one as u32);
    let rest = [starts, owners, places, firsts, words];
    positions.chain(rest.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[u32], rows: usize) -> (Bounds, Vec<u32>) {
        let bounds = Bounds::new(ids.len(), rows);
        let list = segments(ids, bounds);
        assert_eq!(list.len(), bounds.numbers());
        (bounds, list)
    }

    #[test]
    fn positions_are_ordered_by_index_and_cut() {
        // 33 positions of index 2 among others.
        let mut ids = vec![2; 36];
        (ids[0], ids[10], ids[35]) = (4, 0, 4);
        let (bounds, list) = list(&ids, 5);
        assert_eq!(
            bounds,
            Bounds {
                positions: 36,
                segments: 6,
                words: 1,
                sums: 2
            }
        );
        let (order, rest) = list.split_at(36);
        assert_eq!(order[0], 10);
        assert_eq!(
            order[1..34],
            [(1..10).collect::<Vec<_>>(), (11..35).collect()].concat()
        );
        assert_eq!(order[34..], [0, 35]);
        assert_eq!(rest[..7], [0, 1, 33, 34, 36, 36, 36]);
        assert_eq!(rest[7..13], [0, 2, 2, 4, 0, 0]);
        assert_eq!(rest[13..19], [ALONE, 0, 1, ALONE, ALONE, ALONE]);
        assert_eq!(rest[19..], [0, 2, 2]);
    }

    #[test]
    fn no_indices_pass_the_bounds() {
        for rows in [1, 2, 3, 7, 40, 1000] {
            for positions in [0, 1, 31, 32, 33, 64, 65, 66, 99, 100, 700] {
                for turn in 1..rows.min(positions).max(2) {
                    let ids: Vec<u32> = (0..positions).map(|i| (i % turn % rows) as u32).collect();
                    list(&ids, rows);
                }
            }
        }
    }
}
