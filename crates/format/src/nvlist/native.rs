//! The native encoding of lists: the kernel's structures in the writer's byte order.
//!
//! Pairs are padded to eight bytes. A list inside a pair is there as its header only; its pairs
//! follow after the pair that names it. Four zero bytes end a list.

use std::cell::Cell;

use super::{
    LIST_SIZE, NvList, Value, WHAT, check_depth, check_no_nul, count_items, kind, pair_memory_size,
    stored_u32,
};
use crate::reader::Reader;
use crate::{FormatError, Result};

/// Bytes of a pair before its name: size, name size, reserved, count, type.
const PAIR_HEAD: usize = 16;

/// Parses the list at the start of `bytes`; also returns how many bytes it took.
pub(super) fn parse(bytes: &[u8], big_endian: bool) -> Result<(NvList, usize)> {
    let items = Cell::new(0);
    let mut p = Parser { r: Reader::new(WHAT, bytes), big_endian, items: &items };
    let (version, flags) = (p.word("version")?, p.word("flags")?);
    let list = p.pairs(version, flags, 0)?;
    Ok((list, p.r.at()))
}

struct Parser<'a> {
    r: Reader<'a>,
    big_endian: bool,
    items: &'a Cell<usize>,
}

impl<'a> Parser<'a> {
    fn half(&mut self, field: &'static str) -> Result<u16> {
        let big = self.big_endian;
        let bytes = self.r.array(field)?;
        Ok(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn word(&mut self, field: &'static str) -> Result<u32> {
        let big = self.big_endian;
        let bytes = self.r.array(field)?;
        Ok(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn long(&mut self, field: &'static str) -> Result<u64> {
        let big = self.big_endian;
        let bytes = self.r.array(field)?;
        Ok(if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn pairs(&mut self, version: u32, flags: u32, depth: usize) -> Result<NvList> {
        check_depth(depth, self.r.at())?;
        count_items(self.items, 1)?;
        if version != 0 {
            let seen = version.into();
            return Err(FormatError::Field { what: WHAT, field: "version", seen, expected: "0" });
        }
        let mut list = NvList { flags, ..NvList::new() };
        loop {
            let size = self.word("size of a pair")? as usize;
            if size == 0 {
                return Ok(list);
            }
            count_items(self.items, 1)?;
            if size < PAIR_HEAD || !size.is_multiple_of(8) {
                return Err(self.r.bounds("size of a pair"));
            }
            let r = self.r.part(size - 4, "pair")?;
            let mut pair = Parser { r, ..*self };
            let name_size = usize::from(pair.half("name size")?);
            pair.half("reserved")?;
            let count = pair.word("count")? as usize;
            let kind = pair.word("type")?;
            let name = pair.name(name_size)?;
            let value = self.value(pair, kind, count, depth)?;
            list.push(name, value);
        }
    }

    /// A name with its NUL and the padding that brings the value to a multiple of eight.
    fn name(&mut self, size: usize) -> Result<&'a [u8]> {
        let bytes = self.r.take(size, "name")?;
        let pad = (PAIR_HEAD + size).next_multiple_of(8) - (PAIR_HEAD + size);
        self.r.take(pad, "name")?;
        match bytes.split_last() {
            Some((0, name)) if !name.contains(&0) => Ok(name),
            _ => Err(self.r.bounds("name")),
        }
    }

    /// The bytes up to the next NUL.
    fn string(&mut self) -> Result<Vec<u8>> {
        let mut rest = self.r.clone();
        let bytes = rest.take(rest.left(), "string")?;
        let len = bytes.iter().position(|b| *b == 0).ok_or_else(|| self.r.bounds("string"))?;
        let string = self.r.take(len, "string")?.to_vec();
        self.r.take(1, "string")?;
        Ok(string)
    }

    fn array<T>(
        &mut self,
        count: usize,
        size: usize,
        item: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if count > self.r.left() / size {
            return Err(self.r.bounds("count"));
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// The header of a list: version and flags.
    fn list_head(&mut self) -> Result<(u32, u32)> {
        let mut head = Parser { r: self.r.part(LIST_SIZE, "list")?, ..*self };
        Ok((head.word("version")?, head.word("flags")?))
    }

    /// The value in `pair`; lists go on in `self`, after the pair.
    fn value(
        &mut self,
        mut pair: Parser<'a>,
        kind: u32,
        count: usize,
        depth: usize,
    ) -> Result<Value> {
        if count == 0 {
            return Value::empty(kind).ok_or_else(|| pair.r.bounds("count"));
        }
        let p = &mut pair;
        let is_array = matches!(kind, 10..=17 | kind::LIST_ARRAY | 24..=26);
        if count != 1 && !is_array {
            return Err(p.r.bounds("count"));
        }
        let byte = |p: &mut Self| p.r.array("element").map(|[b]: [u8; 1]| b);
        let half = |p: &mut Self| p.half("element");
        let word = |p: &mut Self| p.word("element");
        let long = |p: &mut Self| p.long("element");
        Ok(match kind {
            kind::BYTE => Value::Byte(byte(p)?),
            kind::I8 => Value::I8(byte(p)? as i8),
            kind::U8 => Value::U8(byte(p)?),
            kind::I16 => Value::I16(half(p)? as i16),
            kind::U16 => Value::U16(half(p)?),
            kind::I32 => Value::I32(word(p)? as i32),
            kind::U32 => Value::U32(word(p)?),
            kind::BOOLEAN_VALUE => Value::BooleanValue(word(p)? != 0),
            kind::I64 => Value::I64(long(p)? as i64),
            kind::U64 => Value::U64(long(p)?),
            kind::HRTIME => Value::HrTime(long(p)? as i64),
            kind::DOUBLE => Value::Double(long(p)?),
            kind::STRING => Value::String(p.string()?),
            kind::BYTE_ARRAY => Value::ByteArray(p.array(count, 1, byte)?),
            kind::U8_ARRAY => Value::U8Array(p.array(count, 1, byte)?),
            kind::I8_ARRAY => Value::I8Array(p.array(count, 1, |p| byte(p).map(|b| b as i8))?),
            kind::I16_ARRAY => Value::I16Array(p.array(count, 2, |p| half(p).map(|v| v as i16))?),
            kind::U16_ARRAY => Value::U16Array(p.array(count, 2, half)?),
            kind::I32_ARRAY => Value::I32Array(p.array(count, 4, |p| word(p).map(|v| v as i32))?),
            kind::U32_ARRAY => Value::U32Array(p.array(count, 4, word)?),
            kind::BOOLEAN_ARRAY => {
                Value::BooleanArray(p.array(count, 4, |p| word(p).map(|v| v != 0))?)
            }
            kind::I64_ARRAY => Value::I64Array(p.array(count, 8, |p| long(p).map(|v| v as i64))?),
            kind::U64_ARRAY => Value::U64Array(p.array(count, 8, long)?),
            kind::STRING_ARRAY => {
                count_items(p.items, count)?;
                p.array(count, 8, long)?; // room for pointers
                Value::StringArray(p.array(count, 1, Self::string)?)
            }
            kind::LIST => {
                let (version, flags) = p.list_head()?;
                Value::List(self.pairs(version, flags, depth + 1)?)
            }
            kind::LIST_ARRAY => {
                p.array(count, 8, long)?; // room for pointers
                let heads = p.array(count, LIST_SIZE, Self::list_head)?;
                let lists = heads.into_iter();
                Value::ListArray(
                    lists.map(|(v, f)| self.pairs(v, f, depth + 1)).collect::<Result<_>>()?,
                )
            }
            _ => {
                let seen = kind.into();
                let expected = "1 to 27";
                return Err(FormatError::Field { what: WHAT, field: "type", seen, expected });
            }
        })
    }
}

/// Appends the list to `out`, without a head.
pub(super) fn build(list: &NvList, out: &mut Vec<u8>) -> Result<()> {
    put_word(out, 0);
    put_word(out, list.flags);
    build_pairs(list, out, 0)
}

fn put_word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8], field: &'static str) -> Result<()> {
    check_no_nul(bytes, field)?;
    out.extend_from_slice(bytes);
    out.push(0);
    Ok(())
}

/// Pads with zeros so that the bytes since `start` are a multiple of eight.
fn pad(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    out.resize(start + len.next_multiple_of(8), 0);
}

fn put_list_head(out: &mut Vec<u8>, list: &NvList) {
    put_word(out, 0);
    put_word(out, list.flags);
    out.resize(out.len() + LIST_SIZE - 8, 0);
}

fn build_pairs(list: &NvList, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    check_depth(depth, out.len())?;
    for pair in list.pairs() {
        let start = out.len();
        let name_size = pair.name.len() + 1;
        let name_size = i16::try_from(name_size).map_err(|_| FormatError::TooLarge {
            what: WHAT,
            field: "name",
            size: name_size as u64,
            max: i16::MAX as u64,
        })?;
        put_word(out, stored_u32(pair_memory_size(&pair.name, &pair.value), "pair")?);
        out.extend_from_slice(&name_size.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        put_word(out, stored_u32(pair.value.count(), "count")?);
        put_word(out, pair.value.type_number());
        put_string(out, &pair.name, "name")?;
        pad(out, start);
        build_value(&pair.value, out)?;
        pad(out, start);
        match &pair.value {
            Value::List(v) => build_pairs(v, out, depth + 1)?,
            Value::ListArray(v) => v.iter().try_for_each(|l| build_pairs(l, out, depth + 1))?,
            _ => {}
        }
    }
    put_word(out, 0);
    Ok(())
}

fn build_value(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::Boolean => {}
        Value::Byte(v) | Value::U8(v) => out.push(*v),
        Value::I8(v) => out.push(*v as u8),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => put_word(out, *v as u32),
        Value::U32(v) => put_word(out, *v),
        Value::BooleanValue(v) => put_word(out, u32::from(*v)),
        Value::I64(v) | Value::HrTime(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U64(v) | Value::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::String(v) => put_string(out, v, "string")?,
        Value::ByteArray(v) | Value::U8Array(v) => out.extend_from_slice(v),
        Value::I8Array(v) => out.extend(v.iter().map(|i| *i as u8)),
        Value::I16Array(v) => v.iter().for_each(|i| out.extend_from_slice(&i.to_le_bytes())),
        Value::U16Array(v) => v.iter().for_each(|i| out.extend_from_slice(&i.to_le_bytes())),
        Value::I32Array(v) => v.iter().for_each(|i| put_word(out, *i as u32)),
        Value::U32Array(v) => v.iter().for_each(|i| put_word(out, *i)),
        Value::BooleanArray(v) => v.iter().for_each(|i| put_word(out, u32::from(*i))),
        Value::I64Array(v) => v.iter().for_each(|i| out.extend_from_slice(&i.to_le_bytes())),
        Value::U64Array(v) => v.iter().for_each(|i| out.extend_from_slice(&i.to_le_bytes())),
        Value::StringArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            v.iter().try_for_each(|s| put_string(out, s, "string"))?;
        }
        Value::List(v) => put_list_head(out, v),
        Value::ListArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            v.iter().for_each(|l| put_list_head(out, l));
        }
    }
    Ok(())
}
