//! Giving a data set another name, or another parent. FORMAT: section 8.5.
//!
//! A directory that moves takes its charges with it: the old ancestors are relieved of what it
//! uses and reserves, the new ones charged.

use format::dsl_dir::{DslDirPhys, Used};

use crate::dsl::account::{Delta, charge};
use crate::dsl::lookup::Found;
use crate::error::Result;
use crate::ledger::Ledger;

impl Ledger<'_> {
    /// Moves directory `found` to `parent`, where it is called `leaf`.
    pub(crate) fn rename_dir(&self, found: &Found, parent: u64, leaf: &str) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let mut dir = mos.dir(found.dir_object)?;
        let old = dir.parent_object.get();
        let old_leaf = found.name.rsplit('/').next().unwrap_or_default();
        if old != parent {
            self.charge_parent(&dir, old, -1)?;
            dir.parent_object.set(parent);
            mos.set_dir(tx, found.dir_object, &dir)?;
            self.charge_parent(&dir, parent, 1)?;
        }
        let map = |parent| mos.zap(mos.dir(parent)?.child_dir_zap_object.get());
        map(old)?.remove(tx, old_leaf.as_bytes())?;
        Ok(map(parent)?.put_u64(tx, leaf.as_bytes(), found.dir_object)?)
    }

    /// Charges a directory to `parent` (`sign` 1), or relieves it (-1).
    fn charge_parent(&self, dir: &DslDirPhys, parent: u64, sign: i64) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let used = dir.used_bytes.get();
        let rest = dir.reserved_bytes.get().saturating_sub(used);
        let own = Delta {
            used: sign * used as i64,
            compressed: sign * dir.compressed_bytes.get() as i64,
            uncompressed: sign * dir.uncompressed_bytes.get() as i64,
        };
        charge(mos, tx, parent, Used::Child, own)?;
        let reserved = Delta { used: sign * rest as i64, ..Delta::default() };
        charge(mos, tx, parent, Used::ChildReserved, reserved)
    }

    /// Gives a snapshot of `head` another name.
    pub(crate) fn rename_snapshot(&self, head: &Found, from: &str, to: &str) -> Result<()> {
        let mos = self.making.mos;
        let names = mos.zap(mos.dataset(head.object)?.snapnames_zap_object.get())?;
        if let Some(object) = names.get_u64(from.as_bytes())? {
            names.remove(self.making.tx, from.as_bytes())?;
            names.put_u64(self.making.tx, to.as_bytes(), object)?;
        }
        Ok(())
    }
}
