//! Lists as `zdb -l` and `zdb -C` print them.

use std::fmt;

use super::{Shown, text};
use crate::NvList;
use crate::nvlist::Value;

/// A list, a pair a line, `indent` spaces before each; lists in it four spaces further.
///
/// Types that zdb does not print (times, arrays of booleans, doubles) are printed in its manner.
pub fn list(list: &NvList, indent: usize) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| show(f, list, indent))
}

fn show(f: &mut fmt::Formatter<'_>, list: &NvList, indent: usize) -> fmt::Result {
    for pair in list.pairs() {
        let name = text(&pair.name);
        match &pair.value {
            Value::Boolean => writeln!(f, "{:indent$}{name}", "")?,
            Value::List(inner) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                show(f, inner, indent + 4)?;
            }
            Value::ListArray(lists) => {
                for (i, inner) in lists.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{i}]:", "")?;
                    show(f, inner, indent + 4)?;
                }
            }
            Value::Byte(v) | Value::U8(v) => scalar(f, indent, &name, v)?,
            Value::I8(v) => scalar(f, indent, &name, v)?,
            Value::I16(v) => scalar(f, indent, &name, v)?,
            Value::U16(v) => scalar(f, indent, &name, v)?,
            Value::I32(v) => scalar(f, indent, &name, v)?,
            Value::U32(v) => scalar(f, indent, &name, v)?,
            Value::I64(v) | Value::HrTime(v) => scalar(f, indent, &name, v)?,
            Value::U64(v) => scalar(f, indent, &name, v)?,
            Value::BooleanValue(v) => scalar(f, indent, &name, v)?,
            Value::Double(v) => scalar(f, indent, &name, f64::from_bits(*v))?,
            Value::String(v) => scalar(f, indent, &name, quoted(v))?,
            Value::ByteArray(v) | Value::U8Array(v) => array(f, indent, &name, v)?,
            Value::I8Array(v) => array(f, indent, &name, v)?,
            Value::I16Array(v) => array(f, indent, &name, v)?,
            Value::U16Array(v) => array(f, indent, &name, v)?,
            Value::I32Array(v) => array(f, indent, &name, v)?,
            Value::U32Array(v) => array(f, indent, &name, v)?,
            Value::I64Array(v) => array(f, indent, &name, v)?,
            Value::U64Array(v) => array(f, indent, &name, v)?,
            Value::BooleanArray(v) => array(f, indent, &name, v)?,
            Value::StringArray(v) => array(f, indent, &name, v.iter().map(|s| quoted(s)))?,
        }
    }
    Ok(())
}

fn quoted(string: &[u8]) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| write!(f, "'{}'", text(string)))
}

fn scalar(
    f: &mut fmt::Formatter<'_>,
    indent: usize,
    name: &impl fmt::Display,
    value: impl fmt::Display,
) -> fmt::Result {
    writeln!(f, "{:indent$}{name}: {value}", "")
}

fn array<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    indent: usize,
    name: &impl fmt::Display,
    values: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (i, value) in values.into_iter().enumerate() {
        writeln!(f, "{:indent$}{name}[{i}]: {value}", "")?;
    }
    Ok(())
}
