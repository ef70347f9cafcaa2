//! What can go wrong with a device.
//!
//! The one idea: an error names the device, the operation, where and how much, and the system's
//! error number; what to do about it is for those who know what the device is part of.

use rustix::io::Errno;

/// What was asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening it.
    Open,
    /// Asking for its size or sector size.
    Probe,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Flushing its cache.
    Flush,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Probe => "probe",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
        })
    }
}

/// An operation on a device that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system or the disk reported an error.
    #[error("{device}: {operation} of {size} bytes at {offset}: {errno}")]
    Io {
        /// The device's name.
        device: String,
        /// What was asked.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        size: u64,
        /// The system's error number.
        errno: Errno,
    },
    /// The device could not be opened, or did not say what it is.
    #[error("{device}: {operation}: {errno}")]
    Open {
        /// The device's name.
        device: String,
        /// What was asked.
        operation: Operation,
        /// The system's error number.
        errno: Errno,
    },
    /// The device is open for writing elsewhere, or mounted.
    #[error("{device}: busy, it is in use elsewhere")]
    Busy {
        /// The device's name.
        device: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{device}: neither a regular file nor a block device")]
    Kind {
        /// The device's name.
        device: String,
    },
    /// The range goes beyond the end of the device.
    #[error("{device}: {operation} of {size} bytes at {offset} goes beyond its end at {end}")]
    Range {
        /// The device's name.
        device: String,
        /// What was asked.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        size: u64,
        /// The device's size, in bytes.
        end: u64,
    },
    /// The device did not answer in time. The operation may still happen.
    #[error("{device}: {operation} of {size} bytes at {offset} got no answer in {waited_ms} ms")]
    Hung {
        /// The device's name.
        device: String,
        /// What was asked.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        size: u64,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
}

impl DeviceError {
    /// The device's name.
    pub fn device(&self) -> &str {
        match self {
            DeviceError::Io { device, .. }
            | DeviceError::Open { device, .. }
            | DeviceError::Busy { device }
            | DeviceError::Kind { device }
            | DeviceError::Range { device, .. }
            | DeviceError::Hung { device, .. } => device,
        }
    }

    /// The error number that says it best, for those who must answer with one.
    pub fn errno(&self) -> Errno {
        match self {
            DeviceError::Io { errno, .. } | DeviceError::Open { errno, .. } => *errno,
            DeviceError::Busy { .. } => Errno::BUSY,
            DeviceError::Kind { .. } => Errno::NOTBLK,
            DeviceError::Range { .. } => Errno::NXIO,
            DeviceError::Hung { .. } => Errno::TIMEDOUT,
        }
    }
}

/// Result of an operation on a device.
pub type Result<T> = std::result::Result<T, DeviceError>;
