//! Showing: from a value as it is on disk to the text in a column.

use super::assign::Value;
use super::dataset::{Form, Prop, Unit};
use super::number::{nice_bytes, nice_count, ratio};

/// How values are shown.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Numbers are written in full (`-p`).
    pub exact: bool,
    /// Writes a time, given in seconds since 1970, for people.
    pub date: &'a dyn Fn(u64) -> String,
}

/// The text of a native property's value; `None` where there is nothing to show (a number that is
/// none of the property's words).
#[must_use]
pub fn show(prop: Prop, value: &Value, style: Style<'_>) -> Option<Vec<u8>> {
    let number = match value {
        Value::Text(text) => return Some(text.clone()),
        Value::Number(number) => *number,
    };
    let unit = match prop.info().form {
        Form::Words(words) => return words.word(number).map(Into::into),
        Form::Text => Unit::Plain,
        Form::Number(unit) => unit,
    };
    Some(show_number(unit, number, style).into_bytes())
}

/// The text of a number.
#[must_use]
pub fn show_number(unit: Unit, number: u64, style: Style<'_>) -> String {
    match unit {
        Unit::Ratio if style.exact => ratio(number).trim_end_matches('x').into(),
        Unit::Ratio => ratio(number),
        _ if style.exact => number.to_string(),
        Unit::Plain => number.to_string(),
        Unit::Date => (style.date)(number),
        Unit::Limit if number == 0 => "none".into(),
        Unit::Tally if number == u64::MAX => "none".into(),
        Unit::Bytes | Unit::Limit => nice_bytes(number),
        Unit::Size | Unit::Tally => nice_count(number),
    }
}
