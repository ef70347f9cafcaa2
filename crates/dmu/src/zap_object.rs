//! A ZAP object by its everyday names: what pool and fs do with ZAPs.
//!
//! The algorithms are in [`crate::zap`]; here they meet an [`Object`] and a txg.

use format::zap::{Cursor, Entry, Value};
use format::{DnodePhys, ObjectType};
use rt::sync::Arc;

use crate::error::{DmuError, Result};
use crate::object::Object;
use crate::objset::Objset;
use crate::txg::Tx;
use crate::zap::{self, Memo, ZapBlocks, ZapError};

/// The blocks of an object as a ZAP sees them; without a txg they cannot be changed.
struct Blocks<'a> {
    object: &'a Arc<Object>,
    tx: Option<&'a Tx<'a>>,
}

impl Blocks<'_> {
    fn tx(&self) -> &Tx<'_> {
        self.tx.expect("only what holds a txg changes a ZAP")
    }
}

impl ZapBlocks for Blocks<'_> {
    type Error = DmuError;

    fn block_size(&self) -> usize {
        self.object.block_size().unwrap_or(512) as usize
    }

    fn max_block(&self) -> u64 {
        self.object.max_block().unwrap_or(0)
    }

    fn read<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.object.with_block(blkid, f)
    }

    fn modify<R>(&mut self, blkid: u64, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.object.with_block_mut(self.tx(), blkid, f)
    }

    fn set_block_size(&mut self, bytes: usize) -> Result<()> {
        self.object.set_block_size(self.tx(), bytes as u32)
    }

    fn free_blocks(&mut self, first: u64, count: u64) -> Result<()> {
        self.object.free_blocks(self.tx(), first, count)
    }

    fn error(&self, source: ZapError) -> DmuError {
        DmuError::Zap { object: self.object.number(), source }
    }

    fn take_memo(&mut self) -> Memo {
        self.object.zap_memo().take()
    }

    fn keep_memo(&mut self, memo: Memo) {
        self.object.zap_memo().set(memo);
    }

    fn with_memo<R>(&self, f: impl FnOnce(&Memo) -> R) -> R {
        f(&self.object.zap_memo().get())
    }
}

/// A ZAP object.
#[derive(Clone)]
pub struct Zap(pub(crate) Arc<Object>);

impl Zap {
    /// Opens the ZAP in object `number`.
    pub fn open(objset: &Objset, number: u64) -> Result<Zap> {
        Self::of(objset.object(number)?)
    }

    /// The ZAP in an object.
    pub fn of(object: Arc<Object>) -> Result<Zap> {
        let kind = object.with_header(DnodePhys::kind)?;
        if !kind.is_zap() {
            return Err(DmuError::WrongKind {
                object: object.number(),
                seen: kind.name(),
                expected: "ZAP",
            });
        }
        Ok(Zap(object))
    }

    /// Makes a new, empty ZAP object.
    pub fn create(objset: &Objset, tx: &Tx<'_>, kind: ObjectType, normflags: u64) -> Result<Zap> {
        Self::create_with_bonus(objset, tx, kind, normflags, ObjectType::NONE, &[])
    }

    /// Makes a new, empty ZAP object with a bonus.
    pub fn create_with_bonus(
        objset: &Objset,
        tx: &Tx<'_>,
        kind: ObjectType,
        normflags: u64,
        bonus_kind: ObjectType,
        bonus: &[u8],
    ) -> Result<Zap> {
        let object = objset.allocate(tx, kind, 512, bonus_kind, bonus, 1)?;
        Self::format(object, tx, normflags)
    }

    /// Makes a ZAP object of these entries, whose names differ, with a bonus.
    pub fn create_filled(
        objset: &Objset,
        tx: &Tx<'_>,
        kind: ObjectType,
        (bonus_kind, bonus): (ObjectType, &[u8]),
        entries: &[(String, u64)],
    ) -> Result<Zap> {
        if let Some(size) = zap::micro_size(entries.len()) {
            let object = objset.allocate(tx, kind, size as u32, bonus_kind, bonus, 1)?;
            let salt = salt_of(&object, tx);
            let mut blocks = Blocks { object: &object, tx: Some(tx) };
            if zap::format_filled(&mut blocks, salt, entries)? {
                return Ok(Zap(object));
            }
            objset.free(tx, object.number())?;
        }
        let zap = Self::create_with_bonus(objset, tx, kind, 0, bonus_kind, bonus)?;
        entries.iter().try_for_each(|(name, value)| zap.put_u64(tx, name.as_bytes(), *value))?;
        Ok(zap)
    }

    /// Makes an empty ZAP of an object without data.
    pub fn format(object: Arc<Object>, tx: &Tx<'_>, normflags: u64) -> Result<Zap> {
        let salt = salt_of(&object, tx);
        zap::format_micro(&mut Blocks { object: &object, tx: Some(tx) }, salt, normflags)?;
        Ok(Zap(object))
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { object: &self.0, tx: None }
    }

    fn changing<'a>(&'a self, tx: &'a Tx<'a>) -> Blocks<'a> {
        Blocks { object: &self.0, tx: Some(tx) }
    }

    /// The object.
    pub fn object(&self) -> &Arc<Object> {
        &self.0
    }

    /// The object's number.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// The value of `name`.
    pub fn get(&self, name: &[u8]) -> Result<Option<Value>> {
        let _reading = self.0.zap_memo().lock.read();
        zap::lookup(&self.blocks(), name)
    }

    /// The value of `name`, which must be one integer.
    pub fn get_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        match value.as_u64() {
            Some(value) => Ok(Some(value)),
            None => Err(DmuError::Limit {
                object: self.number(),
                what: "a ZAP value that is not one integer",
            }),
        }
    }

    /// The entry that `name` stands for in a ZAP that normalizes names; with `match_case` none of
    /// another case, though the ZAP ignores it.
    pub fn get_normalized(&self, name: &[u8], match_case: bool) -> Result<Option<Entry>> {
        let _reading = self.0.zap_memo().lock.read();
        zap::lookup_normalized(&self.blocks(), name, match_case)
    }

    /// Adds `name` or replaces its value.
    pub fn put(&self, tx: &Tx<'_>, name: &[u8], value: &Value) -> Result<()> {
        let _changing = self.0.zap_memo().lock.write();
        zap::update(&mut self.changing(tx), name, value)
    }

    /// Adds `name` or replaces its value by one integer.
    pub fn put_u64(&self, tx: &Tx<'_>, name: &[u8], value: u64) -> Result<()> {
        self.put(tx, name, &Value::u64(value))
    }

    /// Adds `name`; `false`, and no change, if it is there already.
    pub fn add_u64(&self, tx: &Tx<'_>, name: &[u8], value: u64) -> Result<bool> {
        let _changing = self.0.zap_memo().lock.write();
        zap::add(&mut self.changing(tx), name, &Value::u64(value))
    }

    /// Removes `name`; `false` if it is not there.
    pub fn remove(&self, tx: &Tx<'_>, name: &[u8]) -> Result<bool> {
        let _changing = self.0.zap_memo().lock.write();
        zap::remove(&mut self.changing(tx), name)
    }

    /// Adds `delta` to the integer of `name` (0 if it is missing); removes it when it becomes 0.
    pub fn increment(&self, tx: &Tx<'_>, name: &[u8], delta: i64) -> Result<()> {
        let _changing = self.0.zap_memo().lock.write();
        zap::increment(&mut self.changing(tx), name, delta)
    }

    /// Adds an integer under its own hexadecimal name.
    pub fn add_int(&self, tx: &Tx<'_>, value: u64) -> Result<()> {
        self.put_u64(tx, format!("{value:x}").as_bytes(), value)
    }

    /// Removes an integer that stands under its own name.
    pub fn remove_int(&self, tx: &Tx<'_>, value: u64) -> Result<bool> {
        self.remove(tx, format!("{value:x}").as_bytes())
    }

    /// All entries, in hash order.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let _reading = self.0.zap_memo().lock.read();
        zap::entries(&self.blocks())
    }

    /// Has the ZAP hold these entries, whose names differ, instead of its own; `false`, and no change, if it
    /// would have to grow for them or is not one that can be made at once.
    pub fn refill(&self, tx: &Tx<'_>, entries: &[(String, u64)]) -> Result<bool> {
        let _changing = self.0.zap_memo().lock.write();
        zap::refill(&mut self.changing(tx), entries)
    }

    /// Calls `each` with all names and their integers, in no order; with `None` where the value is something
    /// else.
    pub fn each_number(&self, each: impl FnMut(&[u8], Option<u64>)) -> Result<()> {
        let _reading = self.0.zap_memo().lock.read();
        zap::each_number(&self.blocks(), each)
    }

    /// At most `max` entries from a place on, and the place after the last of them.
    pub fn list(&self, from: Cursor, max: usize) -> Result<(Vec<Entry>, Cursor)> {
        let _reading = self.0.zap_memo().lock.read();
        zap::list(&self.blocks(), from, max)
    }

    /// Number of entries.
    pub fn count(&self) -> Result<u64> {
        let _reading = self.0.zap_memo().lock.read();
        zap::count(&self.blocks())
    }
}

/// A salt for a new ZAP: odd, and different for different objects.
fn salt_of(object: &Object, tx: &Tx<'_>) -> u64 {
    let mut rng = rt::random::Rng::new(object.number() ^ tx.txg().rotate_left(32));
    rng.next_u64() | 1
}
