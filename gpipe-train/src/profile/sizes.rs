//! The sizes of micro-batches that are measured.

/// The sizes of the largest micro-batch for each number of micro-batches, reduced to at most six, spread
/// geometrically; times of other sizes are interpolated.
pub(crate) fn sizes(batch: usize, micro_batches: &[usize]) -> Vec<usize> {
    const MOST: usize = 6;
    let mut sizes: Vec<usize> = micro_batches
        .iter()
        .map(|&parts| batch.div_ceil(parts.max(1)))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    if let (Some(&least), Some(&most)) = (sizes.first(), sizes.last())
        && sizes.len() > MOST
    {
        let ratio = most as f64 / least as f64;
        let wanted = |i: usize| least as f64 * ratio.powf(i as f64 / (MOST - 1) as f64);
        let nearest = |wanted: f64| {
            let off = |&&size: &&usize| (size as f64 / wanted).ln().abs();
            sizes.iter().min_by(|a, b| off(a).total_cmp(&off(b)))
        };
        let mut some: Vec<usize> = (0..MOST)
            .filter_map(|i| nearest(wanted(i)))
            .copied()
            .collect();
        some.dedup();
        return some;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_stand_for_many() {
        assert_eq!(sizes(16, &[4]), [4]);
        assert_eq!(sizes(12, &[1, 2, 5, 12]), [1, 3, 6, 12]);
        let all: Vec<usize> = (1..=256).collect();
        let some = sizes(256, &all);
        assert!(
            some.len() <= 6 && some[0] == 1 && some.ends_with(&[256]),
            "{some:?}"
        );
    }
}
