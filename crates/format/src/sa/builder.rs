//! Writing attributes: from a list of values to the bytes of bonus and spill block.
//!
//! The order of the list is the order on disk. What does not fit into the bonus goes, from one
//! attribute on, to the spill block: one may stay only if, with it and its header, there is still
//! room for the pointer to the spill block. (OpenZFS never makes a spill block smaller while it
//! lasts; here its size is what the attributes need.)

use std::ops::Range;

use super::header::{SA_HEADER, SaHeader};
use super::registry::Registry;
use super::view::SaView;
use super::{Attr, Layouts, align8};
use crate::dnode::{BLKPTR, DNODE_CORE, DNODE_SLOT};
use crate::{FormatError, Result, SECTOR};

/// Largest sum of attributes, and largest spill block, in bytes.
pub const SPILL_MAX: usize = 128 << 10;

/// Room for attributes in a dnode of `slots` slots without a spill block, in bytes.
pub fn bonus_max(slots: usize) -> usize {
    slots * DNODE_SLOT - DNODE_CORE - BLKPTR
}

/// The bytes of an object's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The bonus.
    pub bonus: Vec<u8>,
    /// The spill block, a multiple of 512 bytes.
    pub spill: Option<Vec<u8>>,
}

/// A list of attributes in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaBuilder {
    /// Number, and how many bytes; varying length or not is up to the registry.
    values: Vec<(u16, usize)>,
    /// Those of all of them, one behind the other.
    bytes: Vec<u8>,
}

/// Attributes, and bytes of them, for which there is room from the beginning: what objects have as a rule.
const ROOM: (usize, usize) = (24, 512);

impl SaBuilder {
    /// An empty list.
    pub fn new() -> Self {
        SaBuilder { values: Vec::with_capacity(ROOM.0), bytes: Vec::with_capacity(ROOM.1) }
    }

    /// The attributes that an object has now, in their order.
    pub fn from_view(view: &SaView<'_>) -> Result<Self> {
        let mut builder = Self::new();
        for value in view.values() {
            let (number, _, bytes) = value?;
            builder.push(number, bytes);
        }
        Ok(builder)
    }

    fn push(&mut self, number: u16, bytes: &[u8]) {
        self.values.push((number, bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    /// Place in the list of an attribute, and of its bytes.
    fn find(&self, number: u16) -> Option<(usize, Range<usize>)> {
        let mut at = 0;
        for (place, (found, length)) in self.values.iter().enumerate() {
            if *found == number {
                return Some((place, at..at + length));
            }
            at += length;
        }
        None
    }

    /// Number and bytes of each attribute.
    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.values.iter().map(move |(number, length)| {
            let (bytes, later) = rest.split_at(*length);
            rest = later;
            (*number, bytes)
        })
    }

    /// Sets an attribute: in its place if it is there, else at the end.
    pub fn set(&mut self, number: u16, bytes: &[u8]) -> &mut Self {
        match self.find(number) {
            Some((place, range)) => {
                if let Some((_, length)) = self.values.get_mut(place) {
                    *length = bytes.len();
                }
                drop(self.bytes.splice(range, bytes.iter().copied()));
            }
            None => self.push(number, bytes),
        }
        self
    }

    /// Sets a standard attribute of a file system that numbers them in the standard way.
    pub fn set_standard(&mut self, attr: Attr, bytes: &[u8]) -> &mut Self {
        self.set(attr.number(), bytes)
    }

    /// Removes an attribute.
    pub fn remove(&mut self, number: u16) -> &mut Self {
        if let Some((place, range)) = self.find(number) {
            self.values.remove(place);
            self.bytes.drain(range);
        }
        self
    }

    /// The value that an attribute has in the list.
    pub fn get(&self, number: u16) -> Option<&[u8]> {
        self.find(number).and_then(|(_, range)| self.bytes.get(range))
    }

    /// Builds the buffers for a bonus of at most `bonus_max` bytes (see [`bonus_max`]).
    ///
    /// New layouts are added to `layouts`. Refused: attributes that the registry does not know or
    /// that have another length there, and more than [`SPILL_MAX`] bytes.
    pub fn build(
        &self,
        registry: &Registry,
        layouts: &mut Layouts,
        bonus_max: usize,
    ) -> Result<Image> {
        let mut list = Vec::with_capacity(self.values.len());
        for (number, bytes) in self.iter() {
            let too_large = |max: u16| FormatError::TooLarge {
                what: "system attributes",
                field: "value",
                size: bytes.len() as u64,
                max: max.into(),
            };
            let def = registry.def(number).ok_or(FormatError::Field {
                what: "system attributes",
                field: "attribute",
                seen: number.into(),
                expected: "one of the registry",
            })?;
            if def.length != 0 && bytes.len() != usize::from(def.length) {
                return Err(too_large(def.length));
            }
            if bytes.len() > usize::from(u16::MAX) {
                return Err(too_large(u16::MAX));
            }
            list.push(Value { number, bytes, varying: def.length == 0 });
        }
        let sum = list.iter().fold(0, |sum, v| align8(sum) + v.bytes.len());
        if sum > SPILL_MAX {
            let (size, max) = (sum as u64, SPILL_MAX as u64);
            let (what, field) = ("system attributes", "sum");
            return Err(FormatError::TooLarge { what, field, size, max });
        }
        let Some(split) = split(&list, bonus_max) else {
            return Ok(Image { bonus: buffer(&list, layouts)?, spill: None });
        };
        let (stay, go) = list.split_at(split);
        let mut bonus = buffer(stay, layouts)?;
        // The bonus takes all that the spill pointer leaves.
        let header = SaHeader::size_for(stay.iter().filter(|v| v.varying).count());
        bonus.resize((bonus_max - BLKPTR).min(sum + header).max(bonus.len()), 0);
        let mut spill = buffer(go, layouts)?;
        spill.resize(spill.len().next_multiple_of(SECTOR as usize), 0);
        if spill.len() > SPILL_MAX {
            let (size, max) = (spill.len() as u64, SPILL_MAX as u64);
            let (what, field) = ("system attributes", "spill block");
            return Err(FormatError::TooLarge { what, field, size, max });
        }
        Ok(Image { bonus, spill: Some(spill) })
    }
}

struct Value<'a> {
    number: u16,
    bytes: &'a [u8],
    varying: bool,
}

/// Index of the first attribute that goes to the spill block; `None` if all fit.
///
/// The rule in two parts. Whether anything spills: the values (each aligned to 8) with their
/// header need more than `room`. Where: at the first attribute that would reach into the last 128
/// bytes, where the spill pointer lies then.
fn split(list: &[Value<'_>], room: usize) -> Option<usize> {
    let (mut total, mut header, mut varying) = (0, SA_HEADER, 0);
    let mut first_to_go = None;
    for (index, value) in list.iter().enumerate() {
        total = align8(total) + value.bytes.len();
        varying += usize::from(value.varying);
        let wider = header + if value.varying && varying > 1 { 2 } else { 0 };
        if first_to_go.is_none() && total + align8(wider) > room - BLKPTR {
            first_to_go = Some(index);
        }
        if wider > header {
            // An attribute that needs room in the header must leave at least one byte.
            if wider + total >= room {
                return Some(first_to_go.unwrap_or(index));
            }
            header = wider;
        }
        if total + align8(header) > room {
            return Some(first_to_go.unwrap_or(index));
        }
    }
    None
}

/// One buffer: header and values.
fn buffer(list: &[Value<'_>], layouts: &mut Layouts) -> Result<Vec<u8>> {
    let order: Vec<u16> = list.iter().map(|v| v.number).collect();
    let lengths: Vec<u16> =
        list.iter().filter(|v| v.varying).map(|v| v.bytes.len() as u16).collect();
    let size = SaHeader::size_for(lengths.len());
    let header = SaHeader { layout: layouts.find_or_add(&order)?, size };
    let values: usize = list.iter().map(|v| align8(v.bytes.len())).sum();
    let mut out = Vec::with_capacity(size + values);
    header.put(&lengths, &mut out)?;
    for value in list {
        out.resize(align8(out.len()), 0);
        out.extend_from_slice(value.bytes);
    }
    Ok(out)
}
