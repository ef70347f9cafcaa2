//! Taking typed values out of a list of hostile origin, key by key; what is left is kept. Lists are never copied.

use std::collections::BTreeSet;

use crate::nvlist::{Pair, Value};
use crate::{FormatError, NvList, Result};

/// A list from which known keys are taken.
pub(super) struct Keys<'a> {
    what: &'static str,
    list: Vec<Option<&'a Pair>>,
}

impl<'a> Keys<'a> {
    /// A name that is there twice is refused: it would depend on the reader which one counts.
    pub(super) fn new(what: &'static str, list: &'a NvList) -> Result<Self> {
        let mut names = BTreeSet::new();
        for (index, pair) in list.pairs().iter().enumerate() {
            if !names.insert(&pair.name) {
                let (field, seen, expected) = ("number of a repeated pair", index as u64, "none");
                return Err(FormatError::Field { what, field, seen, expected });
            }
        }
        Ok(Keys { what, list: list.pairs().iter().map(Some).collect() })
    }

    fn take(&mut self, key: &str) -> Option<&'a Value> {
        let named = |p: &Option<&Pair>| p.is_some_and(|p| p.name == key.as_bytes());
        self.list.iter_mut().find(|p| named(p)).and_then(Option::take).map(|p| &p.value)
    }

    fn wrong_type(&self, key: &'static str, value: &Value, expected: &'static str) -> FormatError {
        let seen = value.type_number().into();
        FormatError::Field { what: self.what, field: key, seen, expected }
    }

    fn missing(&self, key: &'static str) -> FormatError {
        FormatError::Missing { what: self.what, field: key }
    }

    /// A word.
    pub(super) fn word(&mut self, key: &'static str) -> Result<Option<u64>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::U64(v)) => Ok(Some(*v)),
            Some(other) => Err(self.wrong_type(key, other, "type 8 (uint64)")),
        }
    }

    /// A word that has to be there.
    pub(super) fn needed_word(&mut self, key: &'static str) -> Result<u64> {
        self.word(key)?.ok_or_else(|| self.missing(key))
    }

    /// A word that says yes if it is there and not 0.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool> {
        Ok(self.word(key)?.is_some_and(|v| v != 0))
    }

    /// A pair without a value that says yes by being there.
    pub(super) fn boolean(&mut self, key: &'static str) -> Result<bool> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Boolean) => Ok(true),
            Some(other) => Err(self.wrong_type(key, other, "type 1 (boolean)")),
        }
    }

    /// A string.
    pub(super) fn string(&mut self, key: &'static str) -> Result<Option<Vec<u8>>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v.clone())),
            Some(other) => Err(self.wrong_type(key, other, "type 9 (string)")),
        }
    }

    /// A string that has to be there.
    pub(super) fn needed_string(&mut self, key: &'static str) -> Result<Vec<u8>> {
        self.string(key)?.ok_or_else(|| self.missing(key))
    }

    /// An array of words; an absent one is empty.
    pub(super) fn words(&mut self, key: &'static str) -> Result<Vec<u64>> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::U64Array(v)) => Ok(v.clone()),
            Some(other) => Err(self.wrong_type(key, other, "type 16 (uint64 array)")),
        }
    }

    /// A list.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Option<&'a NvList>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::List(v)) => Ok(Some(v)),
            Some(other) => Err(self.wrong_type(key, other, "type 19 (nvlist)")),
        }
    }

    /// A list that has to be there.
    pub(super) fn needed_list(&mut self, key: &'static str) -> Result<&'a NvList> {
        self.list(key)?.ok_or_else(|| self.missing(key))
    }

    /// An array of lists; an absent one is empty.
    pub(super) fn lists(&mut self, key: &'static str) -> Result<&'a [NvList]> {
        match self.take(key) {
            None => Ok(&[]),
            Some(Value::ListArray(v)) => Ok(v),
            Some(other) => Err(self.wrong_type(key, other, "type 20 (nvlist array)")),
        }
    }

    /// What was not taken, in order.
    pub(super) fn rest(self) -> Vec<Pair> {
        self.list.into_iter().flatten().cloned().collect()
    }
}

/// A list under construction; absent values and flags that say no are left out.
#[derive(Default)]
pub(super) struct Builder {
    list: NvList,
}

impl Builder {
    pub(super) fn word(&mut self, key: &str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.list.put_u64(key, value);
        }
    }

    /// A word that is left out if it is 0.
    pub(super) fn nonzero(&mut self, key: &str, value: u64) {
        self.word(key, (value != 0).then_some(value));
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.nonzero(key, u64::from(value));
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) {
        if value {
            self.list.put_boolean(key);
        }
    }

    pub(super) fn string(&mut self, key: &str, value: Option<&Vec<u8>>) {
        if let Some(value) = value {
            self.list.put_string(key, value);
        }
    }

    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.list.put(key, value);
    }

    /// The list, with `rest` at its end.
    pub(super) fn finish(mut self, rest: &[Pair]) -> NvList {
        for pair in rest {
            self.list.push(&pair.name, pair.value.clone());
        }
        self.list
    }
}
