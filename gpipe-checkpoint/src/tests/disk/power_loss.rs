//! What a loss of power may leave of a disk.

use std::collections::BTreeMap;

use super::{Change, Content, Contents, MemoryDisk, Node};

impl MemoryDisk {
    /// Calls `look` with every disk that a loss of power after the first `prefix` changes may leave:
    /// of what was not synced, anything may have reached the platter or not, and half a write too.
    /// Says how many there were; `look` says whether to go on.
    pub fn after_power_loss(
        &self,
        prefix: usize,
        mut look: impl FnMut(MemoryDisk) -> bool,
    ) -> usize {
        let state = self.state();
        let changes = &state.changes[..prefix];
        let synced = |node: Node, after: usize| {
            let mut later = changes[after..].iter();
            later.any(|change| matches!(change, Change::Sync { node: synced } if *synced == node))
        };
        // How many ways each change can have gone.
        let ways: Vec<usize> = changes
            .iter()
            .enumerate()
            .map(|(place, change)| match change {
                Change::Sync { .. } => 1,
                Change::Name { folder, .. } | Change::Unname { folder, .. } => {
                    if synced(*folder, place) { 1 } else { 2 }
                }
                Change::Write { node, .. } => {
                    if synced(*node, place) {
                        1
                    } else {
                        3
                    }
                }
            })
            .collect();
        let mut way = vec![0; ways.len()];
        let mut seen = 0;
        loop {
            let mut nodes = state.settled.clone();
            nodes.resize_with(state.nodes.len(), || Content::Other);
            // What is new begins empty.
            for (node, content) in state.nodes.iter().enumerate().skip(state.settled.len()) {
                nodes[node] = match content {
                    Content::File(_) => Content::File(Vec::new()),
                    Content::Folder(_) => Content::Folder(BTreeMap::new()),
                    Content::Other => Content::Other,
                };
            }
            for (change, way) in changes.iter().zip(&way) {
                change.replay(&mut nodes, *way);
            }
            let goes_on = look(Self::over(Contents {
                settled: nodes.clone(),
                nodes,
                ..Contents::default()
            }));
            seen += 1;
            if !goes_on {
                return seen;
            }
            // The next combination, as one counts.
            let mut digit = 0;
            while digit < way.len() && way[digit] + 1 == ways[digit] {
                way[digit] = 0;
                digit += 1;
            }
            match way.get_mut(digit) {
                Some(way) => *way += 1,
                None => return seen,
            }
        }
    }
}

impl Change {
    /// Way 0 is all of it, 1 is nothing of it, 2 is half of a write.
    fn replay(&self, nodes: &mut [Content], way: usize) {
        match (self, way) {
            (Self::Sync { .. }, _) | (_, 1) => {}
            (Self::Write { node, bytes }, way) => {
                if let Content::File(file) = &mut nodes[*node] {
                    let length = if way == 0 {
                        bytes.len()
                    } else {
                        bytes.len() / 2
                    };
                    file.extend_from_slice(&bytes[..length]);
                }
            }
            (Self::Unname { folder, name }, _) => {
                if let Content::Folder(names) = &mut nodes[*folder] {
                    names.remove(name);
                }
            }
            (
                Self::Name {
                    folder,
                    from,
                    name,
                    node,
                },
                _,
            ) => {
                if let Content::Folder(names) = &mut nodes[*folder] {
                    if let Some(from) = from {
                        names.remove(from);
                    }
                    names.insert(name.clone(), *node);
                }
            }
        }
    }
}
