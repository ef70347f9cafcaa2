//! What a verb could not do, and why: typed for doors, worded as OpenZFS words it.

use std::fmt;

use pool::props::{NameError, PoolPropError, PropError, nice_bytes};

use crate::layout::LayoutError;

/// What was to be done, with the name of what it was to be done to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Opening a pool or data set.
    Open(String),
    /// Making a pool or data set.
    Create(String),
    /// Destroying one.
    Destroy(String),
    /// Destroying one snapshot.
    DestroySnapshot(String),
    /// Taking a snapshot.
    CreateSnapshot(String),
    /// Taking several, whichever it was.
    CreateSnapshots,
    /// Rolling back to a snapshot.
    Rollback(String),
    /// Promoting a clone.
    Promote(String),
    /// Making a bookmark.
    CreateBookmark(String),
    /// Destroying one.
    DestroyBookmark(String),
    /// Giving a data set another name.
    Rename(String),
    /// Giving a data set this name.
    RenameTo(String),
    /// Holding a snapshot.
    Hold(String),
    /// Letting go of a snapshot.
    Release(String),
    /// Clearing the errors of a pool or a device.
    Clear(String),
    /// Scrubbing a pool.
    Scrub(String),
    /// Pausing that.
    PauseScrub(String),
    /// Stopping it.
    StopScrub(String),
    /// Resilvering a pool.
    Resilver(String),
    /// Something with a disk of a pool: the words of it.
    Disk(String),
    /// Exporting a pool.
    Export(String),
    /// Importing a pool.
    Import(String),
    /// Importing a pool with properties that are wrong.
    ImportWith(String),
    /// Setting a property.
    Set(String),
    /// Taking a property back: the property, then the data set.
    Inherit(String, String),
    /// Reading a pool's history.
    History(String),
    /// Judging a pool.
    Verify(String),
    /// Making, reading or changing a file: the word, then the path.
    File(&'static str, String),
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, name) = match self {
            Doing::Open(name) => ("open", name),
            Doing::Create(name) => ("create", name),
            Doing::Destroy(name) => ("destroy", name),
            Doing::DestroySnapshot(name) => return write!(f, "cannot destroy snapshot {name}"),
            Doing::CreateSnapshot(name) => ("create snapshot", name),
            Doing::CreateSnapshots => return write!(f, "cannot create snapshots "),
            Doing::Rollback(name) => ("rollback to", name),
            Doing::Promote(name) => ("promote", name),
            Doing::CreateBookmark(name) => ("create bookmark", name),
            Doing::DestroyBookmark(name) => ("destroy bookmark", name),
            Doing::Rename(name) => ("rename", name),
            Doing::RenameTo(name) => ("rename to", name),
            Doing::Hold(name) => ("hold snapshot", name),
            Doing::Release(name) => ("release hold from snapshot", name),
            Doing::Clear(name) => return write!(f, "cannot clear errors for {name}"),
            Doing::Scrub(name) => return write!(f, "cannot scrub {name}"),
            Doing::PauseScrub(name) => return write!(f, "cannot pause scrubbing {name}"),
            Doing::StopScrub(name) => return write!(f, "cannot cancel scrubbing {name}"),
            Doing::Resilver(name) => return write!(f, "cannot restart resilver on {name}"),
            Doing::Disk(words) => return write!(f, "cannot {words}"),
            Doing::Export(name) => ("export", name),
            Doing::Import(name) => ("import", name),
            Doing::ImportWith(name) => ("import pool", name),
            Doing::Set(name) => ("set property for", name),
            Doing::Inherit(property, name) => {
                return write!(f, "cannot inherit {property} for '{name}'");
            }
            Doing::History(name) => ("get history for", name),
            Doing::Verify(name) => ("verify", name),
            Doing::File(what, name) => (*what, name),
        };
        write!(f, "cannot {what} '{name}'")
    }
}

/// Why it could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// No pool of that name is known here.
    #[error("no such pool")]
    NoPool,
    /// No pool of that name was found on the devices.
    #[error("no such pool available")]
    NoPoolAvailable,
    /// The pool in a data set's name is not there.
    #[error("no such pool '{0}'")]
    NoPoolOf(String),
    /// No device of that name in the pool.
    #[error("no such device in pool")]
    NoDevice,
    /// A scrub is under way.
    #[error("currently scrubbing; use 'zpool scrub -s' to cancel current scrub")]
    Scrubbing,
    /// It is paused.
    #[error("scrub is paused; use 'zpool scrub' to resume scrub")]
    ScrubPaused,
    /// A resilver is under way.
    #[error("currently resilvering")]
    Resilvering,
    /// There is none.
    #[error("there is no active scrub")]
    NoScrub,
    /// No data set of that name.
    #[error("dataset does not exist")]
    NoDataset,
    /// No pool or data set of that name.
    #[error("no such pool or dataset")]
    NoPoolOrDataset,
    /// A data set of that name is there.
    #[error("dataset already exists")]
    DatasetExists,
    /// A pool of that name is there.
    #[error("pool already exists")]
    PoolExists,
    /// A pool of the name that an import would give is there.
    #[error(
        "a pool with that name already exists\n\
         use the form 'zpool import <pool | id> <newpool>' to give it a new name"
    )]
    PoolOfThatName,
    /// The parent of a new data set is not there.
    #[error("parent does not exist")]
    NoParent,
    /// The parent of a new data set is a volume.
    #[error("parent is not a filesystem")]
    ParentIsVolume,
    /// A pool where a data set's name belongs.
    #[error("missing dataset name")]
    NoDatasetName,
    /// The data set is of a kind for which this means nothing.
    #[error("operation not applicable to datasets of this type")]
    WrongKind,
    /// The property means nothing for such a data set.
    #[error("property doesn't apply to datasets of this type")]
    NotApplicable,
    /// The data set or pool takes no such value.
    #[error("invalid property value")]
    BadValue,
    /// A feature that the value needs is not enabled.
    #[error("pool and or dataset must be upgraded to set this property or value")]
    NeedsUpgrade,
    /// A feature that the value of a new data set needs is not enabled.
    #[error("pool must be upgraded to set this property or value")]
    PoolNeedsUpgrade,
    /// The pool takes no such value.
    #[error("operation not supported on this type of pool")]
    WrongPoolKind,
    /// Nothing is to be changed that way.
    #[error("invalid argument for this pool operation")]
    BadArgument,
    /// Somebody uses it.
    #[error("dataset is busy")]
    DatasetBusy,
    /// Somebody uses it.
    #[error("pool is busy")]
    PoolBusy,
    /// Somebody uses what is mounted.
    #[error("pool or dataset is busy")]
    MountBusy,
    /// It is mounted.
    #[error("filesystem already mounted")]
    Mounted,
    /// It is not mounted.
    #[error("not currently mounted")]
    NotMounted,
    /// Nothing of ours is mounted there.
    #[error("not a mountpoint")]
    NoMountpoint,
    /// It has no place.
    #[error("no mountpoint set")]
    NoPlace,
    /// Its place is another program's matter.
    #[error("legacy mountpoint\nuse mount(8) to mount this filesystem")]
    LegacyPlace,
    /// It is not to be mounted.
    #[error("'canmount' property is set to 'off'")]
    MountOff,
    /// Another process writes to the pool.
    #[error("pool is in use by another process, which holds its devices")]
    Held,
    /// The pool is open for reading only.
    #[error("pool is read-only: {0}")]
    ReadOnly(String),
    /// The data set can only be read.
    #[error("dataset is read-only: {0}")]
    DatasetReadOnly(String),
    /// No room.
    #[error("out of space")]
    NoSpace,
    /// A quota below what is there already.
    #[error("size is less than current used or reserved space")]
    BelowUsed,
    /// A reservation of more than there is.
    #[error("size is greater than available space")]
    AboveAvailable,
    /// The root of a pool.
    #[error(
        "operation does not apply to pools\n\
         use 'zfs destroy -r {0}' to destroy all datasets in the pool\n\
         use 'zpool destroy {0}' to destroy the pool itself"
    )]
    IsPool(String),
    /// What would be destroyed as well.
    #[error("{what} has children\nuse '-r' to destroy the following datasets:\n{}", list.join("\n"))]
    Children {
        /// What kind of data set it is.
        what: &'static str,
        /// What is below it, the order in which it would go.
        list: Vec<String>,
    },
    /// What would be destroyed as well.
    #[error(
        "{what} has dependent clones\nuse '-R' to destroy the following datasets:\n{}",
        list.join("\n")
    )]
    Clones {
        /// What kind of data set it is.
        what: &'static str,
        /// The clones.
        list: Vec<String>,
    },
    /// Snapshots that a rollback would have to destroy.
    #[error(
        "more recent snapshots or bookmarks exist\n\
         use '-r' to force deletion of the following snapshots and bookmarks:\n{}",
        .0.join("\n")
    )]
    NewerSnapshots(Vec<String>),
    /// Clones that a rollback would have to destroy.
    #[error(
        "clones of previous snapshots exist\n\
         use '-R' to force deletion of the following clones and dependents:\n{}",
        .0.join("\n")
    )]
    NewerClones(Vec<String>),
    /// A clone in another pool.
    #[error("source and target pools differ")]
    PoolsDiffer,
    /// Names of several pools.
    #[error("snapshots must be in the same pool")]
    OtherPool,
    /// A data set that would move to another pool.
    #[error("datasets must be within same pool")]
    CrossesPools,
    /// A snapshot that would move to another data set.
    #[error("snapshots must be part of same dataset")]
    OtherFilesystem,
    /// A data set that would be below itself.
    #[error("New dataset name cannot be a descendant of current dataset name")]
    Descendant,
    /// A snapshot below has the new name.
    #[error("a child dataset already has a snapshot with the new name")]
    ChildSnapshotExists,
    /// It has no origin.
    #[error("not a cloned filesystem")]
    NoClone,
    /// A bookmark of that name is there.
    #[error("bookmark exists")]
    BookmarkExists,
    /// What a bookmark was to be made of is not there.
    #[error("no such pool or dataset")]
    NoBookmark,
    /// What a bookmark was to be made of is not in the past of its data set.
    #[error("source is not an ancestor of the new bookmark's dataset")]
    NoAncestor,
    /// No name of a bookmark.
    #[error("invalid argument")]
    NoBookmarkName,
    /// A promotion would bring two snapshots of one name together.
    #[error("conflicting snapshot '{snapshot}' from parent '{origin}'")]
    ConflictingSnapshot {
        /// The name that both have.
        snapshot: String,
        /// The clone's origin.
        origin: String,
    },
    /// A hold of that name is there.
    #[error("tag already exists on this dataset")]
    TagExists,
    /// No hold of that name.
    #[error("no such tag on this dataset")]
    NoTag,
    /// The name of a pool or data set.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name of a new pool.
    #[error("{0}\npool name may have been omitted")]
    NewPoolName(NameError),
    /// A property of a data set.
    #[error(transparent)]
    Prop(#[from] PropError),
    /// A property of a pool.
    #[error(transparent)]
    PoolProp(#[from] PoolPropError),
    /// A version that is there is newer.
    #[error("Can not downgrade; already at version {0}")]
    Downgrade(u64),
    /// A volume's size that its blocks do not divide.
    #[error("'{name}' must be a multiple of volume block size ({})", pool::props::nice_count(*block))]
    BlockMultiple {
        /// The property.
        name: &'static str,
        /// The size of a block, in bytes.
        block: u64,
    },
    /// A record size that the pool does not take.
    #[error("record size invalid")]
    RecordSize,
    /// A device is too small.
    #[error("one or more devices is less than the minimum size ({})", nice_bytes(*least))]
    TooSmall {
        /// The smallest size of a device, in bytes.
        least: u64,
    },
    /// A device is named twice.
    #[error(
        "one or more vdevs refer to the same device, or one of\n\
         the devices is part of an active md or lvm device"
    )]
    SameDevice,
    /// A device cannot be opened.
    #[error("one or more devices is currently unavailable")]
    Unavailable,
    /// Devices of a pool that is to be exported cannot be opened, and it is not forced.
    #[error(
        "one or more devices is currently unavailable\n\
         use '-f' to forget the pool without writing to its devices"
    )]
    ExportUnavailable,
    /// More than one pool of that name was found.
    #[error("more than one matching pool\nimport by numeric ID instead")]
    Ambiguous,
    /// Another system had the pool last.
    #[error(
        "pool was previously in use from another system.\n\
         Last accessed by {host} (hostid={hostid:x}) at {}\n\
         The pool can be imported, use 'zpool import -f' to import the pool.",
        date(*time)
    )]
    OtherSystem {
        /// The other system's name.
        host: String,
        /// The other system's number.
        hostid: u64,
        /// When, in seconds since 1970.
        time: u64,
    },
    /// The pool needs what is not there.
    #[error("unsupported version or feature\n{0}")]
    Unsupported(String),
    /// Devices or data are damaged beyond what redundancy covers.
    #[error("{0}")]
    Damaged(String),
    /// Reading or writing failed.
    #[error("I/O error: {0}")]
    Io(String),
    /// No file of that name.
    #[error("No such file or directory")]
    NoFile,
    /// A file of that name is there.
    #[error("File exists")]
    FileExists,
    /// A directory where a file belongs.
    #[error("Is a directory")]
    IsDirectory,
    /// A file where a directory belongs.
    #[error("Not a directory")]
    NotDirectory,
    /// A directory with something in it.
    #[error("Directory not empty")]
    NotEmpty,
    /// A quota is used up.
    #[error("Disk quota exceeded")]
    Quota,
    /// A file or directory of the host.
    #[error("{0}")]
    Host(String),
    /// The engine does not do this (yet).
    #[error("{0}")]
    NotDone(String),
}

/// A time of the universe, as `date -u` prints it: doors that know the user's zone format it anew.
fn date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds / 86400, seconds % 86400);
    // Years of 365 days and leap days, from March on, so that the leap day ends a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 2, 0) } else { (month - 10, 1) };
    let name = |list: &'static [&'static str], at: u64| list.get(at as usize).copied();
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {}",
        name(&DAYS, days % 7).unwrap_or_default(),
        name(&MONTHS, month).unwrap_or_default(),
        second / 3600,
        second / 60 % 60,
        second % 60,
        era * 400 + year + next
    )
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something could not be done to something.
    #[error("{doing}: {why}")]
    Cannot {
        /// What was to be done.
        doing: Doing,
        /// Why it was not.
        why: Why,
    },
    /// The words after a new pool's name are no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Devices that are in use, or a layout that is unsound.
    #[error(
        "invalid vdev specification\n{}\n{}",
        if *forced {
            "the following errors must be manually repaired:"
        } else {
            "use '-f' to override the following errors:"
        },
        list.join("\n")
    )]
    Vdevs {
        /// Force was used and does not help.
        forced: bool,
        /// What is wrong, one a line.
        list: Vec<String>,
    },
    /// Something with a device that is in no pool here: the whole message.
    #[error("{0}")]
    Said(String),
    /// Something that only a server can do, and why.
    #[error("{0}")]
    NoServer(&'static str),
    /// A snapshot list that names nothing.
    #[error("could not find any snapshots to destroy; check snapshot names.")]
    NoSnapshots,
    /// A path that no data set is mounted at.
    #[error("'{0}': not a ZFS filesystem")]
    NotMounted(String),
    /// The list of remembered pools cannot be read or written.
    #[error("cannot use the list of pools '{path}': {why}")]
    State {
        /// The list's path.
        path: String,
        /// Why not.
        why: String,
    },
    /// Something else, in whole sentences.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Something could not be done.
    #[must_use]
    pub fn cannot(doing: Doing, why: impl Into<Why>) -> Error {
        Error::Cannot { doing, why: why.into() }
    }

    /// A pool or data set could not be opened.
    #[must_use]
    pub fn open(name: impl Into<String>, why: impl Into<Why>) -> Error {
        Error::cannot(Doing::Open(name.into()), why)
    }

    /// The reason, where there is one.
    #[must_use]
    pub fn why(&self) -> Option<&Why> {
        match self {
            Error::Cannot { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// Result of a verb.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_writes_them() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (951_868_800, "Wed Mar  1 00:00:00 2000"),
            (1_714_521_617, "Wed May  1 00:00:17 2024"),
            (4_102_444_799, "Thu Dec 31 23:59:59 2099"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn errors_say_what_was_to_be_done_and_why_not() {
        let cannot = |doing, why: Why| Error::cannot(doing, why).to_string();
        let tank = || String::from("tank");
        for (doing, why, text) in [
            (Doing::Open(tank()), Why::NoPool, "cannot open 'tank': no such pool"),
            (
                Doing::Import(tank()),
                Why::NoPoolAvailable,
                "cannot import 'tank': no such pool available",
            ),
            (
                Doing::Set(tank()),
                Why::BelowUsed,
                "cannot set property for 'tank': size is less than current used or reserved space",
            ),
            (
                Doing::DestroySnapshot("t@s".into()),
                Why::DatasetBusy,
                "cannot destroy snapshot t@s: dataset is busy",
            ),
            (
                Doing::Import(tank()),
                Why::OtherSystem {
                    host: "thumper".into(),
                    hostid: 0x7468_756d,
                    time: 1_714_522_076,
                },
                "cannot import 'tank': pool was previously in use from another system.\n\
                 Last accessed by thumper (hostid=7468756d) at Wed May  1 00:07:56 2024\n\
                 The pool can be imported, use 'zpool import -f' to import the pool.",
            ),
            (
                Doing::Destroy("tank/a".into()),
                Why::Children {
                    what: "filesystem",
                    list: vec!["tank/a@s2".into(), "tank/a@s1".into()],
                },
                "cannot destroy 'tank/a': filesystem has children\n\
                 use '-r' to destroy the following datasets:\ntank/a@s2\ntank/a@s1",
            ),
            (
                Doing::Destroy(tank()),
                Why::IsPool(tank()),
                "cannot destroy 'tank': operation does not apply to pools\n\
                 use 'zfs destroy -r tank' to destroy all datasets in the pool\n\
                 use 'zpool destroy tank' to destroy the pool itself",
            ),
        ] {
            assert_eq!(cannot(doing, why), text);
        }
    }
}
