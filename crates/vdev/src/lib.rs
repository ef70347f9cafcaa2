//! Virtual devices: labels, mirrors and RAID-Z on top of devices.
