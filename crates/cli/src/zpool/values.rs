//! Pool properties as text: value and source of each.

use verbs::pools::PoolReport;
use verbs::props::pool::PoolForm;
use verbs::props::{PoolKey, PoolProp, Source, Value, nice_count};

/// The version of pools that have features.
const FEATURES_VERSION: u64 = 5000;

/// Value and source of a property, as `zpool get` and `zpool list` print them; `None` if the pool
/// has no such property.
#[must_use]
pub fn text(pool: &PoolReport, key: &PoolKey, exact: bool) -> Option<(String, String)> {
    match key {
        PoolKey::Native(PoolProp::Name) => Some((pool.name.clone(), "-".into())),
        PoolKey::Native(prop) => Some(native(pool, *prop, exact)),
        PoolKey::Feature(_) | PoolKey::Unsupported(_) => {
            let (value, source) = pool.property(key)?;
            let value = match value {
                Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Value::Number(number) => number.to_string(),
            };
            Some((value, source_text(source)))
        }
    }
}

fn native(pool: &PoolReport, prop: PoolProp, exact: bool) -> (String, String) {
    let Some((value, source)) = pool.property(&PoolKey::Native(prop)) else {
        // What nobody set and has no default: a dash, by default.
        let computed = prop.info().access == verbs::props::pool::PoolAccess::Computed;
        return ("-".into(), if computed { "-".into() } else { "default".into() });
    };
    let source = source_text(source);
    let number = match value {
        Value::Text(text) if text.is_empty() && prop != PoolProp::Comment => {
            return ("-".into(), source);
        }
        Value::Text(text) => return (String::from_utf8_lossy(text).into_owned(), source),
        Value::Number(number) => *number,
    };
    let size = || if exact { number.to_string() } else { nice_count(number) };
    let text = match prop.info().form {
        PoolForm::Size => size(),
        PoolForm::SizeIfAny if number == 0 => "-".into(),
        PoolForm::SizeIfAny => size(),
        PoolForm::Percent if number == u64::MAX => "-".into(),
        PoolForm::Percent if exact => number.to_string(),
        PoolForm::Percent => format!("{number}%"),
        PoolForm::Ratio => {
            let ratio = format!("{}.{:02}", number / 100, number % 100);
            if exact { ratio } else { ratio + "x" }
        }
        PoolForm::Plain if prop == PoolProp::Version && number == FEATURES_VERSION => "-".into(),
        PoolForm::Plain | PoolForm::Text => number.to_string(),
        PoolForm::Words(words) => words.word(number).map_or_else(|| "-".into(), Into::into),
    };
    (text, source)
}

/// A source as it is printed.
#[must_use]
pub fn source_text(source: &Source) -> String {
    match source {
        Source::None => "-".into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Received => "received".into(),
        Source::Temporary => "temporary".into(),
    }
}

/// What `all` asks of a pool: native properties, then its features.
#[must_use]
pub fn all(pool: &PoolReport) -> Vec<PoolKey> {
    let native = PoolProp::all().filter(|p| p.is_visible()).map(PoolKey::Native);
    let others = pool.properties.iter().map(|(key, _, _)| key);
    native.chain(others.filter(|key| !matches!(key, PoolKey::Native(_))).cloned()).collect()
}
