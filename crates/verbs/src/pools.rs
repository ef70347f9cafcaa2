//! Requests and reports about pools.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pool::Checkpoint;
use pool::props::{Key, PoolKey, PoolProp, Source, Value};

use crate::layout::{Class, Layout};
use crate::meters::{Meters, Slow};

/// Makes a pool.
#[derive(Clone, Debug, Default)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// Its devices.
    pub layout: Layout,
    /// Unsound layouts, and devices that other pools or file systems were on, are taken.
    pub force: bool,
    /// Nothing is made, only said.
    pub dry_run: bool,
    /// No feature is enabled but those asked for.
    pub no_features: bool,
    /// Properties of the pool, checked.
    pub properties: Vec<(PoolKey, Value)>,
    /// Properties of the root file system, checked.
    pub root_properties: Vec<(Key, Value)>,
    /// What goes into the pool's history.
    pub command: String,
}

/// Destroys a pool.
#[derive(Clone, Debug, Default)]
pub struct Destroy {
    /// Its name.
    pub name: String,
    /// Though it is in use.
    pub force: bool,
    /// Directories to look for it in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// Lets go of pools, so that another system can import them.
#[derive(Clone, Debug, Default)]
pub struct Export {
    /// Their names; none with `all`.
    pub names: Vec<String>,
    /// All pools that are remembered.
    pub all: bool,
    /// Though they are in use.
    pub force: bool,
    /// Directories to look for them in, if they are not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pools' history.
    pub command: String,
}

/// Which pools an import is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of this name.
    Name(String),
    /// The one of this guid.
    Guid(u64),
    /// All that can be imported.
    All,
}

/// Takes pools over from devices, and remembers them.
#[derive(Clone, Debug)]
pub struct Import {
    /// Which.
    pub which: Which,
    /// Directories and devices to look in; none: those of the system.
    pub places: Vec<PathBuf>,
    /// The new name.
    pub new_name: Option<String>,
    /// Though another system may have the pool.
    pub force: bool,
    /// Though log devices are missing.
    pub missing_log: bool,
    /// A destroyed pool.
    pub destroyed: bool,
    /// Nothing is written, ever.
    pub readonly: bool,
    /// Its file systems are not mounted where a server does that.
    pub unmounted: bool,
    /// Properties of the pool, checked.
    pub properties: Vec<(PoolKey, Value)>,
    /// What goes into the pools' history.
    pub command: String,
}

/// Looks for pools that can be imported.
#[derive(Clone, Debug, Default)]
pub struct Find {
    /// Directories and devices to look in; none: those of the system.
    pub places: Vec<PathBuf>,
    /// Destroyed ones instead.
    pub destroyed: bool,
}

/// Asks how pools are.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Their names; none: all that are remembered.
    pub names: Vec<String>,
    /// Directories to look for the pools in, if they are not remembered.
    pub places: Vec<PathBuf>,
    /// What is damaged shall be told by its names, too, for which whole directories may have to be read.
    pub damaged: bool,
    /// Remembered pools that cannot be opened for lack of devices shall be told of, too, as far as that goes; else they are
    /// errors.
    pub lost: bool,
}

/// Sets a property of a pool.
#[derive(Clone, Debug)]
pub struct Set {
    /// The pool.
    pub name: String,
    /// The property.
    pub key: PoolKey,
    /// Its value as it goes to disk.
    pub value: Value,
    /// Directories to look for it in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// `zpool clear`: devices that were given up are used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clear {
    /// The pool.
    pub name: String,
    /// One device of it, by its path, its guid, or the last part of its path; `None`: all.
    pub device: Option<String>,
    /// Directories to look for it in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// What is wished of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanWish {
    /// A scrub, or to go on with one.
    Scrub,
    /// A resilver of what devices lack, or to go on with one.
    Resilver,
    /// A pause of the scrub.
    Pause,
    /// The end of it.
    Stop,
}

/// `zpool scrub`, `zpool resilver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// The pool.
    pub name: String,
    /// What to do.
    pub wish: ScanWish,
    /// Of a pool that a server holds: to wait until it is done.
    pub wait: bool,
    /// Directories to look for it in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// State of a vdev, or of a pool by its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// All is well.
    Online,
    /// It works with less redundancy than it should have.
    Degraded,
    /// It is given up for too many errors.
    Faulted,
    /// Somebody took it out of use.
    Offline,
    /// It was pulled.
    Removed,
    /// It cannot be opened.
    Unavail,
}

impl State {
    /// The state's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Online => "ONLINE",
            State::Degraded => "DEGRADED",
            State::Faulted => "FAULTED",
            State::Offline => "OFFLINE",
            State::Removed => "REMOVED",
            State::Unavail => "UNAVAIL",
        }
    }
}

/// Why a vdev is in the state it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aux {
    /// The device is not there.
    CannotOpen,
    /// The device has no label that could be read.
    BadLabel,
    /// The label is of another device or pool.
    WrongLabel,
    /// Below it too much is missing.
    NoReplicas,
    /// The sum of all guids is not the pool's: a top-level vdev is missing.
    BadGuidSum,
    /// It is too small.
    TooSmall,
    /// It gave too many errors.
    TooManyErrors,
    /// Somebody has called it faulted.
    External,
    /// Its bytes are not what they should be.
    CorruptData,
    /// It needs features that are not known.
    Unsupported,
    /// Another pool has it.
    Split,
    /// It is a spare in use elsewhere.
    Spared,
}

/// What a vdev is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The pool.
    Root,
    /// A block device.
    Disk,
    /// A file.
    File,
    /// Copies.
    Mirror,
    /// RAID-Z with 1 to 3 parity devices.
    Raidz(u8),
    /// dRAID with 1 to 3 parity devices.
    Draid(u8),
    /// A device and the one that takes its place.
    Replacing,
    /// A device and the spare that stands in for it.
    Spare,
    /// Nobody knows what.
    Missing,
    /// A slot of a log device that was removed.
    Hole,
    /// A top-level vdev that was removed: its blocks are elsewhere.
    Indirect,
}

/// Counters and sizes of a vdev. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks that were not what they should be.
    pub checksum_errors: u64,
    /// Operations that took too long.
    pub slow: u64,
    /// Space that is allocated.
    pub allocated: u64,
    /// Space that can be allocated, of a pool or top-level vdev; 0 for what is below.
    pub space: u64,
    /// Size of the device.
    pub device_size: u64,
    /// Fragmentation in percent, if known.
    pub fragmentation: Option<u64>,
    /// Size that the vdev could grow by.
    pub expand: u64,
    /// Space that the checkpoint holds.
    pub checkpoint: u64,
}

/// One vdev and what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdev {
    /// What it is.
    pub kind: VdevKind,
    /// Its number among its siblings: `mirror-0`.
    pub id: u64,
    /// Its guid.
    pub guid: u64,
    /// A device's path.
    pub path: Option<PathBuf>,
    /// A whole disk: the partition is left out when it is shown.
    pub whole_disk: bool,
    /// It was missing when the pool's configuration was written: it goes by its guid.
    pub not_present: bool,
    /// What it is for, at the top.
    pub class: Class,
    /// Its state.
    pub state: State,
    /// Why.
    pub aux: Option<Aux>,
    /// Counters and sizes.
    pub stats: Stats,
    /// What its devices, or those below it, have done.
    pub meters: Box<Meters>,
    /// It is slower than its siblings.
    pub slow: Option<Slow>,
    /// What is below it.
    pub children: Vec<Vdev>,
}

/// The health of a pool that takes no changes until its devices are back.
pub(crate) const SUSPENDED: &str = "SUSPENDED";

/// What `status:` and `action:` say: the most urgent of what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// Nothing is wrong.
    Fine,
    /// Devices are missing, and not missed.
    MissingReplaceable,
    /// Devices are missing, and too many.
    Missing,
    /// Devices lost their labels, and are not missed.
    CorruptLabelReplaceable,
    /// Devices lost their labels, and too many.
    CorruptLabel,
    /// A top-level vdev is unknown.
    BadGuidSum,
    /// The pool's own structures are damaged.
    CorruptPool,
    /// Files are damaged.
    CorruptData,
    /// Devices gave errors, all of which were corrected.
    FailingDevice,
    /// Devices are slower than their siblings.
    SlowDevice,
    /// Devices are given up, and not missed.
    FaultedReplaceable,
    /// Devices are given up, and too many.
    Faulted,
    /// A device has gone, and is not missed.
    Removed,
    /// Somebody took a device out of use.
    Offline,
    /// A device is being filled.
    Resilvering,
    /// The pool takes no changes until its devices are back.
    Suspended,
    /// A log device is missing or damaged.
    BadLog,
    /// The pool's version is older than features.
    OldVersion,
    /// Features could be enabled.
    FeaturesOff,
    /// Another system had the pool last.
    OtherSystem,
    /// The pool needs features that are not known, named with what they are for.
    UnknownFeatures(Vec<(String, String)>),
    /// As above, but reading needs none of them.
    UnknownFeaturesForWriting(Vec<(String, String)>),
}

/// A scrub or resilver, as it was left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// It fills devices; otherwise it looks for damage.
    pub resilver: bool,
    /// When it started, seconds since 1970.
    pub start: u64,
    /// When it ended.
    pub end: Option<u64>,
    /// It was stopped before its end.
    pub cancelled: bool,
    /// When it was paused.
    pub paused: Option<u64>,
    /// Bytes repaired or filled.
    pub processed: u64,
    /// Bytes to look at.
    pub to_examine: u64,
    /// Bytes looked at.
    pub examined: u64,
    /// Of those, by the process that tells it, in so many seconds.
    pub pass: (u64, u64),
    /// Errors that could not be corrected.
    pub errors: u64,
}

/// The last removal of a vdev that held data, as it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Number of the top-level vdev.
    pub vdev: u64,
    /// When it began, seconds since 1970.
    pub start: u64,
    /// When it ended.
    pub end: Option<u64>,
    /// It was stopped before its end.
    pub cancelled: bool,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes of the mappings of all vdevs that were removed.
    pub mappings: u64,
}

/// A file, or another object, that lost blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its path, or what can be told of it.
    pub name: String,
    /// Which of a file's bytes: offsets and lengths, in order; empty of what is no file.
    pub ranges: Vec<(u64, u64)>,
}

/// How a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The txg that is on disk.
    pub txg: u64,
    /// Version of the format.
    pub version: u64,
    /// What is wrong.
    pub condition: Condition,
    /// Why nothing can be written, if nothing can.
    pub readonly: Option<String>,
    /// The tree of vdevs, from the root.
    pub tree: Vdev,
    /// Hot spares.
    pub spares: Vec<Vdev>,
    /// Cache devices.
    pub cache: Vec<Vdev>,
    /// The last scrub or resilver.
    pub scan: Option<Scan>,
    /// The last removal of a vdev that held data.
    pub removal: Option<Removal>,
    /// The checkpoint, or what is left of one.
    pub checkpoint: Option<Checkpoint>,
    /// Damaged blocks that no redundancy covered; nothing is known of a pool that could not be opened.
    pub error_count: Option<u64>,
    /// What of it is damaged, under every name.
    pub damaged: Vec<Damaged>,
    /// When the pool was opened, since this process began: two reports with the same were read from the same meters.
    pub opened: Duration,
    /// How long the meters have counted.
    pub open_for: Duration,
    /// Properties that hold a value, with features.
    pub properties: Vec<(PoolKey, Value, Source)>,
}

impl PoolReport {
    /// Value and source of a property; `None` if it has none.
    #[must_use]
    pub fn property(&self, key: &PoolKey) -> Option<(&Value, &Source)> {
        self.properties.iter().find(|(k, _, _)| k == key).map(|(_, value, source)| (value, source))
    }

    /// Bytes that are allocated, and in all.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let number = |prop| {
            let property = self.property(&PoolKey::Native(prop));
            property.and_then(|(value, _)| value.number()).unwrap_or(0)
        };
        (number(PoolProp::Allocated), number(PoolProp::Size))
    }

    /// The pool's health in a word.
    #[must_use]
    pub fn health(&self) -> &'static str {
        match self.condition {
            Condition::Suspended => SUSPENDED,
            _ => self.tree.state.name(),
        }
    }
}

/// A pool that was found on devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// It was destroyed.
    pub destroyed: bool,
    /// What is wrong.
    pub condition: Condition,
    /// It cannot be imported: not even for reading.
    pub hopeless: bool,
    /// Somebody else's: needs force.
    pub foreign: Option<Foreign>,
    /// Top-level vdevs are missing that nothing is known of.
    pub more_missing: bool,
    /// The pool's comment.
    pub comment: Option<String>,
    /// The tree of vdevs, from the root.
    pub tree: Vdev,
    /// Hot spares.
    pub spares: Vec<Vdev>,
    /// Cache devices.
    pub cache: Vec<Vdev>,
}

/// Who had a pool last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The system's name.
    pub host: String,
    /// The system's number.
    pub hostid: u64,
    /// When, in seconds since 1970.
    pub time: u64,
}

/// What came of importing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Pools that were taken over, by the names they have now, with what to know of each.
    pub pools: Vec<(String, Vec<String>)>,
    /// What could not be imported, of all that were found.
    pub errors: Vec<crate::Error>,
}

/// Asks for what was done to pools.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Their names; none: all that are remembered.
    pub names: Vec<String>,
    /// Directories to look for the pools in.
    pub places: Vec<PathBuf>,
}

/// What was done to one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryReport {
    /// The pool's name.
    pub name: String,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// One record of a pool's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in seconds since 1970.
    pub time: u64,
    /// What.
    pub what: What,
    /// Who: the user's number and, if known, name.
    pub user: Option<(u64, Option<String>)>,
    /// On which host.
    pub host: Option<String>,
    /// In which zone.
    pub zone: Option<String>,
}

/// What a record of a pool's history is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A command that somebody typed.
    Command(String),
    /// What the engine did.
    Internal {
        /// In which txg.
        txg: u64,
        /// The event's name.
        name: String,
        /// The data set's name and object.
        dataset: Option<(String, u64)>,
        /// Details.
        text: String,
    },
    /// A call of the kernel module with what it was given and what it gave.
    Call {
        /// The call's name.
        name: String,
        /// Printed input, one line each, with its indentation.
        input: Vec<String>,
        /// Printed output, likewise.
        output: Vec<String>,
        /// The error it ended with.
        errno: Option<i64>,
        /// How long it took, in nanoseconds.
        elapsed: Option<u64>,
    },
}

/// What a device is used for already.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InUse {
    /// A pool that somebody has.
    Pool {
        /// Its name.
        pool: String,
        /// It is one that this system remembers, or another system has: force does not help.
        state: PoolUse,
    },
    /// A hot spare of a pool.
    Spare {
        /// The pool.
        pool: String,
    },
    /// Another file system.
    Filesystem(String),
}

/// In what state the pool is that a device belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    /// It is in use here.
    Active,
    /// It was let go of.
    Exported,
    /// It was not let go of, and is not in use here.
    PotentiallyActive,
}

impl InUse {
    /// True if force does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, InUse::Pool { state: PoolUse::Active, .. } | InUse::Spare { .. })
    }

    /// The message of it.
    #[must_use]
    pub fn message(&self, device: &str) -> String {
        match self {
            InUse::Pool { pool, state } => {
                let state = match state {
                    PoolUse::Active => "active",
                    PoolUse::Exported => "exported",
                    PoolUse::PotentiallyActive => "potentially active",
                };
                format!("{device} is part of {state} pool '{pool}'")
            }
            InUse::Spare { pool } => {
                format!("{device} is reserved as a hot spare for pool {pool}")
            }
            InUse::Filesystem(kind) => {
                format!("{device} contains a filesystem of type '{kind}'")
            }
        }
    }
}

/// The words of a command as they go into a pool's history.
#[must_use]
pub fn command_text(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
    words.join(" ")
}
