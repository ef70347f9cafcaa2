//! Extended attributes in the system attribute DXATTR: a packed nvlist of byte arrays.
//!
//! Names carry their prefix ("user.foo", "system.posix_acl_access"). What is too large goes to a
//! hidden directory instead. FORMAT: section 11.6.

use crate::nvlist::{NvList, Value};
use crate::{FormatError, Result};

/// Largest value that is kept here, in bytes.
pub const VALUE_MAX: usize = 32 << 10;
/// Largest packed list, in bytes: attributes have lengths of 16 bits.
pub const LIST_MAX: usize = u16::MAX as usize;

/// The extended attributes of an object, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dxattr {
    list: NvList,
}

impl Dxattr {
    /// Parses the value of the attribute; values that are not byte arrays are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let list = NvList::parse(bytes)?;
        match list.pairs().iter().position(|p| !matches!(p.value, Value::ByteArray(_))) {
            Some(at) => {
                let (what, field) = ("extended attributes", "type of a value");
                Err(FormatError::Bounds { what, field, at: at as u64 })
            }
            None => Ok(Dxattr { list }),
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.pairs().iter().map(|pair| match &pair.value {
            Value::ByteArray(bytes) => (pair.name.as_slice(), bytes.as_slice()),
            _ => (pair.name.as_slice(), [].as_slice()),
        })
    }

    /// The value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Sets a value. The order is that of OpenZFS: what is set last stands last.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.list.remove(name);
        self.list.put(name, Value::ByteArray(value.to_vec()));
    }

    /// Removes a name; was it there?
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.list.remove(name).is_some()
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The value of the attribute; refused if it or one of the values is too large for it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let too_large = |field, size: usize, max: usize| FormatError::TooLarge {
            what: "extended attributes",
            field,
            size: size as u64,
            max: max as u64,
        };
        if let Some((_, value)) = self.iter().find(|(_, value)| value.len() > VALUE_MAX) {
            return Err(too_large("value", value.len(), VALUE_MAX));
        }
        let bytes = self.list.to_xdr()?;
        if bytes.len() > LIST_MAX {
            return Err(too_large("list", bytes.len(), LIST_MAX));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_order() {
        let mut xattrs = Dxattr::default();
        xattrs.set(b"user.a", b"1");
        xattrs.set(b"user.b\xff", b"");
        xattrs.set(b"user.a", b"2");
        let again = Dxattr::parse(&xattrs.to_bytes().unwrap()).unwrap();
        let found: Vec<_> = again.iter().collect();
        assert_eq!(found, [(&b"user.b\xff"[..], &b""[..]), (b"user.a", b"2")]);
        assert_eq!(again.get(b"user.a"), Some(&b"2"[..]));
        assert!(xattrs.remove(b"user.a") && !xattrs.remove(b"user.a"));
        assert!(xattrs.remove(b"user.b\xff") && xattrs.is_empty());
    }

    #[test]
    fn too_large_and_wrong_types_are_refused() {
        let mut xattrs = Dxattr::default();
        xattrs.set(b"user.a", &[0; VALUE_MAX]);
        assert!(xattrs.to_bytes().is_ok());
        xattrs.set(b"user.b", &[0; VALUE_MAX]);
        assert!(xattrs.to_bytes().is_err());
        xattrs.remove(b"user.b");
        xattrs.set(b"user.a", &[0; VALUE_MAX + 1]);
        assert!(xattrs.to_bytes().is_err());
        let mut list = NvList::new();
        list.put_u64("user.a", 1);
        assert!(Dxattr::parse(&list.to_xdr().unwrap()).is_err());
        assert!(Dxattr::parse(b"").is_err());
    }
}
