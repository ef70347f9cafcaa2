//! Layouts: the lists of attributes that buffers of one file system name by a number.

use super::attr::Attr;
use crate::{FormatError, Result};

/// Layout of old znodes: the attributes 0 to 15, without an SA header. Not in the ZAP.
pub const LAYOUT_OLD_ZNODE: u16 = 0;
/// Layout without attributes. Not in the ZAP.
pub const LAYOUT_EMPTY: u16 = 1;
/// The first layout that a file system makes.
pub const LAYOUT_FIRST: u16 = 2;
/// Layout numbers are below this: the header has 10 bits for them.
pub const LAYOUTS_MAX: usize = 1 << 10;

const OLD_ZNODE: [u16; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Attributes that all layouts of objects begin with: mode to links.
const BEGINNING: usize = 12;

/// The layouts of one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layouts {
    orders: Vec<Option<Box<[u16]>>>,
    /// Layouts from here on are not on disk yet.
    unsaved: usize,
    /// What every layout begins with, if the layouts are lost.
    beginning: Option<Box<[u16]>>,
}

impl Default for Layouts {
    fn default() -> Self {
        let orders = vec![Some(OLD_ZNODE.into()), Some(Box::default())];
        Layouts { orders, unsaved: LAYOUT_FIRST.into(), beginning: None }
    }
}

impl Layouts {
    /// From the entries of the layouts ZAP: name and the attribute numbers in order.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], Vec<u16>)>,
    ) -> Result<Self> {
        let mut layouts = Self::default();
        for (name, order) in entries {
            let number = parse_name(name)?;
            let index = usize::from(number);
            if index < usize::from(LAYOUT_FIRST) {
                return Err(bad_number(number.into()));
            }
            if layouts.orders.len() <= index {
                layouts.orders.resize(index + 1, None);
            }
            if let Some(slot) = layouts.orders.get_mut(index) {
                *slot = Some(order.into());
            }
        }
        layouts.unsaved = layouts.orders.len();
        Ok(layouts)
    }

    /// Of a file system whose layouts are lost: what they all begin with.
    pub fn beginnings() -> Self {
        let common = Self::new_object(false, false).into_iter().take(BEGINNING);
        let beginning = Some(common.map(Attr::number).collect());
        Layouts { beginning, ..Self::default() }
    }

    /// The attributes of layout `number`, in order.
    pub fn order(&self, number: u16) -> Option<&[u16]> {
        let known = self.orders.get(usize::from(number)).and_then(|o| o.as_deref());
        known.or(self.beginning.as_deref())
    }

    /// The number of the layout with this order; a new one is made if there is none.
    ///
    /// New ones must be written to the layouts ZAP, see [`Self::unsaved`].
    pub fn find_or_add(&mut self, order: &[u16]) -> Result<u16> {
        if order.is_empty() {
            return Ok(LAYOUT_EMPTY);
        }
        let made = self.orders.iter().skip(LAYOUT_FIRST.into());
        if let Some(at) = made.clone().position(|o| o.as_deref() == Some(order)) {
            return Ok(at as u16 + LAYOUT_FIRST);
        }
        let number = self.orders.len();
        if number >= LAYOUTS_MAX {
            return Err(bad_number(number as u64));
        }
        self.orders.push(Some(order.into()));
        Ok(number as u16)
    }

    /// The layouts that are not on disk yet: ZAP name and value.
    pub fn unsaved(&self) -> impl Iterator<Item = (String, &[u16])> {
        let orders = self.orders.iter().enumerate().skip(self.unsaved);
        orders.filter_map(|(number, order)| Some((number.to_string(), order.as_deref()?)))
    }

    /// Says that all layouts are on disk now.
    pub fn saved(&mut self) {
        self.unsaved = self.orders.len();
    }

    /// Layout of a new object, in the order that accounting relies on.
    ///
    /// `with_project`: files and directories of a file system with project accounting. Symbolic
    /// links add their target, objects with extended attributes append those.
    pub fn new_object(with_project: bool, with_rdev: bool) -> Vec<Attr> {
        use Attr::*;
        let mut order =
            vec![Mode, Size, Gen, Uid, Gid, Parent, Flags, Atime, Mtime, Ctime, Crtime, Links];
        order.extend(with_project.then_some(Projid));
        order.extend(with_rdev.then_some(Rdev));
        order.extend([DaclCount, DaclAces]);
        order
    }
}

fn bad_number(seen: u64) -> FormatError {
    FormatError::Field { what: "SA layouts", field: "number", seen, expected: "2 to 1023" }
}

/// The number in a ZAP name: decimal, without zeros before it.
fn parse_name(name: &[u8]) -> Result<u16> {
    let text = std::str::from_utf8(name).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let number = text.and_then(|t| t.parse::<u16>().ok());
    let number =
        number.filter(|n| usize::from(*n) < LAYOUTS_MAX && n.to_string().len() == name.len());
    number.ok_or(FormatError::Bounds { what: "SA layouts", field: "name", at: 0 })
}
