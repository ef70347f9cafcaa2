//! Requests and reports about data sets.

use std::path::PathBuf;

use pool::props::space::Owner;
use pool::props::{Key, Kind, Kinds, Prop, Source, Value};

/// Makes a file system or a volume.
#[derive(Clone, Debug, Default)]
pub struct Create {
    /// Its full name.
    pub name: String,
    /// Parents that are missing are made too, and a file system that is there is fine.
    pub parents: bool,
    /// A volume of so many bytes.
    pub volume: Option<Volume>,
    /// Properties as typed, in order, checked for form.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Nothing is made, only said.
    pub dry_run: bool,
    /// It is not mounted where a server mounts file systems.
    pub unmounted: bool,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// What a new volume is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its size in bytes.
    pub size: u64,
    /// The size of its blocks in bytes, if it is not the default.
    pub block_size: Option<u64>,
    /// No space is reserved for it.
    pub sparse: bool,
}

/// Destroys a data set, or snapshots of one.
#[derive(Clone, Debug, Default)]
pub struct Destroy {
    /// Its full name, or `FS@SNAPSHOTS`, a list with ranges.
    pub name: String,
    /// What is below it, too.
    pub recursive: bool,
    /// What depends on it, too.
    pub dependents: bool,
    /// Snapshots that are held go when the last hold goes.
    pub defer: bool,
    /// Though it is in use.
    pub force: bool,
    /// Nothing is destroyed, only said.
    pub dry_run: bool,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// What was destroyed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// Names, in the order in which they go.
    pub names: Vec<String>,
    /// Bytes that come back, where that is known: for snapshots.
    pub reclaimed: Option<u64>,
}

/// Sets properties.
#[derive(Clone, Debug)]
pub struct Set {
    /// The data sets.
    pub names: Vec<String>,
    /// Properties as typed, in order.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Directories to look for the pools in, if they are not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pools' history.
    pub command: String,
}

/// Takes properties back.
#[derive(Clone, Debug)]
pub struct Inherit {
    /// The data sets.
    pub names: Vec<String>,
    /// The property: a native one or a user's own.
    pub key: Key,
    /// It is what came with a stream, if something did.
    pub revert: bool,
    /// On what is below them, too.
    pub recursive: bool,
    /// Directories to look for the pools in, if they are not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pools' history.
    pub command: String,
}

/// Asks what users, groups or projects use of a file system or snapshot.
#[derive(Clone, Debug)]
pub struct Space {
    /// Its name.
    pub name: String,
    /// Whose space.
    pub owners: Vec<Owner>,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
}

/// Asks what differs between a snapshot and something later.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The snapshot.
    pub from: String,
    /// A later one, or a file system as it is.
    pub to: String,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
}

/// What one user, group or project uses and may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRow {
    /// What it is.
    pub owner: Owner,
    /// Its number; within its domain, if it has one.
    pub number: u64,
    /// The domain of a user or group of Windows.
    pub domain: Option<String>,
    /// Its name on this host.
    pub name: Option<String>,
    /// Bytes used.
    pub used: Option<u64>,
    /// Bytes that may be used.
    pub quota: Option<u64>,
    /// Objects owned.
    pub objects: Option<u64>,
    /// Objects that may be owned.
    pub object_quota: Option<u64>,
}

/// What there is to know though the properties were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetReport {
    /// Warnings, one a line.
    pub notes: Vec<String>,
    /// What could not be set on which data set.
    pub errors: Vec<crate::Error>,
}

/// Chooses data sets and asks for their properties.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Their names; none: all of every pool.
    pub names: Vec<String>,
    /// What is below them, so many levels deep; `None`: nothing.
    pub depth: Option<usize>,
    /// Which kinds.
    pub kinds: Kinds,
    /// The kinds were asked for: a data set that is named and of another kind is an error.
    /// Otherwise what is named is reported, whatever its kind.
    pub kinds_given: bool,
    /// What is asked for.
    pub keys: Vec<Key>,
    /// All properties that have a value, user properties too.
    pub all: bool,
    /// Directories to look for the pools in.
    pub places: Vec<PathBuf>,
}

/// One data set with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetReport {
    /// Its full name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its txg of creation, by which snapshots are sorted.
    pub createtxg: u64,
    /// Values with their sources; what is not there has none.
    pub properties: Vec<(Key, Value, Source)>,
    /// Values that came with a stream.
    pub received: Vec<(Key, Value)>,
}

impl DatasetReport {
    /// Value and source of a property; `None` if it has none.
    #[must_use]
    pub fn property(&self, key: &Key) -> Option<(&Value, &Source)> {
        self.properties.iter().find(|(k, _, _)| k == key).map(|(_, value, source)| (value, source))
    }

    /// The number that a native property has.
    #[must_use]
    pub fn number(&self, prop: Prop) -> Option<u64> {
        self.property(&Key::Native(prop))?.0.number()
    }
}

/// What came of a query.
#[derive(Clone, Debug, Default)]
pub struct QueryReport {
    /// The data sets, by name.
    pub datasets: Vec<DatasetReport>,
    /// What could not be found or read.
    pub errors: Vec<crate::Error>,
}
