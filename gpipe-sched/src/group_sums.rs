//! Sums of groups of micro-batches on their way up the tree, whatever the order in which the groups are completed.

use std::ops::Range;

use crate::groups::Groups;

/// Sums `B` of groups on their way up the tree, while a stage adds gradients to the sum that is current.
/// The sum of all groups ends as the current one.
///
/// The buffers are the caller's: those of a stage, or those of a prediction of its bytes.
#[derive(Debug)]
pub struct GroupSums<B> {
    groups: Groups,
    /// Micro-batches of each group that were not added yet.
    open: Vec<usize>,
    /// The node of the current sum; `None` before the first micro-batch.
    current: Option<Range<usize>>,
    /// The other sums, by node.
    held: Vec<(Range<usize>, B)>,
}

impl<B> GroupSums<B> {
    /// No sums of these groups yet.
    pub fn new(groups: Groups) -> Self {
        // Those of other replicas stay open here.
        let size = |group| groups.start(group + 1) - groups.start(group);
        let open = (0..groups.count()).map(size);
        Self {
            groups,
            open: open.collect(),
            current: None,
            held: Vec::new(),
        }
    }

    /// Makes the sum of a micro-batch's group the current one, before its gradients are added. `swap` puts
    /// a sum in the place of the current one and returns that; `None` stands for a new one of zeros.
    ///
    /// # Errors
    /// That of `swap`.
    pub fn enter<E>(
        &mut self,
        micro_batch: usize,
        swap: impl FnOnce(Option<B>) -> Result<B, E>,
    ) -> Result<(), E> {
        let group = self.groups.of(micro_batch);
        let node = group..group + 1;
        let Some(current) = self.current.clone() else {
            self.current = Some(node);
            return Ok(());
        };
        if self.groups.count() == 1 || current == node {
            return Ok(());
        }
        let begun = self.held.iter().position(|(held, _)| *held == node);
        let begun = begun.map(|place| self.held.swap_remove(place).1);
        self.held.push((current, swap(begun)?));
        self.current = Some(node);
        Ok(())
    }

    /// Notes that the gradients of a micro-batch were added. The sum of a group that is complete is added to
    /// its neighbour in the tree, if that is complete too, and so on: `add` adds a sum to the current one, and is passed
    /// whether it is of later groups.
    ///
    /// # Errors
    /// That of `add`.
    pub fn leave<E>(
        &mut self,
        micro_batch: usize,
        mut add: impl FnMut(B, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let group = self.groups.of(micro_batch);
        self.open[group] = self.open[group].saturating_sub(1);
        if self.open[group] > 0 {
            return Ok(());
        }
        let mut node = group..group + 1;
        while let Some((neighbour, parent)) = self.groups.parent(&node) {
            let is_complete = self.open[neighbour.clone()].iter().all(|&open| open == 0);
            let place = self.held.iter().position(|(held, _)| *held == neighbour);
            let Some(place) = place.filter(|_| is_complete) else {
                break;
            };
            let is_later = neighbour.start > node.start;
            add(self.held.swap_remove(place).1, is_later)?;
            node = parent;
        }
        self.current = Some(node);
        Ok(())
    }

    /// Whether all micro-batches of this replica were added.
    pub fn is_complete(&self) -> bool {
        self.left() == 0
    }

    /// Whether all but one were.
    pub fn is_last(&self) -> bool {
        self.left() == 1
    }

    fn left(&self) -> usize {
        self.open[self.groups.own()].iter().sum()
    }

    /// The sums that are held beside the current one, by the groups that they are of: of a replica of several, those
    /// whose neighbours in the tree are elsewhere, once all its micro-batches were added.
    pub fn held(&self) -> impl Iterator<Item = (Range<usize>, &B)> {
        self.held.iter().map(|(node, sum)| (node.clone(), sum))
    }

    /// The groups that the current sum is of, if there is one.
    pub fn current(&self) -> Option<Range<usize>> {
        self.current.clone()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Numbers whose sum depends on the order.
    fn number(micro_batch: usize) -> f32 {
        let bits = (micro_batch as u32 + 1).wrapping_mul(2_654_435_761);
        f32::from_bits(0x3f80_0000 | bits >> 9) * 10_f32.powi((bits % 9) as i32 - 4)
    }

    /// The sum in an order of the micro-batches, and the most sums held beside the current one.
    fn sum(groups: Groups, order: impl IntoIterator<Item = usize>) -> (u32, usize) {
        let (mut sums, mut current, mut most) = (GroupSums::new(groups), 0.0_f32, 0);
        for m in order {
            let swap =
                |sum: Option<f32>| Ok::<_, ()>(std::mem::replace(&mut current, sum.unwrap_or(0.0)));
            sums.enter(m, swap).unwrap();
            current += number(m);
            most = most.max(sums.held.len());
            sums.leave(m, |other, _| {
                current += other;
                Ok::<_, ()>(())
            })
            .unwrap();
        }
        assert!(sums.held.is_empty(), "{groups:?}");
        (current.to_bits(), most)
    }

    /// The definition, by recursion over the tree.
    fn defined(groups: Groups, node: Range<usize>) -> f32 {
        if node.len() == 1 {
            let own = groups.micro_batches(node.start);
            return own.fold(0.0, |sum, m| sum + number(m));
        }
        let half = (1..node.len())
            .filter(|n| n.is_power_of_two())
            .max()
            .unwrap();
        let middle = node.start + half;
        defined(groups, node.start..middle) + defined(groups, middle..node.end)
    }

    #[test]
    fn any_order_of_whole_groups_gives_the_sum_of_the_tree() {
        for micro_batches in 1..=24 {
            for count in 1..=micro_batches {
                let groups = Groups::new(micro_batches, count).unwrap();
                let members = |group: usize| groups.micro_batches(group);
                let covered: Vec<usize> = (0..count).flat_map(members).collect();
                assert!(covered.iter().copied().eq(0..micro_batches));
                assert!((0..count).all(|g| members(g).all(|m| groups.of(m) == g)));
                let expected = defined(groups, 0..count).to_bits();
                let (ascending, most) = sum(groups, 0..micro_batches);
                assert_eq!(ascending, expected, "{groups:?}");
                assert!(most <= count.ilog2() as usize + 1, "{groups:?}: {most}");
                // Groups in another order, and micro-batches of all groups in turn.
                assert_eq!(sum(groups, (0..count).rev().flat_map(members)).0, expected);
                let longest = micro_batches.div_ceil(count) + 1;
                let turns =
                    (0..longest).flat_map(|i| (0..count).filter_map(move |g| members(g).nth(i)));
                assert_eq!(sum(groups, turns).0, expected);
            }
        }
    }

    /// Replicas sum what they have, and what they end with is summed further.
    #[test]
    fn any_number_of_replicas_gives_the_sum_of_the_tree() {
        for count in 1..=24 {
            let micro_batches = count + count / 2;
            let groups = Groups::new(micro_batches, count).unwrap();
            let expected = defined(groups, 0..count).to_bits();
            for replicas in (1..=count).filter(|replicas| count.is_multiple_of(*replicas)) {
                let (mut parts, mut covered) = (Vec::new(), Vec::new());
                for replica in 0..replicas {
                    let own = groups.on_replica(replica, replicas).unwrap();
                    let first = own.own_micro_batches().start;
                    covered.extend(own.own_micro_batches());
                    let (mut sums, mut current) = (GroupSums::new(own), 0.0_f32);
                    for m in 0..own.own_micro_batches().len() {
                        assert!(!sums.is_complete());
                        assert!(own.micro_batches(own.of(m)).contains(&m));
                        let swap = |sum: Option<f32>| {
                            Ok::<_, ()>(std::mem::replace(&mut current, sum.unwrap_or(0.0)))
                        };
                        sums.enter(m, swap).unwrap();
                        current += number(first + m);
                        let add = |other, _| {
                            current += other;
                            Ok::<_, ()>(())
                        };
                        sums.leave(m, add).unwrap();
                    }
                    assert!(sums.is_complete());
                    parts.push((sums.current().unwrap(), current));
                    parts.extend(sums.held().map(|(node, sum)| (node, *sum)));
                }
                assert!(covered.into_iter().eq(0..micro_batches));
                let mut of = |node: &Range<usize>| {
                    let part = parts.iter().find(|(of, _)| of == node);
                    part.map(|(_, sum)| *sum)
                };
                let sum = groups.sum_parts(&mut of, &mut |left, right| left + right);
                assert_eq!(
                    sum.map(f32::to_bits),
                    Some(expected),
                    "{groups:?} {replicas}"
                );
                parts.pop();
                let mut of = |node: &Range<usize>| {
                    let part = parts.iter().find(|(of, _)| of == node);
                    part.map(|(_, sum)| *sum)
                };
                assert_eq!(groups.sum_parts(&mut of, &mut |left, _| left), None);
            }
        }
    }
}
