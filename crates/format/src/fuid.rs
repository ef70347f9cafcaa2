//! FUIDs: user and group ids with a domain (of Windows), which POSIX ids do not have.
//!
//! The upper 32 bits of an id are an index into the file system's table of domains, 0 for none;
//! the lower 32 bits are the id. The table is a packed nvlist in an object of type
//! [`ObjectType::FUID`](crate::ObjectType::FUID) whose bonus is its size. FORMAT: section 11.4.

use crate::blkptr::{bits, with_bits};
use crate::nvlist::NvList;
use crate::{FormatError, Result};

const LIST: &str = "fuid_nvlist";
const INDEX: &str = "fuid_idx";
const OFFSET: &str = "fuid_offset";
const DOMAIN: &str = "fuid_domain";

/// An id with its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fuid {
    /// Index of the domain; 0: a POSIX id.
    pub domain: u32,
    /// The id in the domain.
    pub id: u32,
}

impl Fuid {
    /// From the word on disk.
    pub fn decode(word: u64) -> Self {
        Fuid { domain: bits(word, 32, 32) as u32, id: bits(word, 0, 32) as u32 }
    }

    /// The word on disk.
    pub fn encode(self) -> u64 {
        with_bits(self.id.into(), 32, 32, self.domain.into())
    }
}

/// The domains of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FuidTable {
    domains: Vec<(u32, Vec<u8>)>,
}

impl FuidTable {
    /// Parses the packed table.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bad = |field| FormatError::Bounds { what: "FUID table", field, at: 0 };
        let list = NvList::parse(bytes)?;
        let entries = list.list_array(LIST).ok_or_else(|| bad(LIST))?;
        let entry = |entry: &NvList| {
            let index = entry.u64(INDEX).and_then(|i| u32::try_from(i).ok()).filter(|i| *i > 0);
            let index = index.ok_or_else(|| bad(INDEX))?;
            let domain = entry.string(DOMAIN).ok_or_else(|| bad(DOMAIN))?;
            Ok((index, domain.to_vec()))
        };
        Ok(FuidTable { domains: entries.iter().map(entry).collect::<Result<_>>()? })
    }

    /// The packed table.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let entry = |(index, domain): &(u32, Vec<u8>)| {
            let mut entry = NvList::new();
            entry.put_u64(INDEX, (*index).into());
            entry.put_u64(OFFSET, 0);
            entry.put_string(DOMAIN, domain);
            entry
        };
        let mut list = NvList::new();
        list.put_list_array(LIST, self.domains.iter().map(entry).collect());
        list.to_xdr()
    }

    /// The domain with this index.
    pub fn domain(&self, index: u32) -> Option<&[u8]> {
        let found = self.domains.iter().find(|(i, _)| *i == index);
        found.map(|(_, domain)| domain.as_slice())
    }

    /// The index of a domain; it gets the smallest free one if it has none.
    pub fn find_or_add(&mut self, domain: &[u8]) -> u32 {
        if let Some((index, _)) = self.domains.iter().find(|(_, d)| d == domain) {
            return *index;
        }
        let taken = |index: &u32| self.domains.iter().any(|(i, _)| i == index);
        let next = (1..=u32::MAX).find(|index| !taken(index)).unwrap_or(u32::MAX);
        self.domains.push((next, domain.to_vec()));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_tables_come_back() {
        let fuid = Fuid { domain: 2, id: 1001 };
        assert_eq!(fuid.encode(), 0x2_0000_03e9);
        assert_eq!(Fuid::decode(fuid.encode()), fuid);
        let mut table = FuidTable::default();
        assert_eq!(table.find_or_add(b"S-1-5-21"), 1);
        assert_eq!(table.find_or_add(b"S-1-5-22"), 2);
        assert_eq!(table.find_or_add(b"S-1-5-21"), 1);
        let again = FuidTable::parse(&table.to_bytes().unwrap()).unwrap();
        assert_eq!(again, table);
        assert_eq!(again.domain(2), Some(&b"S-1-5-22"[..]));
        assert_eq!(again.domain(0), None);
        assert!(FuidTable::parse(b"\x01\x01\0\0").is_err());
    }
}
