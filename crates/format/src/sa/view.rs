//! Reading attributes: where each one lies in bonus and spill block.

use std::ops::Range;

use super::header::SaHeader;
use super::layouts::LAYOUT_OLD_ZNODE;
use super::registry::Registry;
use super::{Attr, Layouts, align8};
use crate::{FormatError, ObjectType, Result};

const WHAT: &str = "system attributes";

/// One buffer with its layout.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    bytes: &'a [u8],
    /// `None`: an old znode, which has no header.
    header: Option<SaHeader>,
    order: &'a [u16],
}

impl<'a> Part<'a> {
    fn new(bytes: &'a [u8], layouts: &'a Layouts) -> Result<Self> {
        let header = SaHeader::parse(bytes)?;
        // Layout 0 with a header would be an old znode behind a header: nobody writes that.
        let order = layouts.order(header.layout).filter(|_| header.layout != LAYOUT_OLD_ZNODE);
        let order = order.ok_or(FormatError::Field {
            what: WHAT,
            field: "layout",
            seen: header.layout.into(),
            expected: "a layout of the file system",
        })?;
        Ok(Part { bytes, header: Some(header), order })
    }
}

/// Where a value lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In the spill block (else in the bonus).
    pub in_spill: bool,
    /// Range of bytes in that buffer.
    pub range: Range<usize>,
}

/// The attributes of one object. Copies nothing; each look-up walks the layout once.
#[derive(Clone, Copy, Debug)]
pub struct SaView<'a> {
    registry: &'a Registry,
    bonus: Part<'a>,
    spill: Option<Part<'a>>,
}

impl<'a> SaView<'a> {
    /// The attributes in a bonus and, if there is one, in the spill block.
    ///
    /// `bonus_kind` tells old znodes from system attributes. Layouts must be known; that every
    /// value lies within its buffer is checked when the values are walked.
    pub fn new(
        registry: &'a Registry,
        layouts: &'a Layouts,
        bonus_kind: ObjectType,
        bonus: &'a [u8],
        spill: Option<&'a [u8]>,
    ) -> Result<Self> {
        let bonus = match bonus_kind {
            ObjectType::SA => Part::new(bonus, layouts)?,
            ObjectType::ZNODE => {
                let order = layouts.order(LAYOUT_OLD_ZNODE).unwrap_or_default();
                Part { bytes: bonus, header: None, order }
            }
            other => {
                let (seen, expected) = (other.0.into(), "44 (SA) or 17 (znode)");
                return Err(FormatError::Field { what: WHAT, field: "bonus type", seen, expected });
            }
        };
        let spill = spill.map(|bytes| Part::new(bytes, layouts)).transpose()?;
        Ok(SaView { registry, bonus, spill })
    }

    /// The registry by which the values are found.
    pub fn registry(&self) -> &'a Registry {
        self.registry
    }

    /// Is this an old znode?
    pub fn is_old_znode(&self) -> bool {
        self.bonus.header.is_none()
    }

    /// All attributes, those of the bonus first, in the order of their layouts.
    ///
    /// Ends after the first error.
    pub fn values(&self) -> Values<'a> {
        Values::new(self.registry, self.bonus, self.spill)
    }

    /// Where the value of attribute `number` lies.
    pub fn place(&self, number: u16) -> Result<Option<Place>> {
        for value in self.values() {
            let (found, place, _) = value?;
            if found == number {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The value of a standard attribute, if the object has it.
    pub fn get(&self, attr: Attr) -> Result<Option<&'a [u8]>> {
        let Some(number) = self.registry.number(attr) else { return Ok(None) };
        for value in self.values() {
            let (found, _, bytes) = value?;
            if found == number {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// The value of a standard attribute of 8 bytes, if the object has it.
    pub fn get_u64(&self, attr: Attr) -> Result<Option<u64>> {
        let value = self.get(attr)?;
        Ok(value.and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b)))
    }
}

/// Iterator of [`SaView::values`]: number, place and bytes of each attribute.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    registry: &'a Registry,
    part: Part<'a>,
    next: Option<Part<'a>>,
    in_spill: bool,
    /// Place in the order.
    index: usize,
    /// Attributes of varying length so far.
    varying: usize,
    at: usize,
}

impl<'a> Values<'a> {
    fn new(registry: &'a Registry, part: Part<'a>, next: Option<Part<'a>>) -> Self {
        let at = part.header.map_or(0, |h| h.size);
        Values { registry, part, next, in_spill: false, index: 0, varying: 0, at }
    }

    fn value(&mut self, number: u16) -> Result<(u16, Place, &'a [u8])> {
        let bounds = |field| FormatError::Bounds { what: WHAT, field, at: self.at as u64 };
        let def = self.registry.def(number).ok_or(FormatError::Field {
            what: WHAT,
            field: "attribute",
            seen: number.into(),
            expected: "one of the registry",
        })?;
        let length = if def.length != 0 {
            def.length.into()
        } else {
            let header = self.part.header.ok_or_else(|| bounds("length"))?;
            header.length(self.part.bytes, self.varying).ok_or_else(|| bounds("length"))?
        };
        let range = self.at..self.at.saturating_add(length);
        let bytes = self.part.bytes.get(range.clone()).ok_or_else(|| bounds("value"))?;
        self.varying += usize::from(def.length == 0);
        self.at = align8(range.end);
        Ok((number, Place { in_spill: self.in_spill, range }, bytes))
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<(u16, Place, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(number) = self.part.order.get(self.index) {
                self.index += 1;
                let value = self.value(*number);
                if value.is_err() {
                    (self.part.order, self.next) = (&[], None);
                }
                return Some(value);
            }
            let part = self.next.take()?;
            *self = Values { in_spill: true, ..Values::new(self.registry, part, None) };
        }
    }
}
