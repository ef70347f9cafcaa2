//! Layout of a leaf device: four labels, the boot region, and the space between.
//!
//! The one idea: where everything that is not a block lies on a leaf, in one table of constants.
//! FORMAT: section 1.1.
//!
//! | region | offset on the leaf |
//! |---|---|
//! | labels 0, 1 | 0, 256 KiB |
//! | boot region, never touched | 512 KiB |
//! | space for blocks; offset 0 of a DVA | 4 MiB |
//! | labels 2, 3 | the last 512 KiB of [`usable_size`] |
//!
//! A label is 8 KiB of padding, the boot environment, the config, and the ring of uberblocks. Each
//! of these regions (of the ring: each slot) ends with its own checksum, see [`crate::eck`].

use crate::eck::{ECK_SIZE, Eck};
use crate::{FormatError, NvList, Result};

/// Labels on a leaf.
pub const LABELS: usize = 4;
/// Bytes of a label.
pub const LABEL_SIZE: u64 = 256 << 10;
/// Offset of the boot environment in a label.
pub const BOOTENV_AT: u64 = 8 << 10;
/// Bytes of the boot environment, checksum included.
pub const BOOTENV_SIZE: usize = 8 << 10;
/// Offset of the config in a label.
pub const CONFIG_AT: u64 = 16 << 10;
/// Bytes of the config's region (`vdev_phys_t`), checksum included.
pub const CONFIG_SIZE: usize = 112 << 10;
/// Offset of the ring of uberblocks in a label.
pub const RING_AT: u64 = 128 << 10;
/// Bytes of the ring of uberblocks.
pub const RING_SIZE: usize = 128 << 10;
/// Where space for blocks begins on a leaf, in bytes.
pub const DATA_AT: u64 = 4 << 20;
/// Bytes at the end of a leaf that labels take.
pub const TAIL_SIZE: u64 = 2 * LABEL_SIZE;
/// The smallest device that the kernel takes, in bytes.
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;
/// Smallest ashift of a vdev.
pub const ASHIFT_MIN: u64 = 9;
/// Largest ashift of a vdev.
pub const ASHIFT_MAX: u64 = 16;

const _: () = assert!(BOOTENV_AT + BOOTENV_SIZE as u64 == CONFIG_AT);
const _: () = assert!(CONFIG_AT + CONFIG_SIZE as u64 == RING_AT);
const _: () = assert!(RING_AT + RING_SIZE as u64 == LABEL_SIZE);

/// How much of a device of `device_size` bytes is used: a multiple of the label's size.
pub const fn usable_size(device_size: u64) -> u64 {
    device_size - device_size % LABEL_SIZE
}

/// Bytes for blocks on a leaf of `device_size` bytes; `None` if it is too small for labels.
pub const fn leaf_asize(device_size: u64) -> Option<u64> {
    usable_size(device_size).checked_sub(DATA_AT + TAIL_SIZE)
}

/// Where label `label` (0 to 3) starts on a leaf of `device_size` bytes; `None` if there is no
/// such label, or no room for four.
pub fn label_offset(label: usize, device_size: u64) -> Option<u64> {
    leaf_asize(device_size)?;
    let index = label as u64 * LABEL_SIZE;
    match label {
        0 | 1 => Some(index),
        2 | 3 => Some(usable_size(device_size) - LABELS as u64 * LABEL_SIZE + index),
        _ => None,
    }
}

/// Parses the config in the region [`CONFIG_AT`] of a label, whose checksum has been verified.
pub fn parse_config(region: &[u8]) -> Result<NvList> {
    let end = region.len().saturating_sub(ECK_SIZE).min(CONFIG_SIZE - ECK_SIZE);
    NvList::parse(region.get(..end).unwrap_or_default())
}

/// The region [`CONFIG_AT`] of a label that holds `config`; its checksum has still to be sealed.
pub fn build_config(config: &NvList) -> Result<Vec<u8>> {
    let mut region = config.to_xdr()?;
    if region.len() > CONFIG_SIZE - ECK_SIZE {
        return Err(FormatError::TooLarge {
            what: "label",
            field: "config",
            size: region.len() as u64,
            max: (CONFIG_SIZE - ECK_SIZE) as u64,
        });
    }
    region.resize(CONFIG_SIZE, 0);
    Eck::place(&mut region);
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lie_where_the_kernel_puts_them() {
        // 300 MiB and some bytes, as in the fact sheet.
        let size = (300 << 20) + 12345;
        assert_eq!(leaf_asize(size), Some(309_854_208));
        assert_eq!(label_offset(0, size), Some(0));
        assert_eq!(label_offset(1, size), Some(256 << 10));
        assert_eq!(label_offset(2, size), Some((300 << 20) - (512 << 10)));
        assert_eq!(label_offset(3, size), Some((300 << 20) - (256 << 10)));
        assert_eq!(label_offset(4, size), None);
        assert_eq!(label_offset(0, 4 << 20), None);
        assert_eq!(leaf_asize(0), None);
    }

    #[test]
    fn a_config_fills_its_region() {
        let mut list = NvList::new();
        list.put_u64("version", 5000);
        let region = build_config(&list).unwrap();
        assert_eq!(region.len(), CONFIG_SIZE);
        assert_eq!(parse_config(&region).unwrap(), list);
        list.put_string("too large", vec![b'x'; CONFIG_SIZE]);
        assert!(matches!(build_config(&list), Err(FormatError::TooLarge { .. })));
        assert!(parse_config(&[]).is_err());
    }
}
