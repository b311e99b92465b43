//! A disk in memory that remembers in which order it was told what, and what of that was synced: so
//! it can be asked what may be left after a loss of power. It can also fail on demand.

use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::super::fs::{Fs, Kind};

/// The number of a file or folder, whatever it is called.
type Node = usize;

#[derive(Clone, Debug)]
enum Content {
    File(Vec<u8>),
    Folder(BTreeMap<String, Node>),
    Other,
}

/// A change, in the order in which they were asked for.
#[derive(Clone, Debug)]
enum Change {
    /// A name in a folder now means this; `from` is the name that it had there.
    Name {
        folder: Node,
        from: Option<String>,
        name: String,
        node: Node,
    },
    /// A name is gone.
    Unname { folder: Node, name: String },
    /// Bytes were added to a file.
    Write { node: Node, bytes: Vec<u8> },
    /// What a file holds, or the names in a folder, are safe.
    Sync { node: Node },
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// At which call, from 0.
    pub at: usize,
    /// Whether all later calls go wrong as well.
    pub stays: bool,
    /// How; `None` is a write that takes half of its bytes.
    pub error: Option<i32>,
}

#[derive(Clone, Debug, Default)]
struct State {
    nodes: Vec<Content>,
    settled: Vec<Content>,
    changes: Vec<Change>,
    calls: usize,
    fault: Option<Fault>,
}

/// The disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// While it is closed, no file can be made.
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Memory {
    /// A disk with these folders below its root.
    pub fn new(folders: &[&str]) -> Self {
        let disk = Self::default();
        disk.state().nodes.push(Content::Folder(BTreeMap::new()));
        for folder in folders {
            disk.clone()
                .create_dir(Path::new(folder))
                .expect("an empty disk");
        }
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics in here")
    }

    fn over(state: State) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            ..Shared::default()
        }))
    }

    /// Lets whoever makes a file wait until it is opened again.
    pub fn close(&self, closed: bool) {
        *self.0.closed.lock().expect("no test panics in here") = closed;
        self.0.opened.notify_all();
    }

    /// Everything so far has reached the platter.
    pub fn settle(&self) {
        let mut state = self.state();
        state.settled = state.nodes.clone();
        state.changes.clear();
    }

    /// A disk of its own in the same state.
    pub fn copy(&self) -> Self {
        Self::over(self.state().clone())
    }

    /// Counts calls from here on, one of which goes wrong.
    pub fn plant(&self, fault: Option<Fault>) {
        let mut state = self.state();
        (state.fault, state.calls) = (fault, 0);
    }

    /// Calls since the last [`plant`](Self::plant).
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Changes since the last [`settle`](Self::settle).
    pub fn changes(&self) -> usize {
        self.state().changes.len()
    }

    /// Puts something under a name, whatever was there.
    pub fn put(&self, path: &str, content: Option<Vec<u8>>) {
        let mut state = self.state();
        let content = content.map_or(Content::Other, Content::File);
        if let Ok(node) = state.find(Path::new(path)) {
            state.nodes[node] = content;
            return;
        }
        let (folder, name) = state.place(Path::new(path)).expect("a folder above");
        state.nodes.push(content);
        let node = state.nodes.len() - 1;
        state.names(folder).expect("a folder").insert(name, node);
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = self.open(Path::new(path)).expect("a file");
        file.read_to_end(&mut bytes).expect("bytes in memory");
        bytes
    }

    /// Calls `look` with every disk that a loss of power after the first `prefix` changes may leave:
    /// of what was not synced, anything may have reached the platter or not, and half a write too.
    /// Says how many there were; `look` says whether to go on.
    pub fn after_power_loss(&self, prefix: usize, mut look: impl FnMut(Memory) -> bool) -> usize {
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
            let goes_on = look(Self::over(State {
                settled: nodes.clone(),
                nodes,
                ..State::default()
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

impl State {
    /// One more call: may it go on?
    fn call(&mut self) -> io::Result<()> {
        let now = self.calls;
        self.calls += 1;
        match self.fault {
            Some(Fault {
                at,
                stays,
                error: Some(error),
            }) if now == at || stays && now > at => Err(io::Error::from_raw_os_error(error)),
            _ => Ok(()),
        }
    }

    /// Whether this call's write, which was just counted, takes half of its bytes.
    fn is_short(&self) -> bool {
        let short = |fault: &Fault| {
            let now = self.calls - 1;
            fault.error.is_none() && (now == fault.at || fault.stays && now > fault.at)
        };
        self.fault.as_ref().is_some_and(short)
    }

    fn names(&mut self, folder: Node) -> io::Result<&mut BTreeMap<String, Node>> {
        match &mut self.nodes[folder] {
            Content::Folder(names) => Ok(names),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn find(&mut self, path: &Path) -> io::Result<Node> {
        let mut node = 0;
        for part in path.iter().skip(1) {
            let part = part.to_string_lossy();
            let next = self.names(node)?.get(part.as_ref()).copied();
            node = next.ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// The folder above, and the last name.
    fn place(&mut self, path: &Path) -> io::Result<(Node, String)> {
        let (parent, name) = (path.parent(), path.file_name());
        let (parent, name) = parent.zip(name).ok_or(ErrorKind::InvalidInput)?;
        Ok((self.find(parent)?, name.to_string_lossy().into_owned()))
    }

    fn add(&mut self, path: &Path, content: Content) -> io::Result<Node> {
        let (folder, name) = self.place(path)?;
        if self.names(folder)?.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(content);
        let node = self.nodes.len() - 1;
        self.names(folder)?.insert(name.clone(), node);
        self.changes.push(Change::Name {
            folder,
            from: None,
            name,
            node,
        });
        Ok(node)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        self.names(folder)?.remove(&name);
        self.changes.push(Change::Unname { folder, name });
        Ok(())
    }
}

impl Fs for Memory {
    type File = Node;

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.add(path, Content::Folder(BTreeMap::new())).map(drop)
    }

    fn create(&mut self, path: &Path) -> io::Result<Node> {
        let closed = self.0.closed.lock().expect("no test panics in here");
        let opened = self.0.opened.wait_while(closed, |closed| *closed);
        drop(opened.expect("no test panics in here"));
        let mut state = self.state();
        state.call()?;
        state.add(path, Content::File(Vec::new()))
    }

    fn write(&mut self, file: &mut Node, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        state.call()?;
        let taken = match state.is_short() {
            true => bytes.len().div_ceil(2),
            false => bytes.len(),
        };
        let bytes = bytes[..taken].to_vec();
        if let Content::File(content) = &mut state.nodes[*file] {
            content.extend_from_slice(&bytes);
        }
        state.changes.push(Change::Write { node: *file, bytes });
        Ok(taken)
    }

    fn sync(&mut self, file: &mut Node) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.changes.push(Change::Sync { node: *file });
        Ok(())
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        state.changes.push(Change::Sync { node });
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let ((folder, old), (other, name)) = (state.place(from)?, state.place(to)?);
        assert_eq!(folder, other, "only names in one folder change at once");
        let node = state.find(from)?;
        if let Ok(there) = state.find(to)
            && let Content::Folder(names) = &state.nodes[there]
            && !names.is_empty()
        {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let names = state.names(folder)?;
        names.remove(&old);
        names.insert(name.clone(), node);
        state.changes.push(Change::Name {
            folder,
            from: Some(old),
            name,
            node,
        });
        Ok(())
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        match &state.nodes[node] {
            Content::Folder(_) => Err(ErrorKind::IsADirectory.into()),
            _ => state.remove(path),
        }
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        match state.names(node)?.is_empty() {
            true => state.remove(path),
            false => Err(ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        Ok(state.names(node)?.keys().cloned().collect())
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        Ok(match &state.nodes[node] {
            Content::File(bytes) => Kind::File(bytes.len() as u64),
            Content::Folder(_) => Kind::Folder,
            Content::Other => Kind::Other,
        })
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + '_>> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        match &state.nodes[node] {
            Content::File(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }
}
