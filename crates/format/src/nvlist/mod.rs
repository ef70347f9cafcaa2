//! Name-value lists (`nvlist_t`): the tree of typed values in labels, configs and the history.
//!
//! The one idea: one tree in memory, which keeps the order of its pairs, and two encodings of it:
//! XDR (labels, MOS objects) and native (history). What was parsed encodes to the same bytes.
//! FORMAT: section 1.3.
//!
//! Names and strings are bytes: nothing on disk promises UTF-8.

mod native;
mod xdr;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::Cell;

use crate::{FormatError, Result};

/// How deep lists may nest. A vdev tree needs 6; the kernel itself gives up at 20.
pub const DEPTH_MAX: usize = 32;
/// Lists, pairs and strings of arrays that one encoded list may hold in all, itself included. Each takes up to some
/// hundred bytes of memory, however few it has on disk. The config of a pool has some dozen for each disk.
pub const ITEMS_MAX: usize = 1 << 17;
/// Largest list that is read from an object of its own, in bytes.
pub const PACKED_MAX: u64 = 8 << 20;
/// [`NvList::flags`] of a list whose names are unique, which all on disk are.
pub const UNIQUE_NAME: u32 = 1;
/// Bytes before an encoded list: encoding, byte order, two zeros.
pub const HEAD_SIZE: usize = 4;

const WHAT: &str = "nvlist";
/// Bytes for which there is room from the beginning: those of a file's extended attributes, as a rule.
const XDR_ROOM: usize = 512;
const ENCODING_NATIVE: u8 = 0;
const ENCODING_XDR: u8 = 1;
const ORDER_BIG: u8 = 0;
const ORDER_LITTLE: u8 = 1;

/// A list of named values, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvList {
    /// [`UNIQUE_NAME`], or 0.
    pub flags: u32,
    pairs: Vec<Pair>,
}

/// One named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Name, without the final NUL.
    pub name: Vec<u8>,
    /// Value.
    pub value: Value,
}

/// A value with its type. Strings are without the final NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    /// Says something by being there.
    Boolean,
    Byte(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    String(Vec<u8>),
    ByteArray(Vec<u8>),
    I16Array(Vec<i16>),
    U16Array(Vec<u16>),
    I32Array(Vec<i32>),
    U32Array(Vec<u32>),
    I64Array(Vec<i64>),
    U64Array(Vec<u64>),
    StringArray(Vec<Vec<u8>>),
    /// Nanoseconds.
    HrTime(i64),
    List(NvList),
    ListArray(Vec<NvList>),
    BooleanValue(bool),
    I8(i8),
    U8(u8),
    BooleanArray(Vec<bool>),
    I8Array(Vec<i8>),
    U8Array(Vec<u8>),
    /// The bits of an IEEE double.
    Double(u64),
}

/// Numbers of the types on disk (`data_type_t`).
mod kind {
    pub(super) const BOOLEAN: u32 = 1;
    pub(super) const BYTE: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U16: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const U32: u32 = 6;
    pub(super) const I64: u32 = 7;
    pub(super) const U64: u32 = 8;
    pub(super) const STRING: u32 = 9;
    pub(super) const BYTE_ARRAY: u32 = 10;
    pub(super) const I16_ARRAY: u32 = 11;
    pub(super) const U16_ARRAY: u32 = 12;
    pub(super) const I32_ARRAY: u32 = 13;
    pub(super) const U32_ARRAY: u32 = 14;
    pub(super) const I64_ARRAY: u32 = 15;
    pub(super) const U64_ARRAY: u32 = 16;
    pub(super) const STRING_ARRAY: u32 = 17;
    pub(super) const HRTIME: u32 = 18;
    pub(super) const LIST: u32 = 19;
    pub(super) const LIST_ARRAY: u32 = 20;
    pub(super) const BOOLEAN_VALUE: u32 = 21;
    pub(super) const I8: u32 = 22;
    pub(super) const U8: u32 = 23;
    pub(super) const BOOLEAN_ARRAY: u32 = 24;
    pub(super) const I8_ARRAY: u32 = 25;
    pub(super) const U8_ARRAY: u32 = 26;
    pub(super) const DOUBLE: u32 = 27;
}

impl Value {
    /// Number of the type on disk (`data_type_t`).
    pub fn type_number(&self) -> u32 {
        match self {
            Value::Boolean => kind::BOOLEAN,
            Value::Byte(_) => kind::BYTE,
            Value::I16(_) => kind::I16,
            Value::U16(_) => kind::U16,
            Value::I32(_) => kind::I32,
            Value::U32(_) => kind::U32,
            Value::I64(_) => kind::I64,
            Value::U64(_) => kind::U64,
            Value::String(_) => kind::STRING,
            Value::ByteArray(_) => kind::BYTE_ARRAY,
            Value::I16Array(_) => kind::I16_ARRAY,
            Value::U16Array(_) => kind::U16_ARRAY,
            Value::I32Array(_) => kind::I32_ARRAY,
            Value::U32Array(_) => kind::U32_ARRAY,
            Value::I64Array(_) => kind::I64_ARRAY,
            Value::U64Array(_) => kind::U64_ARRAY,
            Value::StringArray(_) => kind::STRING_ARRAY,
            Value::HrTime(_) => kind::HRTIME,
            Value::List(_) => kind::LIST,
            Value::ListArray(_) => kind::LIST_ARRAY,
            Value::BooleanValue(_) => kind::BOOLEAN_VALUE,
            Value::I8(_) => kind::I8,
            Value::U8(_) => kind::U8,
            Value::BooleanArray(_) => kind::BOOLEAN_ARRAY,
            Value::I8Array(_) => kind::I8_ARRAY,
            Value::U8Array(_) => kind::U8_ARRAY,
            Value::Double(_) => kind::DOUBLE,
        }
    }

    /// Number of elements as stored: 0 of a boolean, 1 of every other single value.
    fn count(&self) -> usize {
        match self {
            Value::Boolean => 0,
            Value::ByteArray(v) | Value::U8Array(v) => v.len(),
            Value::I8Array(v) => v.len(),
            Value::BooleanArray(v) => v.len(),
            Value::I16Array(v) => v.len(),
            Value::U16Array(v) => v.len(),
            Value::I32Array(v) => v.len(),
            Value::U32Array(v) => v.len(),
            Value::I64Array(v) => v.len(),
            Value::U64Array(v) => v.len(),
            Value::StringArray(v) => v.len(),
            Value::ListArray(v) => v.len(),
            _ => 1,
        }
    }

    /// The value of a type that is stored with no elements: a boolean or an empty array.
    fn empty(kind: u32) -> Option<Value> {
        Some(match kind {
            kind::BOOLEAN => Value::Boolean,
            kind::BYTE_ARRAY => Value::ByteArray(Vec::new()),
            kind::I16_ARRAY => Value::I16Array(Vec::new()),
            kind::U16_ARRAY => Value::U16Array(Vec::new()),
            kind::I32_ARRAY => Value::I32Array(Vec::new()),
            kind::U32_ARRAY => Value::U32Array(Vec::new()),
            kind::I64_ARRAY => Value::I64Array(Vec::new()),
            kind::U64_ARRAY => Value::U64Array(Vec::new()),
            kind::STRING_ARRAY => Value::StringArray(Vec::new()),
            kind::LIST_ARRAY => Value::ListArray(Vec::new()),
            kind::BOOLEAN_ARRAY => Value::BooleanArray(Vec::new()),
            kind::I8_ARRAY => Value::I8Array(Vec::new()),
            kind::U8_ARRAY => Value::U8Array(Vec::new()),
            _ => return None,
        })
    }

    /// Bytes of the value in the kernel's memory, which both encodings record.
    fn memory_size(&self) -> usize {
        let strings = |v: &[Vec<u8>]| v.iter().map(|s| 8 + s.len() + 1).sum();
        match self {
            Value::Boolean => 0,
            Value::Byte(_) | Value::I8(_) | Value::U8(_) => 1,
            Value::I16(_) | Value::U16(_) => 2,
            Value::I32(_) | Value::U32(_) | Value::BooleanValue(_) => 4,
            Value::I64(_) | Value::U64(_) | Value::HrTime(_) | Value::Double(_) => 8,
            Value::String(s) => s.len() + 1,
            Value::ByteArray(_) | Value::I8Array(_) | Value::U8Array(_) => self.count(),
            Value::I16Array(_) | Value::U16Array(_) => self.count() * 2,
            Value::I32Array(_) | Value::U32Array(_) | Value::BooleanArray(_) => self.count() * 4,
            Value::I64Array(_) | Value::U64Array(_) => self.count() * 8,
            Value::StringArray(v) => strings(v),
            Value::List(_) => LIST_SIZE,
            Value::ListArray(v) => v.len() * (8 + LIST_SIZE),
        }
    }
}

/// Bytes of a list's header in the kernel's memory.
const LIST_SIZE: usize = 24;

/// Bytes of a pair in the kernel's memory, which both encodings record.
fn pair_memory_size(name: &[u8], value: &Value) -> usize {
    let head = (16 + name.len() + 1).next_multiple_of(8);
    head + value.memory_size().next_multiple_of(8)
}

impl Default for NvList {
    fn default() -> Self {
        NvList { flags: UNIQUE_NAME, pairs: Vec::new() }
    }
}

impl NvList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses an encoded list with its 4-byte head; bytes after its end are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<NvList> {
        Self::parse_prefix(bytes).map(|(list, _)| list)
    }

    /// As [`NvList::parse`], and says how many bytes the list took.
    pub fn parse_prefix(bytes: &[u8]) -> Result<(NvList, usize)> {
        let short =
            FormatError::Short { what: WHAT, needed: HEAD_SIZE as u64, have: bytes.len() as u64 };
        let (head, body) = bytes.split_first_chunk::<HEAD_SIZE>().ok_or(short)?;
        let [encoding, order, _, _] = *head;
        if order > ORDER_LITTLE {
            let seen = order.into();
            let expected = "0 (big) or 1 (little)";
            return Err(FormatError::Field { what: WHAT, field: "byte order", seen, expected });
        }
        let (list, size) = match encoding {
            // The head names the writer's order, but XDR is always big-endian.
            ENCODING_XDR => xdr::parse(body)?,
            ENCODING_NATIVE => native::parse(body, order == ORDER_BIG)?,
            _ => {
                let seen = encoding.into();
                let expected = "0 (native) or 1 (XDR)";
                return Err(FormatError::Field { what: WHAT, field: "encoding", seen, expected });
            }
        };
        Ok((list, HEAD_SIZE + size))
    }

    /// The list in XDR with its head, as in labels and MOS objects.
    ///
    /// Fails if a name or string has a NUL inside, or if lists nest too deep.
    pub fn to_xdr(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(XDR_ROOM);
        out.extend_from_slice(&[ENCODING_XDR, ORDER_LITTLE, 0, 0]);
        xdr::build(self, &mut out)?;
        Ok(out)
    }

    /// The list in the little-endian native encoding with its head, as in the history.
    ///
    /// Fails as [`NvList::to_xdr`] does, and on names of 32 KiB.
    pub fn to_native(&self) -> Result<Vec<u8>> {
        let mut out = vec![ENCODING_NATIVE, ORDER_LITTLE, 0, 0];
        native::build(self, &mut out)?;
        Ok(out)
    }

    /// The pairs, in order.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Are there no pairs?
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The first value of this name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Value> {
        let name = name.as_ref();
        self.pairs.iter().find(|p| p.name == name).map(|p| &p.value)
    }

    /// The first value of this name, to change.
    pub fn get_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut Value> {
        let name = name.as_ref();
        self.pairs.iter_mut().find(|p| p.name == name).map(|p| &mut p.value)
    }

    /// Is there a value of this name, of whatever type?
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// A 64-bit word; `None` if it is not there or of another type (as all lookups by type).
    pub fn u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        match self.get(name)? {
            Value::U64(v) => Some(*v),
            _ => None,
        }
    }

    /// A string.
    pub fn string(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// A string for people: what is not UTF-8 in it is replaced.
    pub fn text(&self, name: impl AsRef<[u8]>) -> Option<Cow<'_, str>> {
        self.string(name).map(String::from_utf8_lossy)
    }

    /// A list.
    pub fn list(&self, name: impl AsRef<[u8]>) -> Option<&NvList> {
        match self.get(name)? {
            Value::List(v) => Some(v),
            _ => None,
        }
    }

    /// An array of lists.
    pub fn list_array(&self, name: impl AsRef<[u8]>) -> Option<&[NvList]> {
        match self.get(name)? {
            Value::ListArray(v) => Some(v),
            _ => None,
        }
    }

    /// An array of 64-bit words.
    pub fn u64_array(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        match self.get(name)? {
            Value::U64Array(v) => Some(v),
            _ => None,
        }
    }

    /// Sets a value: in place if the name is there, else at the end.
    pub fn put(&mut self, name: impl AsRef<[u8]>, value: Value) {
        let name = name.as_ref();
        match self.get_mut(name) {
            Some(old) => *old = value,
            None => self.pairs.push(Pair { name: name.to_vec(), value }),
        }
    }

    /// Adds a value at the end, even if the name is there: for parsers, whose input decides.
    pub(crate) fn push(&mut self, name: &[u8], value: Value) {
        self.pairs.push(Pair { name: name.to_vec(), value });
    }

    /// Removes the first value of this name.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> Option<Value> {
        let name = name.as_ref();
        let index = self.pairs.iter().position(|p| p.name == name)?;
        Some(self.pairs.remove(index).value)
    }

    /// Sets a word.
    pub fn put_u64(&mut self, name: impl AsRef<[u8]>, value: u64) {
        self.put(name, Value::U64(value));
    }

    /// Sets a string.
    pub fn put_string(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put(name, Value::String(value.as_ref().to_vec()));
    }

    /// Sets a pair without a value.
    pub fn put_boolean(&mut self, name: impl AsRef<[u8]>) {
        self.put(name, Value::Boolean);
    }

    /// Sets a list.
    pub fn put_list(&mut self, name: impl AsRef<[u8]>, value: NvList) {
        self.put(name, Value::List(value));
    }

    /// Sets an array of lists.
    pub fn put_list_array(&mut self, name: impl AsRef<[u8]>, value: Vec<NvList>) {
        self.put(name, Value::ListArray(value));
    }

    /// Sets an array of words.
    pub fn put_u64_array(&mut self, name: impl AsRef<[u8]>, value: Vec<u64>) {
        self.put(name, Value::U64Array(value));
    }
}

/// Refuses names and strings that a C reader would cut.
fn check_no_nul(bytes: &[u8], field: &'static str) -> Result<()> {
    match bytes.iter().position(|b| *b == 0) {
        None => Ok(()),
        Some(at) => Err(FormatError::Bounds { what: WHAT, field, at: at as u64 }),
    }
}

/// Refuses lists that nest too deep; `depth` counts from 0.
fn check_depth(depth: usize, at: usize) -> Result<()> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    Err(FormatError::Bounds { what: WHAT, field: "nesting", at: at as u64 })
}

/// Counts lists, pairs or strings that a parser comes to, before it takes memory for them.
fn count_items(items: &Cell<usize>, more: usize) -> Result<()> {
    let seen = items.get().saturating_add(more);
    items.set(seen);
    if seen <= ITEMS_MAX {
        return Ok(());
    }
    let (field, seen, expected) = ("number of items", seen as u64, "at most 131072");
    Err(FormatError::Field { what: WHAT, field, seen, expected })
}

/// A size or count as the 32-bit number that is stored.
fn stored_u32(size: usize, field: &'static str) -> Result<u32> {
    let max = i32::MAX as u64;
    match u32::try_from(size) {
        Ok(v) if u64::from(v) <= max => Ok(v),
        _ => Err(FormatError::TooLarge { what: WHAT, field, size: size as u64, max }),
    }
}
