//! A disk in memory that remembers in which order it was told what, and what of that was synced: so
//! it can be asked what may be left after a loss of power. It can also fail on demand.

mod calls;
mod power_loss;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::fs::Fs;

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
pub struct PlantedFault {
    /// At which call, from 0.
    pub at: usize,
    /// Whether all later calls go wrong as well.
    pub stays: bool,
    /// How; `None` is a write that takes half of its bytes.
    pub error: Option<i32>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    nodes: Vec<Content>,
    settled: Vec<Content>,
    changes: Vec<Change>,
    calls: usize,
    fault: Option<PlantedFault>,
}

/// The disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Contents>,
    /// While it is closed, no file can be made.
    closed: Mutex<bool>,
    opened: Condvar,
}

impl MemoryDisk {
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

    fn state(&self) -> MutexGuard<'_, Contents> {
        self.0.state.lock().expect("no test panics in here")
    }

    fn over(state: Contents) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            ..Shared::default()
        }))
    }

    /// Blocks every call that makes a file until the gate is opened again.
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
    pub fn plant(&self, fault: Option<PlantedFault>) {
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
}

impl Contents {
    /// One more call: may it go on?
    fn call(&mut self) -> io::Result<()> {
        let now = self.calls;
        self.calls += 1;
        match self.fault {
            Some(PlantedFault {
                at,
                stays,
                error: Some(error),
            }) if now == at || stays && now > at => Err(io::Error::from_raw_os_error(error)),
            _ => Ok(()),
        }
    }

    /// Whether this call's write, which was just counted, takes half of its bytes.
    fn is_short(&self) -> bool {
        let short = |fault: &PlantedFault| {
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
