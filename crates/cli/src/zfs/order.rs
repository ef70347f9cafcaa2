//! The order in which data sets are listed.
//!
//! By name: a data set, its snapshots by age, its bookmarks by name, then what is below it. Or by
//! properties, where what has no value comes last.

use std::cmp::Ordering;

use verbs::datasets::DatasetReport;
use verbs::props::{Form, Key, Prop, Value};

/// One `-s` or `-S`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The property.
    pub key: Key,
    /// The largest first.
    pub reverse: bool,
}

/// By name.
#[must_use]
pub fn by_name(a: &DatasetReport, b: &DatasetReport) -> Ordering {
    let split = |name: &'static str, of: &DatasetReport| {
        let at = of.name.find(['@', '#']).unwrap_or(of.name.len());
        (of.name.get(..at).unwrap_or(name).to_string(), of.name.get(at..).unwrap_or("").to_string())
    };
    let ((base_a, rest_a), (base_b, rest_b)) = (split("", a), split("", b));
    let rank = |rest: &str| match rest.chars().next() {
        None => 0,
        Some('@') => 1,
        Some(_) => 2,
    };
    let age = |rest: &str, of: &DatasetReport| if rank(rest) == 1 { of.createtxg } else { 0 };
    base_a
        .cmp(&base_b)
        .then(rank(&rest_a).cmp(&rank(&rest_b)))
        .then(age(&rest_a, a).cmp(&age(&rest_b, b)))
        .then(rest_a.cmp(&rest_b))
}

/// By properties, then by name.
#[must_use]
pub fn compare(a: &DatasetReport, b: &DatasetReport, by: &[By]) -> Ordering {
    for By { key, reverse } in by {
        let order = match (sort_value(a, key), sort_value(b, key)) {
            (None, None) => continue,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(a), Some(b)) => a.cmp(&b),
        };
        let order = if *reverse { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    by_name(a, b)
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortValue {
    Number(u64),
    Text(Vec<u8>),
}

fn sort_value(dataset: &DatasetReport, key: &Key) -> Option<SortValue> {
    if *key == Key::Native(Prop::Name) {
        return Some(SortValue::Text(dataset.name.clone().into_bytes()));
    }
    if *key == Key::Native(Prop::Type) {
        return Some(SortValue::Text(dataset.kind.name().into()));
    }
    let (value, _) = dataset.property(key)?;
    Some(match (key, value) {
        (_, Value::Text(text)) => SortValue::Text(text.clone()),
        (Key::Native(prop), Value::Number(number)) => match prop.info().form {
            Form::Words(words) => SortValue::Text(words.word(*number)?.into()),
            _ => SortValue::Number(*number),
        },
        (_, Value::Number(number)) => SortValue::Number(*number),
    })
}

#[cfg(test)]
mod tests {
    use verbs::props::{Kind, Source};

    use super::*;

    fn dataset(name: &str, createtxg: u64, used: Option<u64>) -> DatasetReport {
        let properties = used
            .map(|n| (Key::Native(Prop::Used), Value::Number(n), Source::None))
            .into_iter()
            .collect();
        let kind = Kind::Filesystem;
        DatasetReport { name: name.into(), kind, createtxg, properties, received: Vec::new() }
    }

    #[test]
    fn names_are_in_openzfs_s_order() {
        let names =
            ["tank", "tank@z", "tank@a", "tank/a", "tank/a@s", "tank/a#a", "tank/a#m", "tank/a-b"];
        let mut shuffled: Vec<_> =
            names.iter().enumerate().map(|(i, name)| dataset(name, i as u64, None)).rev().collect();
        // The bookmark that comes first is the younger one.
        shuffled[2].createtxg = 9;
        shuffled.sort_by(by_name);
        assert_eq!(shuffled.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), names);
    }

    #[test]
    fn values_are_in_order_and_what_has_none_is_last() {
        let mut list = [
            dataset("a", 1, Some(5)),
            dataset("b", 1, None),
            dataset("c", 1, Some(7)),
            dataset("d", 1, Some(5)),
        ];
        let mut sorted = |reverse: bool| {
            let by = [By { key: Key::Native(Prop::Used), reverse }];
            list.sort_by(|a, b| compare(a, b, &by));
            list.iter().map(|d| d.name.clone()).collect::<String>()
        };
        assert_eq!(sorted(false), "adcb");
        assert_eq!(sorted(true), "cadb");
    }
}
