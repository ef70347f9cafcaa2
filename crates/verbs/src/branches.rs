//! Requests and reports about snapshots, clones and names of data sets.

use std::path::PathBuf;

/// What all requests have: where to look for the pool, and what its history notes.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// `zfs snapshot`: all in one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Full names.
    pub names: Vec<String>,
    /// And of all data sets below.
    pub recursive: bool,
    /// Properties as typed.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs rollback`.
#[derive(Clone, Debug, Default)]
pub struct Rollback {
    /// The snapshot's full name.
    pub name: String,
    /// Newer snapshots are destroyed.
    pub newer: bool,
    /// And clones of them.
    pub clones: bool,
    /// Also while files are in use.
    pub force: bool,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs clone`.
#[derive(Clone, Debug, Default)]
pub struct Fork {
    /// The snapshot's full name.
    pub origin: String,
    /// The clone's.
    pub name: String,
    /// Parents that are missing are made, too.
    pub parents: bool,
    /// Properties as typed.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs promote`.
#[derive(Clone, Debug, Default)]
pub struct Promote {
    /// The clone.
    pub name: String,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs rename`.
#[derive(Clone, Debug, Default)]
pub struct Rename {
    /// The old name, of a data set or a snapshot.
    pub from: String,
    /// The new one; of a snapshot its last part may do.
    pub to: String,
    /// Parents that are missing are made, too.
    pub parents: bool,
    /// Snapshots of that name of all data sets below, too.
    pub recursive: bool,
    /// Also while files are in use.
    pub force: bool,
    /// What is mounted stays where it is.
    pub in_place: bool,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs hold` and `zfs release`.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// What the hold is called.
    pub tag: String,
    /// The snapshots.
    pub names: Vec<String>,
    /// And those of that name of all data sets below.
    pub recursive: bool,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// A hold on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The snapshot.
    pub name: String,
    /// What the hold is called.
    pub tag: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// What `zfs holds` says.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// The holds, by snapshot.
    pub holds: Vec<Held>,
    /// What could not be found.
    pub errors: Vec<crate::Error>,
}

/// `zfs bookmark`.
#[derive(Clone, Debug, Default)]
pub struct NewBookmark {
    /// The snapshot or bookmark that it is made of.
    pub source: String,
    /// The bookmark's full name.
    pub name: String,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// `zfs destroy` of a bookmark.
#[derive(Clone, Debug, Default)]
pub struct DestroyBookmark {
    /// The bookmark's full name.
    pub name: String,
    /// Where, and what is noted.
    pub setting: Setting,
}

/// One request.
#[derive(Clone, Debug)]
pub enum Branch {
    /// `zfs bookmark`.
    Bookmark(NewBookmark),
    /// `zfs destroy` of a bookmark.
    DestroyBookmark(DestroyBookmark),
    /// `zfs snapshot`.
    Snapshot(Snapshot),
    /// `zfs rollback`.
    Rollback(Rollback),
    /// `zfs clone`.
    Clone(Fork),
    /// `zfs promote`.
    Promote(Promote),
    /// `zfs rename`.
    Rename(Rename),
    /// `zfs hold`.
    Hold(Hold),
    /// `zfs release`.
    Release(Hold),
}
