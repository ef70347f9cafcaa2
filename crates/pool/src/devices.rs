//! Devices and what they hold, for the doors: they see vdevs through the pool alone.

pub use vdev::import::{
    AuxMember, Candidate, ChooseError, FoundPool, Member, Scan, queue_buffers, scan, scan_devices,
};
pub use vdev::label::Labels;
pub use vdev::{
    Content, ErrorCounts, LabelParts, Leaf, LeafState, Seen, Tree, VdevError, content, label_parts,
};
