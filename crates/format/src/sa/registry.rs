//! The registry: which number, length and byte order each attribute has in one file system.

use super::attr::{Attr, AttrSwap};
use crate::blkptr::{bits, with_bits};
use crate::{FormatError, Result};

/// What the registry says of one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrDef {
    /// Number in layouts.
    pub number: u16,
    /// Length in bytes, 0 if it varies.
    pub length: u16,
    /// How its bytes are swapped.
    pub swap: AttrSwap,
}

impl AttrDef {
    /// From the value in the registry ZAP.
    pub fn decode(value: u64) -> Result<Self> {
        let swap = bits(value, 16, 8);
        Ok(AttrDef {
            number: bits(value, 0, 16) as u16,
            length: bits(value, 24, 16) as u16,
            swap: AttrSwap::from_id(swap).ok_or(FormatError::Field {
                what: "SA registry",
                field: "byte swap",
                seen: swap,
                expected: "at most 4",
            })?,
        })
    }

    /// The value in the registry ZAP.
    pub fn encode(&self) -> u64 {
        let value = with_bits(0, 0, 16, self.number.into());
        let value = with_bits(value, 16, 8, self.swap as u64);
        with_bits(value, 24, 16, self.length.into())
    }
}

/// The attributes of one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// By number; at most 65,536.
    defs: Vec<Option<AttrDef>>,
    /// Numbers of the standard attributes, by their standard number.
    standard: [Option<u16>; Attr::ALL.len()],
    /// The reverse: the standard attribute of each number.
    names: Vec<Option<Attr>>,
}

impl Default for Registry {
    /// The registry of a file system that has not written one: the attributes of old znodes.
    fn default() -> Self {
        Self::with(&Attr::ALL[..16])
    }
}

impl Registry {
    /// The registry of a new file system: all standard attributes.
    pub fn standard() -> Self {
        Self::with(&Attr::ALL)
    }

    fn with(attrs: &[Attr]) -> Self {
        let standard = [None; Attr::ALL.len()];
        let mut registry = Registry { defs: Vec::new(), standard, names: Vec::new() };
        for attr in attrs {
            let (number, length, swap) = (attr.number(), attr.length(), attr.swap());
            registry.insert(AttrDef { number, length, swap });
            registry.name_standard(*attr, number);
        }
        registry
    }

    /// From the entries of the registry ZAP: name and value.
    ///
    /// The attributes of old znodes have fixed numbers and are always known. Two names for one
    /// number are refused, and a standard attribute of another length than the standard's.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = (&'a [u8], u64)>) -> Result<Self> {
        let mut registry = Self::default();
        let mut seen = Vec::new();
        for (name, value) in entries {
            let def = AttrDef::decode(value)?;
            let field = |field, seen: u16, expected| FormatError::Field {
                what: "SA registry",
                field,
                seen: seen.into(),
                expected,
            };
            let index = usize::from(def.number);
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            match seen.get_mut(index) {
                Some(taken) if !*taken => *taken = true,
                _ => return Err(field("number", def.number, "the number of one attribute")),
            }
            registry.insert(def);
            let standard = Attr::ALL.into_iter().find(|a| a.name().as_bytes() == name);
            if let Some(attr) = standard {
                if attr.length() != def.length {
                    return Err(field("length", def.length, "the standard length"));
                }
                if attr.number() < 16 && attr.number() != def.number {
                    return Err(field("number", def.number, "the fixed number"));
                }
                registry.name_standard(attr, def.number);
            } else if def.number < 16 {
                return Err(field("number", def.number, "16 or more for other attributes"));
            }
        }
        Ok(registry)
    }

    fn insert(&mut self, def: AttrDef) {
        let index = usize::from(def.number);
        if self.defs.len() <= index {
            self.defs.resize(index + 1, None);
            self.names.resize(index + 1, None);
        }
        if let Some(slot) = self.defs.get_mut(index) {
            *slot = Some(def);
        }
    }

    fn name_standard(&mut self, attr: Attr, number: u16) {
        if let Some(slot) = self.standard.get_mut(usize::from(attr.number())) {
            *slot = Some(number);
        }
        if let Some(slot) = self.names.get_mut(usize::from(number)) {
            *slot = Some(attr);
        }
    }

    /// What is known of attribute `number`.
    pub fn def(&self, number: u16) -> Option<AttrDef> {
        self.defs.get(usize::from(number)).copied().flatten()
    }

    /// Number of a standard attribute in this file system.
    pub fn number(&self, attr: Attr) -> Option<u16> {
        self.standard.get(usize::from(attr.number())).copied().flatten()
    }

    /// The standard attribute that has this number in this file system.
    pub fn attr(&self, number: u16) -> Option<Attr> {
        self.names.get(usize::from(number)).copied().flatten()
    }

    /// The entries to be written to a new registry ZAP, by number.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let number = |attr: Attr| self.number(attr).and_then(|n| self.def(n));
        Attr::ALL.into_iter().filter_map(move |a| Some((a.name(), number(a)?.encode())))
    }
}
