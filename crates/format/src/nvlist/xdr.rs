//! The XDR encoding of lists: big-endian, every item padded to four bytes.
//!
//! Each pair says how many bytes it takes here and in the kernel's memory; both zero end a list.
//! OpenZFS counts four bytes too many for an empty array of numbers and does not skip by that
//! size, so it is a limit for the pair and not the way to the next one.

use std::cell::Cell;

use super::{
    NvList, Value, WHAT, check_depth, check_no_nul, count_items, kind, pair_memory_size, stored_u32,
};
use crate::reader::Reader;
use crate::{FormatError, Result};

/// Parses the list at the start of `bytes`; also returns how many bytes it took.
pub(super) fn parse(bytes: &[u8]) -> Result<(NvList, usize)> {
    let mut r = Reader::new(WHAT, bytes);
    let list = parse_list(&mut r, &Cell::new(0), 0)?;
    Ok((list, r.at()))
}

fn word(r: &mut Reader<'_>, field: &'static str) -> Result<u32> {
    r.array(field).map(u32::from_be_bytes)
}

fn long(r: &mut Reader<'_>, field: &'static str) -> Result<u64> {
    r.array(field).map(u64::from_be_bytes)
}

/// `len` bytes and the padding after them.
fn padded<'a>(r: &mut Reader<'a>, len: usize, field: &'static str) -> Result<&'a [u8]> {
    let bytes = r.take(len, field)?;
    r.take(len.next_multiple_of(4) - len, field)?;
    Ok(bytes)
}

/// A length and as many bytes, none of them NUL.
fn string<'a>(r: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8]> {
    let len = word(r, field)? as usize;
    if len > r.left() {
        return Err(r.bounds(field));
    }
    let bytes = padded(r, len, field)?;
    if bytes.contains(&0) {
        return Err(r.bounds(field));
    }
    Ok(bytes)
}

fn parse_list(r: &mut Reader<'_>, items: &Cell<usize>, depth: usize) -> Result<NvList> {
    check_depth(depth, r.at())?;
    count_items(items, 1)?;
    let version = word(r, "version")?;
    if version != 0 {
        let seen = version.into();
        return Err(FormatError::Field { what: WHAT, field: "version", seen, expected: "0" });
    }
    let mut list = NvList { flags: word(r, "flags")?, ..NvList::new() };
    loop {
        let size = word(r, "size of a pair")? as usize;
        let memory_size = word(r, "size of a pair")?;
        if size == 0 && memory_size == 0 {
            return Ok(list);
        }
        count_items(items, 1)?;
        let rest = size.checked_sub(8).ok_or_else(|| r.bounds("size of a pair"))?;
        let mut pair = r.clone().part(rest, "pair")?;
        let name = string(&mut pair, "name")?;
        let kind = word(&mut pair, "type")?;
        let count = word(&mut pair, "count")? as usize;
        let value = parse_value(&mut pair, (kind, count), items, depth)?;
        r.take(pair.at() - r.at(), "pair")?;
        list.push(name, value);
    }
}

/// `count` items of four bytes each, preceded by the count again.
fn words<T>(r: &mut Reader<'_>, count: usize, item: impl Fn(u32) -> T) -> Result<Vec<T>> {
    let again = word(r, "count")? as usize;
    if again != count || count > r.left() / 4 {
        return Err(r.bounds("count"));
    }
    (0..count).map(|_| word(r, "element").map(&item)).collect()
}

/// `count` items of eight bytes each, preceded by the count again.
fn longs<T>(r: &mut Reader<'_>, count: usize, item: impl Fn(u64) -> T) -> Result<Vec<T>> {
    let again = word(r, "count")? as usize;
    if again != count || count > r.left() / 8 {
        return Err(r.bounds("count"));
    }
    (0..count).map(|_| long(r, "element").map(&item)).collect()
}

fn parse_value(
    r: &mut Reader<'_>,
    (kind, count): (u32, usize),
    items: &Cell<usize>,
    depth: usize,
) -> Result<Value> {
    if count == 0 {
        return Value::empty(kind).ok_or_else(|| r.bounds("count"));
    }
    // A scalar narrower than a word is the low end of a word.
    let scalar = |r: &mut Reader<'_>| {
        if count == 1 { word(r, "value") } else { Err(r.bounds("count")) }
    };
    let wide = |r: &mut Reader<'_>| {
        if count == 1 { long(r, "value") } else { Err(r.bounds("count")) }
    };
    Ok(match kind {
        kind::BYTE => Value::Byte(scalar(r)? as u8),
        kind::I8 => Value::I8(scalar(r)? as i8),
        kind::U8 => Value::U8(scalar(r)? as u8),
        kind::I16 => Value::I16(scalar(r)? as i16),
        kind::U16 => Value::U16(scalar(r)? as u16),
        kind::I32 => Value::I32(scalar(r)? as i32),
        kind::U32 => Value::U32(scalar(r)?),
        kind::BOOLEAN_VALUE => Value::BooleanValue(scalar(r)? != 0),
        kind::I64 => Value::I64(wide(r)? as i64),
        kind::U64 => Value::U64(wide(r)?),
        kind::HRTIME => Value::HrTime(wide(r)? as i64),
        kind::DOUBLE => Value::Double(wide(r)?),
        kind::STRING if count == 1 => Value::String(string(r, "string")?.to_vec()),
        kind::BYTE_ARRAY => {
            if count > r.left() {
                return Err(r.bounds("count"));
            }
            Value::ByteArray(padded(r, count, "bytes")?.to_vec())
        }
        kind::I8_ARRAY => Value::I8Array(words(r, count, |w| w as i8)?),
        kind::U8_ARRAY => Value::U8Array(words(r, count, |w| w as u8)?),
        kind::I16_ARRAY => Value::I16Array(words(r, count, |w| w as i16)?),
        kind::U16_ARRAY => Value::U16Array(words(r, count, |w| w as u16)?),
        kind::I32_ARRAY => Value::I32Array(words(r, count, |w| w as i32)?),
        kind::U32_ARRAY => Value::U32Array(words(r, count, |w| w)?),
        kind::BOOLEAN_ARRAY => Value::BooleanArray(words(r, count, |w| w != 0)?),
        kind::I64_ARRAY => Value::I64Array(longs(r, count, |w| w as i64)?),
        kind::U64_ARRAY => Value::U64Array(longs(r, count, |w| w)?),
        // Items of variable length: one at a time, so that a false count ends at the last byte.
        kind::STRING_ARRAY => {
            count_items(items, count)?;
            let mut strings = Vec::new();
            for _ in 0..count {
                strings.push(string(r, "string")?.to_vec());
            }
            Value::StringArray(strings)
        }
        kind::LIST if count == 1 => Value::List(parse_list(r, items, depth + 1)?),
        kind::LIST_ARRAY => {
            let mut lists = Vec::new();
            for _ in 0..count {
                lists.push(parse_list(r, items, depth + 1)?);
            }
            Value::ListArray(lists)
        }
        _ => {
            let seen = kind.into();
            return Err(FormatError::Field {
                what: WHAT,
                field: "type",
                seen,
                expected: "1 to 27, with as many elements as it takes",
            });
        }
    })
}

/// Appends the list to `out`, without a head.
pub(super) fn build(list: &NvList, out: &mut Vec<u8>) -> Result<()> {
    build_list(list, out, 0)
}

fn put_word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8], field: &'static str) -> Result<()> {
    check_no_nul(bytes, field)?;
    put_word(out, stored_u32(bytes.len(), field)?);
    put_padded(out, bytes);
    Ok(())
}

fn build_list(list: &NvList, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    check_depth(depth, out.len())?;
    put_word(out, 0);
    put_word(out, list.flags);
    for pair in list.pairs() {
        let start = out.len();
        put_word(out, 0);
        put_word(out, stored_u32(pair_memory_size(&pair.name, &pair.value), "pair")?);
        put_string(out, &pair.name, "name")?;
        put_word(out, pair.value.type_number());
        put_word(out, stored_u32(pair.value.count(), "count")?);
        build_value(&pair.value, out, depth)?;
        let quirk = if is_empty_numbers(&pair.value) { 4 } else { 0 };
        let size = stored_u32(out.len() - start + quirk, "pair")?;
        if let Some(to) = out.get_mut(start..start + 4) {
            to.copy_from_slice(&size.to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 8]);
    Ok(())
}

/// Is this an empty array of what has a count of its own in XDR?
fn is_empty_numbers(value: &Value) -> bool {
    let numbers = matches!(
        value.type_number(),
        kind::I16_ARRAY..=kind::U64_ARRAY | kind::BOOLEAN_ARRAY..=kind::U8_ARRAY
    );
    numbers && value.count() == 0
}

fn put_words<T: Copy>(out: &mut Vec<u8>, items: &[T], item: impl Fn(T) -> u32) {
    put_word(out, items.len() as u32);
    items.iter().for_each(|i| put_word(out, item(*i)));
}

fn put_longs<T: Copy>(out: &mut Vec<u8>, items: &[T], item: impl Fn(T) -> u64) {
    put_word(out, items.len() as u32);
    items.iter().for_each(|i| out.extend_from_slice(&item(*i).to_be_bytes()));
}

fn build_value(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    if value.count() == 0 {
        return Ok(());
    }
    match value {
        Value::Boolean => {}
        // A byte is widened with its sign, as the kernel's `char` is.
        Value::Byte(v) | Value::U8(v) => put_word(out, *v as i8 as u32),
        Value::I8(v) => put_word(out, *v as u32),
        Value::I16(v) => put_word(out, *v as u32),
        Value::U16(v) => put_word(out, u32::from(*v)),
        Value::I32(v) => put_word(out, *v as u32),
        Value::U32(v) => put_word(out, *v),
        Value::BooleanValue(v) => put_word(out, u32::from(*v)),
        Value::I64(v) | Value::HrTime(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::U64(v) | Value::Double(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::String(v) => put_string(out, v, "string")?,
        Value::ByteArray(v) => put_padded(out, v),
        Value::I8Array(v) => put_words(out, v, |i| i as u32),
        Value::U8Array(v) => put_words(out, v, |i| i as i8 as u32),
        Value::I16Array(v) => put_words(out, v, |i| i as u32),
        Value::U16Array(v) => put_words(out, v, u32::from),
        Value::I32Array(v) => put_words(out, v, |i| i as u32),
        Value::U32Array(v) => put_words(out, v, |i| i),
        Value::BooleanArray(v) => put_words(out, v, u32::from),
        Value::I64Array(v) => put_longs(out, v, |i| i as u64),
        Value::U64Array(v) => put_longs(out, v, |i| i),
        Value::StringArray(v) => v.iter().try_for_each(|s| put_string(out, s, "string"))?,
        Value::List(v) => build_list(v, out, depth + 1)?,
        Value::ListArray(v) => v.iter().try_for_each(|l| build_list(l, out, depth + 1))?,
    }
    Ok(())
}
