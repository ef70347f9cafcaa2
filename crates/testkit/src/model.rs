//! A file system in plain memory: what a pool must hold after the same operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::truth::{Entry, Kind, Time, UNKNOWN_TIME, XattrValue};
use crate::workload::Op;

/// The bytes of a file; what was never written is not kept.
#[derive(Debug, Clone, Default)]
pub struct Content {
    size: u64,
    /// Pieces that were written, by offset; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

/// Part of what one write brought.
#[derive(Debug, Clone)]
struct Piece {
    bytes: Arc<[u8]>,
    from: usize,
    to: usize,
}

impl Piece {
    fn len(&self) -> u64 {
        (self.to - self.from) as u64
    }
}

impl Content {
    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    fn write(&mut self, offset: u64, bytes: Arc<[u8]>) {
        if bytes.is_empty() {
            return; // writing nothing past the end does not make a file longer
        }
        let (to, end) = (bytes.len(), offset + bytes.len() as u64);
        self.clear(offset, end);
        self.size = self.size.max(end);
        self.pieces.insert(offset, Piece { bytes, from: 0, to });
    }

    fn truncate(&mut self, size: u64) {
        self.clear(size, u64::MAX);
        self.size = size;
    }

    /// Forgets what is between two offsets.
    fn clear(&mut self, start: u64, end: u64) {
        let before = self.pieces.range(..start).next_back().map(|(at, piece)| (*at, piece.clone()));
        if let Some((at, piece)) = before {
            let past = at + piece.len();
            if past > start {
                let keep = piece.from + usize::try_from(start - at).expect("it is in memory");
                self.pieces.insert(at, Piece { to: keep, ..piece.clone() });
                self.keep_tail(at, &piece, end);
            }
        }
        let inside: Vec<u64> = self.pieces.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            if let Some(piece) = self.pieces.remove(&at) {
                self.keep_tail(at, &piece, end);
            }
        }
    }

    fn keep_tail(&mut self, at: u64, piece: &Piece, end: u64) {
        if at + piece.len() > end {
            let from = piece.from + usize::try_from(end - at).expect("it is in memory");
            self.pieces.insert(end, Piece { from, ..piece.clone() });
        }
    }

    /// Hands the bytes from `offset` on, `len` of them at most, to `take`, zeros for what is not there.
    pub fn read(&self, offset: u64, len: u64, mut take: impl FnMut(&[u8])) {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let end = self.size.min(offset.saturating_add(len));
        let mut at = offset;
        while at < end {
            let under = self.pieces.range(..=at).next_back();
            let under = under.filter(|(start, piece)| at < *start + piece.len());
            if let Some((start, piece)) = under {
                let skip = usize::try_from(at - start).expect("it is in memory");
                let n = (piece.len() - skip as u64).min(end - at);
                let first = piece.from + skip;
                take(&piece.bytes[first..first + usize::try_from(n).expect("it is in memory")]);
                at += n;
            } else {
                let next = self.pieces.range(at..).next().map_or(end, |(start, _)| *start);
                let n = (next.min(end) - at).min(ZEROS.len() as u64);
                take(&ZEROS[..usize::try_from(n).expect("it is small")]);
                at += n;
            }
        }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.read(0, u64::MAX, |part| out.extend_from_slice(part));
        out
    }

    /// The hex of its sha256.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut sum = Sha256::new();
        self.read(0, u64::MAX, |part| sum.update(part));
        sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Offset and length of what was written and not cut off again, neighbours joined.
    #[must_use]
    pub fn written(&self) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (at, piece) in &self.pieces {
            match out.last_mut() {
                Some((start, len)) if *start + *len == *at => *len += piece.len(),
                _ => out.push((*at, piece.len())),
            }
        }
        out
    }
}

/// Names of a directory, and the nodes that they lead to.
type Names = BTreeMap<Vec<u8>, u64>;

/// What a node is.
#[derive(Debug, Clone)]
pub enum Form {
    /// A regular file.
    File(Content),
    /// A directory: names and nodes.
    Dir(Names),
    /// A symbolic link.
    Link(Vec<u8>),
    /// A named pipe.
    Fifo,
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub form: Form,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Last change of the content, [`UNKNOWN_TIME`] unless it was set since.
    pub mtime: Time,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Why the model refuses an operation: it is no valid one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

/// A tree of files.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Shared with copies of the tree until they differ.
    nodes: BTreeMap<u64, Arc<Node>>,
    next: u64,
}

const ROOT: u64 = 0;

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// An empty file system: a root of mode 0755, owned by 0:0.
    #[must_use]
    pub fn new() -> Tree {
        Tree {
            nodes: BTreeMap::from([(ROOT, Node::shared(Form::Dir(BTreeMap::new()), 0o755))]),
            next: 1,
        }
    }

    /// The node at `path` (`b""` is the root).
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Node> {
        self.nodes.get(&self.find(path)?).map(Arc::as_ref)
    }

    fn find(&self, path: &[u8]) -> Option<u64> {
        let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(ROOT, |at, name| match &self.nodes.get(&at)?.form {
            Form::Dir(names) => names.get(name).copied(),
            _ => None,
        })
    }

    fn node(&mut self, path: &[u8]) -> Result<&mut Node, Refused> {
        let id = self.find(path).ok_or_else(|| refused("no such file", path))?;
        let node = self.nodes.get_mut(&id).ok_or_else(|| refused("no such file", path))?;
        Ok(Arc::make_mut(node))
    }

    /// The entries of the directory above `path`, and the last name of `path`.
    fn parent<'a>(&mut self, path: &'a [u8]) -> Result<(&mut Names, &'a [u8]), Refused> {
        let cut = path.iter().rposition(|b| *b == b'/');
        let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        if name.is_empty() || name.len() > 255 {
            return Err(refused("no name", path));
        }
        let node = self.node(above)?;
        node.mtime = UNKNOWN_TIME;
        match &mut node.form {
            Form::Dir(names) => Ok((names, name)),
            _ => Err(refused("not a directory", above)),
        }
    }

    fn add(&mut self, path: &[u8], form: Form, mode: u32) -> Result<(), Refused> {
        let id = self.next;
        let (names, name) = self.parent(path)?;
        if names.contains_key(name) {
            return Err(refused("exists", path));
        }
        names.insert(name.to_vec(), id);
        self.nodes.insert(id, Node::shared(form, mode));
        self.next += 1;
        Ok(())
    }

    fn content(&mut self, path: &[u8]) -> Result<&mut Content, Refused> {
        let node = self.node(path)?;
        node.mtime = UNKNOWN_TIME;
        match &mut node.form {
            Form::File(content) => Ok(content),
            _ => Err(refused("not a file", path)),
        }
    }

    fn unlink(&mut self, path: &[u8]) -> Result<(), Refused> {
        let (names, name) = self.parent(path)?;
        let id = names.remove(name).ok_or_else(|| refused("no such file", path))?;
        if self.links(id) == 0 {
            self.nodes.remove(&id);
        }
        Ok(())
    }

    /// Does `op`.
    ///
    /// # Errors
    /// If a file system would refuse it.
    pub fn apply(&mut self, op: &Op) -> Result<(), Refused> {
        match op {
            Op::Mkdir { path, mode } => self.add(path, Form::Dir(BTreeMap::new()), *mode),
            Op::Create { path, mode } => self.add(path, Form::File(Content::default()), *mode),
            Op::Fifo { path, mode } => self.add(path, Form::Fifo, *mode),
            Op::Symlink { path, target } => self.add(path, Form::Link(target.clone()), 0o777),
            Op::Write { path, offset, data } => {
                self.content(path)?.write(*offset, data.bytes().into());
                Ok(())
            }
            Op::Truncate { path, size } => {
                self.content(path)?.truncate(*size);
                Ok(())
            }
            Op::Link { existing, path } => self.link(existing, path),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Remove { path } => match self.node(path)?.form {
                Form::Dir(_) => Err(refused("is a directory", path)),
                _ => self.unlink(path),
            },
            Op::Rmdir { path } => match &self.node(path)?.form {
                Form::Dir(names) if names.is_empty() => self.unlink(path),
                _ => Err(refused("not an empty directory", path)),
            },
            Op::SetMode { path, mode } => {
                self.node(path)?.mode = *mode;
                Ok(())
            }
            Op::SetOwner { path, uid, gid } => {
                self.node(path)?.owner = (*uid, *gid);
                Ok(())
            }
            Op::SetTime { path, mtime } => {
                self.node(path)?.mtime = *mtime;
                Ok(())
            }
            Op::SetXattr { path, name, value } => {
                self.node(path)?.xattrs.insert(name.clone(), value.clone());
                Ok(())
            }
            Op::RemoveXattr { path, name } => {
                let removed = self.node(path)?.xattrs.remove(name);
                removed.map(drop).ok_or_else(|| refused("no such attribute", path))
            }
            Op::Sync | Op::Reopen => Ok(()),
        }
    }

    fn link(&mut self, existing: &[u8], path: &[u8]) -> Result<(), Refused> {
        let id = self.find(existing).ok_or_else(|| refused("no such file", existing))?;
        if matches!(self.node(existing)?.form, Form::Dir(_)) {
            return Err(refused("is a directory", existing));
        }
        let (names, name) = self.parent(path)?;
        if names.contains_key(name) {
            return Err(refused("exists", path));
        }
        names.insert(name.to_vec(), id);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Refused> {
        let id = self.find(from).ok_or_else(|| refused("no such file", from))?;
        let inside = [from, b"/"].concat();
        if to.starts_with(&inside) {
            return Err(refused("into itself", to));
        }
        if let Some(there) = self.find(to) {
            if there == id {
                return Ok(()); // two names of one file: both stay
            }
            let dir = matches!(self.node(from)?.form, Form::Dir(_));
            match &self.node(to)?.form {
                Form::Dir(names) if dir && names.is_empty() => self.unlink(to)?,
                Form::Dir(_) => return Err(refused("a directory is there", to)),
                _ if dir => return Err(refused("a file is there", to)),
                _ => self.unlink(to)?,
            }
        }
        let (names, name) = self.parent(to)?;
        names.insert(name.to_vec(), id);
        let (names, name) = self.parent(from)?;
        names.remove(name);
        Ok(())
    }

    /// How many names lead to a node.
    fn links(&self, id: u64) -> u64 {
        let dirs = self.nodes.values().filter_map(|node| match &node.form {
            Form::Dir(names) => Some(names),
            _ => None,
        });
        dirs.map(|names| names.values().filter(|there| **there == id).count() as u64).sum()
    }

    /// Every path and its node, parents first, in the order of bytes.
    #[must_use]
    pub fn paths(&self) -> Vec<(Vec<u8>, &Node)> {
        self.walk().into_iter().map(|(path, id)| (path, self.nodes[&id].as_ref())).collect()
    }

    fn walk(&self) -> Vec<(Vec<u8>, u64)> {
        let mut out = vec![(Vec::new(), ROOT)];
        let mut at = 0;
        while at < out.len() {
            let (path, id) = out[at].clone();
            if let Form::Dir(names) = &self.nodes[&id].form {
                for (name, child) in names {
                    let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    out.push(([&path, sep, name].concat(), *child));
                }
            }
            at += 1;
        }
        out.sort();
        out
    }

    /// The tree as a listing, to be compared with one of a pool or a directory
    /// ([`crate::compare`]). Object numbers, space used and block sizes are 0, atime and ctime
    /// unknown.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let walked = self.walk();
        let mut links: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, id) in &walked {
            *links.entry(*id).or_default() += 1;
        }
        let list = walked.iter().map(|(path, id)| {
            let node = &self.nodes[id];
            let path = if path.is_empty() { b".".to_vec() } else { path.clone() };
            let mut entry = Entry::new(path, Kind::File);
            match &node.form {
                Form::File(content) => {
                    entry.size = content.size();
                    entry.sha256 = Some(content.sha256());
                    entry.data = Some(content.written());
                }
                Form::Dir(names) => {
                    entry.kind = Kind::Dir;
                    entry.size = 2 + names.len() as u64;
                }
                Form::Link(target) => {
                    entry.kind = Kind::Link;
                    entry.size = target.len() as u64;
                    entry.target = Some(target.clone());
                }
                Form::Fifo => entry.kind = Kind::Fifo,
            }
            let is_dir = |id: &&u64| matches!(self.nodes[*id].form, Form::Dir(_));
            entry.nlink = match &node.form {
                Form::Dir(names) => 2 + names.values().filter(is_dir).count() as u64,
                _ => links[id],
            };
            (entry.mode, entry.uid, entry.gid) = (node.mode, node.owner.0, node.owner.1);
            entry.mtime = node.mtime;
            let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| (name.clone(), XattrValue::of(value));
            entry.xattrs = node.xattrs.iter().map(xattr).collect();
            entry
        });
        list.collect()
    }
}

impl Node {
    fn shared(form: Form, mode: u32) -> Arc<Node> {
        let xattrs = BTreeMap::new();
        Arc::new(Node { form, mode, owner: (0, 0), mtime: UNKNOWN_TIME, xattrs })
    }
}

fn refused(why: &str, path: &[u8]) -> Refused {
    Refused(format!("{why}: {}", path.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn content_is_what_a_plain_vector_says() {
        let mut rng = Rng::new(3);
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for _ in 0..2000 {
            let at = rng.below(5000) as usize;
            if rng.one_in(5) {
                content.truncate(at as u64);
                plain.resize(at, 0);
            } else {
                let mut bytes = vec![0; rng.below(900) as usize];
                rng.fill(&mut bytes);
                let end = at + bytes.len();
                if !bytes.is_empty() {
                    plain.resize(plain.len().max(end), 0);
                    plain[at..end].copy_from_slice(&bytes);
                }
                content.write(at as u64, bytes.into());
            }
            assert_eq!(content.bytes(), plain);
            let mut part = Vec::new();
            content.read(100, 300, |bytes| part.extend_from_slice(bytes));
            assert_eq!(part, plain.get(100..plain.len().min(400)).unwrap_or_default());
        }
        let written: u64 = content.written().iter().map(|(_, len)| len).sum();
        assert!(written <= content.size());
    }
}
