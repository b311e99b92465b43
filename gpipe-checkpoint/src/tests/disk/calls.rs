//! The calls that a disk takes, as the saver makes them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;

use super::{Change, Content, MemoryDisk, Node};
use crate::fs::{Fs, Kind};

impl Fs for MemoryDisk {
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

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.state();
        state.call()?;
        let node = state.find(path)?;
        Ok(state.names(node)?.keys().map(OsString::from).collect())
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
