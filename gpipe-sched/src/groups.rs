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
    pub(crate) fn start(self, group: usize) -> usize {
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
    pub(crate) fn parent(self, node: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
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
    node.start + (1 << (node.len() - 1).ilog2())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

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
        let halves = |node: &Range<usize>| (node.len() <= 1 << 63).then(|| vec![node.clone()]);
        let parts = all.sum_parts(&mut { halves }, &mut |left, right| [left, right].concat());
        assert_eq!(parts, Some(vec![0..1 << 63, 1 << 63..usize::MAX]));
    }

    #[test]
    fn a_group_without_micro_batches_is_none() {
        assert_eq!(Groups::new(3, 4), None);
        assert_eq!(Groups::new(3, 0), None);
        assert_eq!(Groups::new(0, 0), None);
    }
}
