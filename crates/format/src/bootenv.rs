//! The boot environment of a label (`vdev_boot_envblock_t`): words for boot loaders.
//!
//! A version, big-endian on every host, then text (version 0) or an encoded nvlist (version 1), and
//! the checksum of the region. A fresh label has it empty: version 0 and all zero.

use crate::eck::{ECK_SIZE, Eck};
use crate::label::BOOTENV_SIZE;
use crate::{FormatError, NvList, Result};

/// Bytes of text or list that fit.
pub const PAYLOAD_MAX: usize = BOOTENV_SIZE - ECK_SIZE - 8;

const WHAT: &str = "boot environment";
const VERSION_RAW: u64 = 0;
const VERSION_NVLIST: u64 = 1;

/// What a boot environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootEnv {
    /// Text up to its first NUL; empty in a fresh label.
    Raw(Vec<u8>),
    /// Named values.
    List(NvList),
}

impl Default for BootEnv {
    fn default() -> Self {
        BootEnv::Raw(Vec::new())
    }
}

impl BootEnv {
    /// Parses the region of a label, whose checksum has been verified.
    pub fn parse(region: &[u8]) -> Result<BootEnv> {
        let have = region.len() as u64;
        let short = FormatError::Short { what: WHAT, needed: BOOTENV_SIZE as u64, have };
        let region = region.get(..BOOTENV_SIZE).ok_or(short)?;
        let version = region.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
        let payload = region.get(8..8 + PAYLOAD_MAX).unwrap_or_default();
        match version {
            VERSION_RAW => {
                let text = payload.split(|b| *b == 0).next().unwrap_or_default();
                Ok(BootEnv::Raw(text.to_vec()))
            }
            VERSION_NVLIST => NvList::parse(payload).map(BootEnv::List),
            seen => {
                let expected = "0 (text) or 1 (nvlist)";
                Err(FormatError::Field { what: WHAT, field: "version", seen, expected })
            }
        }
    }

    /// The region of a label; its checksum has still to be sealed.
    pub fn to_region(&self) -> Result<Vec<u8>> {
        let (version, payload) = match self {
            BootEnv::Raw(text) => (VERSION_RAW, text.clone()),
            BootEnv::List(list) => (VERSION_NVLIST, list.to_xdr()?),
        };
        if payload.len() > PAYLOAD_MAX {
            return Err(FormatError::TooLarge {
                what: WHAT,
                field: "payload",
                size: payload.len() as u64,
                max: PAYLOAD_MAX as u64,
            });
        }
        let mut region = version.to_be_bytes().to_vec();
        region.extend_from_slice(&payload);
        region.resize(BOOTENV_SIZE, 0);
        Eck::place(&mut region);
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_environments_are_inverse() {
        let mut list = NvList::new();
        list.put_u64("version", 1);
        for env in [BootEnv::default(), BootEnv::Raw(b"a=b".to_vec()), BootEnv::List(list)] {
            let region = env.to_region().unwrap();
            assert_eq!(region.len(), BOOTENV_SIZE);
            assert_eq!(BootEnv::parse(&region).unwrap(), env);
        }
    }

    #[test]
    fn a_fresh_label_has_an_empty_one() {
        let region = BootEnv::default().to_region().unwrap();
        assert!(region[..BOOTENV_SIZE - ECK_SIZE].iter().all(|b| *b == 0));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(BootEnv::parse(&[0; BOOTENV_SIZE - 1]).is_err());
        assert!(BootEnv::parse(&[9; BOOTENV_SIZE]).is_err());
        assert!(BootEnv::Raw(vec![b'x'; PAYLOAD_MAX + 1]).to_region().is_err());
        assert!(BootEnv::Raw(vec![b'x'; PAYLOAD_MAX]).to_region().is_ok());
    }
}
