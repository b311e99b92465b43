//! Groups of micro-batches: the order in which gradients, losses and statistics are added.
//!
//! M micro-batches are cut into G groups of consecutive ones. Inside a group sums ascend; the sums of
//! the groups are added by a binary tree whose shape depends on G alone, so that the result depends on
//! M and G, and not on which process adds which group.

use std::ops::Range;

/// M micro-batches in G groups; group g holds the micro-batches from ⌊gM/G⌋ to ⌊(g+1)M/G⌋. One group is
/// a plain ascending sum.
///
/// ```
/// use gpipe_sched::Groups;
///
/// let groups = Groups::new(7, 3).unwrap();
/// assert_eq!([0, 1, 2].map(|g| groups.micro_batches(g)), [0..2, 2..4, 4..7]);
/// // (a + b) + c: a tree parts at the largest power of two below its length.
/// assert_eq!(groups.sum(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]), 127.0);
/// assert!(Groups::new(3, 4).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    micro_batches: usize,
    groups: usize,
    /// The first group of this replica, and their number.
    own: [usize; 2],
}

impl Groups {
    /// `groups` groups of `micro_batches` micro-batches; `None` unless each group has a micro-batch.
    pub fn new(micro_batches: usize, groups: usize) -> Option<Self> {
        let this = Self {
            micro_batches,
            groups,
            own: [0, groups],
        };
        (1..=micro_batches).contains(&groups).then_some(this)
    }

    /// One group of any number of micro-batches.
    pub const fn one(micro_batches: usize) -> Self {
        Self {
            micro_batches,
            groups: 1,
            own: [0, 1],
        }
    }

    /// The same on one of several replicas of a pipeline, which each run as many consecutive groups; `None` unless
    /// their number divides that of the groups.
    ///
    /// ```
    /// use gpipe_sched::Groups;
    ///
    /// let groups = Groups::new(7, 4).unwrap().on_replica(1, 2).unwrap();
    /// assert_eq!((groups.own(), groups.own_micro_batches()), (2..4, 3..7));
    /// // A replica counts its micro-batches from 0.
    /// assert_eq!((groups.micro_batches(3), groups.of(3)), (2..4, 3));
    /// assert!(groups.on_replica(0, 3).is_none());
    /// ```
    pub fn on_replica(self, replica: usize, replicas: usize) -> Option<Self> {
        let fits = replica < replicas && self.groups.is_multiple_of(replicas);
        fits.then(|| {
            let each = self.groups / replicas;
            let own = [replica * each, each];
            Self { own, ..self }
        })
    }

    /// The same groups with one micro-batch each: for work that is done once for all micro-batches of a group, whose sums
    /// are added by the same tree.
    #[must_use]
    pub const fn whole(self) -> Self {
        Self {
            micro_batches: self.groups,
            ..self
        }
    }

    /// The number of groups, those of other replicas included.
    pub const fn count(self) -> usize {
        self.groups
    }

    /// The number of micro-batches of a step, those of other replicas included.
    pub const fn of_step(self) -> usize {
        self.micro_batches
    }

    /// The number of replicas.
    pub const fn replicas(self) -> usize {
        self.groups / self.own[1]
    }

    /// The number of this replica, from 0.
    pub const fn replica(self) -> usize {
        self.own[0] / self.own[1]
    }

    /// The groups of this replica: all, unless there are others.
    pub fn own(self) -> Range<usize> {
        let [first, count] = self.own;
        first..first + count
    }

    /// The micro-batches of this replica among those of the step.
    pub fn own_micro_batches(self) -> Range<usize> {
        let own = self.own();
        self.start(own.start)..self.start(own.end)
    }

    /// The group of a micro-batch of this replica. Those beyond the last one count to the last group.
    pub fn of(self, micro_batch: usize) -> usize {
        if self.groups == 1 {
            return 0;
        }
        let own = self.own_micro_batches();
        let micro_batch = own.start.saturating_add(micro_batch).min(own.end - 1);
        let before = (micro_batch as u128 + 1) * self.groups as u128 - 1;
        (before / self.micro_batches as u128) as usize
    }

    /// The micro-batches of one of this replica's groups, counted from the replica's first.
    pub fn micro_batches(self, group: usize) -> Range<usize> {
        let first = self.own_micro_batches().start;
        let place = |group| self.start(group).saturating_sub(first);
        place(group)..place(group + 1)
    }

    /// The first micro-batch of a group among those of the step.
    fn start(self, group: usize) -> usize {
        // The product may be too large for a `usize`.
        (group as u128 * self.micro_batches as u128 / self.groups as u128) as usize
    }

    /// The sum of one number for each micro-batch of the step, those of all replicas, in the order of the groups.
    pub fn sum(self, of_micro_batches: &[f64]) -> f64 {
        if self.groups == 1 {
            return of_micro_batches.iter().sum();
        }
        self.sum_of(0..self.groups, of_micro_batches)
    }

    fn sum_of(self, groups: Range<usize>, of_micro_batches: &[f64]) -> f64 {
        if groups.len() == 1 {
            let end = self.start(groups.end).min(of_micro_batches.len());
            let start = self.start(groups.start).min(end);
            return of_micro_batches[start..end].iter().sum();
        }
        let middle = middle(&groups);
        let left = self.sum_of(groups.start..middle, of_micro_batches);
        left + self.sum_of(middle..groups.end, of_micro_batches)
    }

    /// The sum of all groups from sums that replicas ended with: `of` gives that of a run of groups if a replica has
    /// it, and `add` adds two. `None` if sums are missing.
    pub fn sum_parts<B>(
        self,
        of: &mut impl FnMut(&Range<usize>) -> Option<B>,
        add: &mut impl FnMut(B, B) -> B,
    ) -> Option<B> {
        fn sum<B>(
            node: Range<usize>,
            of: &mut impl FnMut(&Range<usize>) -> Option<B>,
            add: &mut impl FnMut(B, B) -> B,
        ) -> Option<B> {
            if let Some(sum) = of(&node) {
                return Some(sum);
            }
            let middle = (node.len() > 1).then(|| middle(&node))?;
            let left = sum(node.start..middle, of, add)?;
            let right = sum(middle..node.end, of, add)?;
            Some(add(left, right))
        }
        sum(0..self.groups, of, add)
    }

    /// The node of the tree with which this node is added, and their sum. `None` for the root and for
    /// what is no node.
    fn parent(self, node: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let mut at = 0..self.groups;
        while at.len() > 1 {
            let middle = middle(&at);
            let (left, right) = (at.start..middle, middle..at.end);
            if *node == left {
                return Some((right, at));
            }
            if *node == right {
                return Some((left, at));
            }
            at = if node.start < middle { left } else { right };
        }
        None
    }
}

/// The node at which a node of the tree parts: the largest power of two below its length, from its start.
fn middle(node: &Range<usize>) -> usize {
    node.start + node.len().next_power_of_two() / 2
}

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

    #[test]
    fn losses_are_added_like_gradients() {
        let losses: Vec<f64> = (0..11).map(|m| 0.1 * 3.0_f64.powi(m)).collect();
        let groups = Groups::new(11, 3).unwrap();
        let of = |range: Range<usize>| losses[range].iter().sum::<f64>();
        assert_eq!(groups.sum(&losses), (of(0..3) + of(3..7)) + of(7..11));
        assert_eq!(Groups::one(11).sum(&losses), of(0..11));
        assert_ne!(groups.sum(&losses), of(0..11), "the test cannot fail");
    }

    #[test]
    fn groups_that_work_as_a_whole_have_one_micro_batch_each() {
        let groups = Groups::new(11, 4).unwrap().on_replica(1, 2).unwrap();
        let whole = groups.whole();
        assert_eq!((whole.own(), whole.own_micro_batches()), (2..4, 2..4));
        assert_eq!([0, 1].map(|place| whole.of(place)), [2, 3]);
        assert_eq!(
            (whole.replica(), whole.replicas(), whole.count()),
            (1, 2, 4)
        );
        assert_eq!(Groups::one(5).whole(), Groups::one(1));
    }

    #[test]
    fn huge_numbers_are_divided_like_small_ones() {
        let groups = Groups::new(1 << 40, 1 << 30).unwrap();
        let last = groups.on_replica(3, 4).unwrap();
        assert_eq!(last.own_micro_batches(), 3 << 38..1 << 40);
        assert_eq!((last.of(0), last.of(usize::MAX)), (3 << 28, (1 << 30) - 1));
        assert_eq!(
            groups.micro_batches((1 << 30) - 1),
            (1 << 40) - 1024..1 << 40
        );
        let all = Groups::new(usize::MAX, usize::MAX).unwrap();
        assert_eq!(all.own_micro_batches(), 0..usize::MAX);
        assert_eq!(all.of(usize::MAX), usize::MAX - 1);
    }

    #[test]
    fn a_group_without_micro_batches_is_none() {
        assert_eq!(Groups::new(3, 4), None);
        assert_eq!(Groups::new(3, 0), None);
        assert_eq!(Groups::new(0, 0), None);
    }
}
