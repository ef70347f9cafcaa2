//! Two names change places, as renameat2(2) does it with RENAME_EXCHANGE.

use crate::attrs::{self, mode};
use crate::error::{FsError, Result, shown};
use crate::filesystem::{Filesystem, NAME_BYTES};
use crate::names::entry_value;
use crate::protected::Change;
use crate::quota::check_project;

impl Filesystem {
    /// What `name` in `from` stands for and what `new_name` in `to` stands for change places, in one change.
    pub fn exchange(&self, from: u64, name: &[u8], to: u64, new_name: &[u8]) -> Result<()> {
        let tree = self.shared.tree.lock();
        let (one, other, locks) = loop {
            let (one, other) = (self.must_find(from, name)?, self.must_find(to, new_name)?);
            let locks = self.lock_all(&[from, to, one.object, other.object]);
            // Somebody may have been faster.
            if self.lookup(from, name)?.as_ref() == Some(&one)
                && self.lookup(to, new_name)?.as_ref() == Some(&other)
            {
                break (one, other, locks);
            }
        };
        if one.object == other.object {
            return Ok(());
        }
        for (moved, into) in [(&one, to), (&other, from)] {
            if moved.kind == mode::DIR && self.is_below(into, moved.object)? {
                let reason = "Invalid argument: a directory cannot be moved into itself";
                return Err(FsError::Invalid { path: shown(&moved.name), reason });
            }
            let dir = self.znode_of(&self.object(into)?)?;
            let znode = self.znode_of(&self.object(moved.object)?)?;
            self.permit(&dir, Change::Lose, String::from_utf8_lossy(&moved.name))?;
            self.permit(&znode, Change::Leave, String::from_utf8_lossy(&moved.name))?;
            check_project(&dir, &moved.name, &znode)?;
        }
        let tx = self.enter(2 * NAME_BYTES)?;
        let (dir, other_dir) = (self.directory(from)?, self.directory(to)?);
        // Before anybody can find them: what others do below them there is not to be in a log without it.
        self.tell_untold_names(&tx);
        dir.put_u64(&tx, &one.name, entry_value(other.object, other.kind))?;
        self.note_lost_name();
        other_dir.put_u64(&tx, &other.name, entry_value(one.object, one.kind))?;
        self.note_lost_name();
        let moved_in = i64::from(other.kind == mode::DIR) - i64::from(one.kind == mode::DIR);
        let moved_in = if from == to { 0 } else { moved_in };
        self.count_entries(&tx, dir.object(), 0, moved_in)?;
        if from != to {
            self.count_entries(&tx, other_dir.object(), 0, -moved_in)?;
        }
        for (moved, into) in [(&one, to), (&other, from)] {
            self.change_znode(&tx, &self.object(moved.object)?, |znode| {
                znode.parent = into;
                znode.ctime = attrs::now();
            })?;
        }
        drop((tx, locks, tree));
        self.done(one.object)
    }
}
