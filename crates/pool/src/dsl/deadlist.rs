//! A deadlist: what a data set lets go but its previous snapshot still holds, sorted by birth.
//!
//! Its keys stand for the snapshots of the history, so that destroying one frees or hands on whole
//! sublists, without a look at their blocks. The rules about keys are in `format::deadlist`; here
//! they are applied. FORMAT: section 8.4.

use dmu::{Bpobj, Space, Tx, Zap};
use format::BlkPtr;
use format::deadlist::{self, DeadlistPhys};
use zerocopy::IntoBytes;

use crate::dsl::create::Making;
use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};

/// The deadlist of a head or a snapshot.
pub(crate) struct Deadlist<'a> {
    making: &'a Making<'a>,
    zap: Zap,
    /// Keys with their lists, in order.
    entries: Vec<(u64, u64)>,
}

fn damaged(number: u64, detail: impl std::fmt::Display) -> PoolError {
    PoolError::Damaged { what: "deadlist", detail: format!("object {number}: {detail}") }
}

fn entries(zap: &Zap) -> Result<Vec<(u64, u64)>> {
    let mut out: Result<Vec<(u64, u64)>> = Ok(Vec::new());
    zap.each_number(|name, list| {
        let entry = deadlist::parse_key_name(name).map_err(|e| damaged(zap.number(), e));
        let entry = entry.and_then(|key| {
            let none = || damaged(zap.number(), format!("key {key} has no list"));
            Ok((key, list.ok_or_else(none)?))
        });
        match (&mut out, entry) {
            (Ok(entries), Ok(entry)) => entries.push(entry),
            (Ok(_), Err(e)) => out = Err(e),
            (Err(_), _) => {}
        }
    })?;
    let mut out = out?;
    out.sort_unstable();
    Ok(out)
}

/// The space of all that is on the deadlist in object `number`.
pub(crate) fn space(mos: &Mos, number: u64) -> Result<Space> {
    let bonus = mos.objset.object(number)?.bonus()?;
    let phys = DeadlistPhys::parse(&bonus).map_err(|e| damaged(number, e))?;
    Ok(Space {
        used: phys.used_bytes.get(),
        compressed: phys.compressed_bytes.get(),
        uncompressed: phys.uncompressed_bytes.get(),
    })
}

/// The space of what is on the deadlist in object `number` and was born in `(min_txg, max_txg]`.
/// Both must be keys, or beyond all of them.
pub(crate) fn space_within(mos: &Mos, number: u64, min_txg: u64, max_txg: u64) -> Result<Space> {
    let mut total = Space::default();
    for (key, list) in entries(&mos.zap(number)?)? {
        if (min_txg..max_txg).contains(&key) {
            total += Bpobj::open(&mos.objset, list)?.space()?;
        }
    }
    Ok(total)
}

impl<'a> Deadlist<'a> {
    /// The deadlist in object `number`.
    pub(crate) fn open(making: &'a Making<'a>, number: u64) -> Result<Deadlist<'a>> {
        let zap = making.mos.zap(number)?;
        let entries = entries(&zap)?;
        Ok(Deadlist { making, zap, entries })
    }

    /// Its object.
    pub(crate) fn number(&self) -> u64 {
        self.zap.number()
    }

    /// Its keys, in order.
    pub(crate) fn keys(&self) -> Vec<u64> {
        self.entries.iter().map(|(key, _)| *key).collect()
    }

    fn tx(&self) -> &'a Tx<'a> {
        self.making.tx
    }

    fn mos(&self) -> &'a Mos {
        self.making.mos
    }

    /// The space of what was born in `(min_txg, max_txg]`.
    pub(crate) fn space_within(&self, min_txg: u64, max_txg: u64) -> Result<Space> {
        space_within(self.mos(), self.number(), min_txg, max_txg)
    }

    /// Puts blocks on the list, each under the largest key below its birth.
    pub(crate) fn insert(
        &mut self,
        bps: &[BlkPtr],
        space: impl Fn(&BlkPtr) -> Space + Copy,
    ) -> Result<()> {
        let keys = self.keys();
        let mut by_key = vec![Vec::new(); keys.len()];
        let mut total = Space::default();
        for bp in bps {
            let key = deadlist::key_for_birth(&keys, bp.birth());
            let at = key.and_then(|key| keys.binary_search(&key).ok());
            let at = at.ok_or_else(|| {
                damaged(self.number(), format!("no key below {}, a block's birth", bp.birth()))
            })?;
            by_key[at].push(*bp);
            total += space(bp);
        }
        for (at, bps) in by_key.iter().enumerate().filter(|(_, bps)| !bps.is_empty()) {
            self.own_list(at)?.append(self.tx(), bps, space)?;
        }
        self.count(u64::checked_add, total)
    }

    /// The list under key number `at`; in place of the shared empty one it gets one of its own.
    fn own_list(&mut self, at: usize) -> Result<Bpobj> {
        let (key, list) = self.entries[at];
        if self.mos().find(key::EMPTY_BPOBJ)? != Some(list) {
            return Ok(Bpobj::open(&self.mos().objset, list)?);
        }
        let made = Bpobj::create_default(&self.mos().objset, self.tx())?;
        self.zap.put_u64(self.tx(), deadlist::key_name(key).as_bytes(), made.number())?;
        self.making.drop_empty_bpobjs(1)?;
        self.entries[at].1 = made.number();
        Ok(made)
    }

    /// Has the list under key number `at` take over `list`.
    fn hand_on(&mut self, at: usize, list: u64) -> Result<()> {
        let (mos, tx) = (self.mos(), self.tx());
        if mos.find(key::EMPTY_BPOBJ)? == Some(list) {
            return self.making.drop_empty_bpobjs(1);
        }
        let list = Bpobj::open(&mos.objset, list)?;
        if list.phys()?.is_empty() {
            return Ok(list.free(&mos.objset, tx)?);
        }
        let (key, own) = self.entries[at];
        if mos.find(key::EMPTY_BPOBJ)? == Some(own) {
            self.zap.put_u64(tx, deadlist::key_name(key).as_bytes(), list.number())?;
            self.entries[at].1 = list.number();
            return self.making.drop_empty_bpobjs(1);
        }
        Ok(Bpobj::open(&mos.objset, own)?.take_over(&mos.objset, tx, &list)?)
    }

    /// Counts space in or out of the sums.
    fn count(&self, change: fn(u64, u64) -> Option<u64>, space: Space) -> Result<()> {
        let object = self.zap.object();
        let bonus = object.bonus()?;
        let mut phys = *DeadlistPhys::parse(&bonus).map_err(|e| damaged(self.number(), e))?;
        for (sum, by) in [
            (&mut phys.used_bytes, space.used),
            (&mut phys.compressed_bytes, space.compressed),
            (&mut phys.uncompressed_bytes, space.uncompressed),
        ] {
            let sums = || damaged(self.number(), "its sums are not those of its lists");
            sum.set(change(sum.get(), by).ok_or_else(sums)?);
        }
        Ok(object.set_bonus(self.tx(), phys.as_bytes(), None)?)
    }

    /// The snapshot that `key` stood for is gone: what it holds goes to the key before.
    pub(crate) fn remove_key(&mut self, key: u64) -> Result<()> {
        let Ok(at) = self.entries.binary_search_by_key(&key, |(key, _)| *key) else {
            return Ok(());
        };
        let (_, list) = self.entries[at];
        let before = at.checked_sub(1);
        let before = before.ok_or_else(|| damaged(self.number(), "no key below one that goes"))?;
        self.hand_on(before, list)?;
        self.forget(at)
    }

    fn forget(&mut self, at: usize) -> Result<()> {
        let (key, _) = self.entries.remove(at);
        self.zap.remove(self.tx(), deadlist::key_name(key).as_bytes())?;
        Ok(())
    }

    /// Gives all that was born after `min_txg` to `target`, with its keys.
    pub(crate) fn give_after(&mut self, min_txg: u64, target: &Bpobj) -> Result<Space> {
        let (mos, tx) = (self.mos(), self.tx());
        let mut total = Space::default();
        let gone = self.entries.split_off(self.entries.partition_point(|(key, _)| *key < min_txg));
        let empty = mos.find(key::EMPTY_BPOBJ)?;
        let mut empties = 0;
        for (_, number) in gone.iter().rev() {
            if empty == Some(*number) {
                empties += 1;
                continue;
            }
            let list = Bpobj::open(&mos.objset, *number)?;
            total += list.space()?;
            target.take_over(&mos.objset, tx, &list)?;
        }
        self.making.drop_empty_bpobjs(empties)?;
        let name = |key: u64| deadlist::key_name(key);
        let kept: Vec<_> = self.entries.iter().map(|(key, list)| (name(*key), *list)).collect();
        if gone.len() <= kept.len() || !self.zap.refill(tx, &kept)? {
            for (key, _) in &gone {
                self.zap.remove(tx, name(*key).as_bytes())?;
            }
        }
        self.count(u64::checked_sub, total)?;
        Ok(total)
    }

    /// Takes over all of `other`, which is gone afterwards.
    pub(crate) fn merge(&mut self, other: Deadlist<'_>) -> Result<()> {
        let total = space(self.mos(), other.number())?;
        // Nearly all of a long history's lists are the empty one: they are counted at once.
        let empty = self.mos().find(key::EMPTY_BPOBJ)?;
        let mut empties = 0;
        for (key, list) in &other.entries {
            let at = self.entries.partition_point(|(own, _)| own <= key).checked_sub(1);
            let at = at.ok_or_else(|| damaged(self.number(), format!("no key up to {key}")))?;
            if empty == Some(*list) {
                empties += 1;
            } else {
                self.hand_on(at, *list)?;
            }
        }
        self.making.drop_empty_bpobjs(empties)?;
        self.count(u64::checked_add, total)?;
        Ok(self.mos().objset.free(self.tx(), other.number())?)
    }

    /// Frees the deadlist; the blocks on it stay as they are.
    pub(crate) fn free(self) -> Result<()> {
        let (mos, tx) = (self.mos(), self.tx());
        let empty = mos.find(key::EMPTY_BPOBJ)?;
        for (_, list) in self.entries.iter().filter(|(_, list)| empty != Some(*list)) {
            Bpobj::open(&mos.objset, *list)?.free(&mos.objset, tx)?;
        }
        let empties = self.entries.iter().filter(|(_, list)| empty == Some(*list)).count();
        self.making.drop_empty_bpobjs(empties)?;
        Ok(mos.objset.free(tx, self.number())?)
    }
}
