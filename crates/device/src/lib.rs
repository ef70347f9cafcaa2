//! Devices: files, block devices and simulated disks behind one narrow trait.
