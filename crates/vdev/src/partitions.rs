//! Partitions of image files, where a pool on whole disks has its labels.
//!
//! The one idea: either of the two tables will do, the first that is whole. A disk's partitions are
//! devices that the system shows; those of a file are shown by nobody, so we look.

use device::Device;
use format::gpt::{BLOCK_SIZES, Header, Partition};

/// The partitions of a device that has a GPT; none of one that has no table that can be believed.
pub(crate) fn partitions(device: &dyn Device) -> Vec<Partition> {
    for block_size in BLOCK_SIZES {
        let second = Header::second_at(block_size, device.size());
        for at in [Some(Header::first_at(block_size)), second].into_iter().flatten() {
            if let Some(found) = read_table(device, block_size, at) {
                return found;
            }
        }
    }
    Vec::new()
}

/// The table whose header is at byte `at`.
fn read_table(device: &dyn Device, block_size: u64, at: u64) -> Option<Vec<Partition>> {
    let mut block = vec![0; block_size as usize];
    device.read_at(at, &mut block).ok()?;
    let header = Header::parse(&block, at).ok()?;
    let (place, size) = header.entries().ok()?;
    let mut entries = vec![0; size];
    device.read_at(place, &mut entries).ok()?;
    header.partitions(&entries, device.size()).ok()
}
