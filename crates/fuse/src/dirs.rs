//! Reading directories, a piece at a time.
//!
//! The one idea: the place of an entry is its place in the ZAP, as OpenZFS gives it to readers. It holds while others
//! add and remove entries, needs no memory between two requests, and a directory of any size costs each request the
//! same. Places below three are those of `.`, `..` and `.zfs`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fs::CONTROL_NAME;
use fuser::{Errno, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::attr::{file_type, unknown};
use crate::control::KIND;
use crate::door::{Answer, Door, errno};
use crate::nodes::{CONTROL_DIR, Node, Place, SNAPSHOT_DIR};

/// Entries that are asked for at once.
const BATCH: usize = 128;
/// Places that are no ZAP's.
const FIRST: u64 = 3;

/// An entry on its way to the kernel.
struct Found<'a> {
    name: &'a [u8],
    number: u64,
    kind: u32,
    /// The place after it.
    next: u64,
    /// The object, if it is to be told of with its attributes.
    place: Option<Place>,
}

impl Door {
    /// `readdir`.
    pub(crate) fn list(&self, ino: INodeNo, from: u64, mut reply: ReplyDirectory) {
        let listed = self.each(ino, from, false, &mut |found| {
            let (number, kind) = (INodeNo(found.number), file_type(found.kind));
            reply.add(number, found.next, kind, OsStr::from_bytes(found.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    /// `readdirplus`: with what a lookup of each would say.
    pub(crate) fn list_plus(&self, ino: INodeNo, from: u64, mut reply: ReplyDirectoryPlus) {
        let listed = self.each(ino, from, true, &mut |found| {
            let name = OsStr::from_bytes(found.name);
            let Some(place) = &found.place else {
                let attr = self.control_attr(found.number);
                let attr = attr.unwrap_or_else(|_| unknown(found.number, found.kind));
                let (ino, ttl) = (attr.ino, &self.attr_ttl);
                return reply.add(ino, found.next, name, ttl, &attr, Generation(0));
            };
            // Before the kernel hears of it, and before it is looked at: what goes in between keeps its number.
            place.know();
            let (attr, generation, ttl) = match self.told(place) {
                // One time for both: of a name nothing is to be remembered where another is the same name.
                Ok((attr, generation)) => (attr, generation, self.attr_ttl.min(self.entry_ttl)),
                // What is wrong with it is said to who asks for it by its name.
                Err(_) => (unknown(found.number, found.kind), Generation(0), Duration::ZERO),
            };
            let is_full = reply.add(attr.ino, found.next, name, &ttl, &attr, generation);
            if is_full {
                place.forget(1);
            }
            is_full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    /// Hands entries from a place on to `each`, until it says that there is no more room.
    fn each(
        &self,
        ino: INodeNo,
        from: u64,
        plus: bool,
        each: &mut dyn FnMut(Found<'_>) -> bool,
    ) -> Answer<()> {
        let dir = match self.spaces.node(ino)? {
            Node::Object(place) => place,
            Node::ControlDir => return self.each_control(CONTROL_DIR, from, plus, each),
            Node::SnapshotDir => return self.each_control(SNAPSHOT_DIR, from, plus, each),
        };
        if from == 0 {
            self.accessed(&dir);
        }
        let attrs = dir.fs.attrs(dir.object).map_err(|e| errno(&e))?;
        if !attrs.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let above = match dir.object == dir.fs.root() {
            // That of a snapshot is on no disk.
            true if !dir.is_live() => SNAPSHOT_DIR,
            true => dir.number(),
            false => dir.beside(attrs.parent).number(),
        };
        let shows_control = dir.is_root() && self.control().1;
        let own: [(&[u8], u64, bool); 3] = [
            (b".", dir.number(), true),
            (b"..", above, true),
            (CONTROL_NAME, CONTROL_DIR, shows_control),
        ];
        for (at, (name, number, shown)) in
            own.into_iter().enumerate().skip(from.min(FIRST) as usize)
        {
            let found = Found { name, number, kind: KIND, next: at as u64 + 1, place: None };
            if shown && each(found) {
                return Ok(());
            }
        }
        let mut at = from.saturating_sub(FIRST);
        loop {
            let entries = dir.fs.list_dir(dir.object, at, BATCH).map_err(|e| errno(&e))?;
            let Some((_, last)) = entries.last() else { return Ok(()) };
            at = *last;
            for (entry, next) in &entries {
                let place = dir.beside(entry.object);
                let found = Found {
                    name: &entry.name,
                    number: place.number(),
                    kind: entry.kind,
                    next: next.saturating_add(FIRST),
                    place: Some(place),
                };
                if each(found) {
                    return Ok(());
                }
            }
        }
    }

    fn each_control(
        &self,
        number: u64,
        from: u64,
        plus: bool,
        each: &mut dyn FnMut(Found<'_>) -> bool,
    ) -> Answer<()> {
        let entries = self.control_entries(number)?;
        for entry in entries.iter().filter(|entry| entry.next > from) {
            let (name, next) = (&entry.name[..], entry.next);
            // Who is told of attributes is told of the snapshot itself; one that was destroyed just now is not there.
            let place = match plus && entry.is_snapshot {
                true => match self.snapshot_root(name)? {
                    None => continue,
                    there => there,
                },
                false => None,
            };
            let number = place.as_ref().map_or(entry.number, Place::number);
            if each(Found { name, number, kind: KIND, next, place }) {
                break;
            }
        }
        Ok(())
    }
}
