//! The layout of a pool that is to be made, from words as `zpool create` takes them.
//!
//! `raidz2 a b c d raidz2 e f g h spare i log mirror j k`: a word opens a group, what follows are
//! its devices. Words without a group before them are groups of one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What a group of devices does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// One device alone.
    Single,
    /// Copies.
    Mirror,
    /// RAID-Z with 1 to 3 parity devices.
    Raidz(u8),
}

impl GroupKind {
    /// The kind's name as the format has it, without parity.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Single => "disk",
            GroupKind::Mirror => "mirror",
            GroupKind::Raidz(_) => "raidz",
        }
    }
}

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Data.
    Normal,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// A top-level vdev to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What it does.
    pub kind: GroupKind,
    /// What it is for.
    pub class: Class,
    /// Its devices.
    pub devices: Vec<PathBuf>,
}

/// All devices of a pool to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Top-level vdevs, in the order given.
    pub groups: Vec<Group>,
    /// Hot spares.
    pub spares: Vec<PathBuf>,
    /// Cache devices.
    pub cache: Vec<PathBuf>,
}

/// Words that are no layout. The text is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A section is there twice.
    #[error("invalid vdev specification: '{0}' can be specified only once")]
    Twice(&'static str),
    /// A group has too few devices.
    #[error("invalid vdev specification: {word} requires at least {least} devices")]
    TooFew {
        /// The group's word as given.
        word: String,
        /// How many it needs.
        least: usize,
    },
    /// A group has too many devices.
    #[error("invalid vdev specification: {word} supports no more than {most} devices")]
    TooMany {
        /// The group's word as given.
        word: String,
        /// How many it takes.
        most: usize,
    },
    /// No RAID-Z for the log.
    #[error("invalid vdev specification: unsupported 'log' device: {0}")]
    LogKind(&'static str),
    /// The word `log` and nothing for it.
    #[error("invalid vdev specification: log requires at least 1 device")]
    NoLog,
    /// Nothing at all.
    #[error("invalid vdev specification: at least one toplevel vdev must be specified")]
    Nothing,
    /// A distributed spare layout.
    #[error("invalid vdev specification: dRAID vdevs can be read, but not made")]
    Draid,
    /// A device that cannot be used.
    #[error(transparent)]
    Device(#[from] LeafError),
}

/// A device that cannot be used. The text is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// A short name that no directory of devices has.
    #[error(
        "cannot open '{0}': no such device in /dev\n\
         must be a full path or shorthand device name"
    )]
    NoSuchDevice(String),
    /// A path that leads nowhere.
    #[error("cannot resolve path '{0}'")]
    NoSuchPath(String),
    /// A directory, a pipe.
    #[error("cannot use '{0}': must be a block device or regular file")]
    WrongKind(String),
    /// The system refuses.
    #[error("cannot open '{path}': {why}")]
    Open {
        /// The path.
        path: String,
        /// The system's words.
        why: String,
    },
}

/// What a word is.
enum Word {
    Group(GroupKind),
    Spare,
    Cache,
    Class(Class),
    Draid,
    Device,
}

/// Devices in a RAID-Z group, at most.
const RAIDZ_MAX: usize = 255;

fn word_of(text: &[u8]) -> Word {
    match text {
        b"mirror" => Word::Group(GroupKind::Mirror),
        b"raidz" | b"raidz1" => Word::Group(GroupKind::Raidz(1)),
        b"raidz2" => Word::Group(GroupKind::Raidz(2)),
        b"raidz3" => Word::Group(GroupKind::Raidz(3)),
        b"spare" => Word::Spare,
        b"cache" => Word::Cache,
        b"log" => Word::Class(Class::Log),
        b"special" => Word::Class(Class::Special),
        b"dedup" => Word::Class(Class::Dedup),
        b"draid" | b"draid1" | b"draid2" | b"draid3" => Word::Draid,
        _ if [&b"draid:"[..], b"draid1:", b"draid2:", b"draid3:"]
            .iter()
            .any(|start| text.starts_with(start)) =>
        {
            Word::Draid
        }
        _ => Word::Device,
    }
}

impl Layout {
    /// Reads words. `resolve` turns a device's word into its path, or says why it cannot be used;
    /// it is asked in the order of the words, so the first thing wrong is what is reported.
    ///
    /// # Errors
    /// [`LayoutError`] is the whole message.
    pub fn parse(
        words: &[OsString],
        mut resolve: impl FnMut(&std::ffi::OsStr) -> Result<PathBuf, LeafError>,
    ) -> Result<Layout, LayoutError> {
        let mut layout = Layout::default();
        let mut class = Class::Normal;
        let (mut spare_seen, mut cache_seen, mut log_seen) = (false, false, false);
        let mut rest = words;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            let word = word_of(first.as_bytes());
            let shown = String::from_utf8_lossy(first.as_bytes()).into_owned();
            let (least, most) = match word {
                Word::Device => {
                    let devices = vec![resolve(first)?];
                    layout.groups.push(Group { kind: GroupKind::Single, class, devices });
                    continue;
                }
                Word::Draid => return Err(LayoutError::Draid),
                Word::Class(Class::Log) if log_seen => return Err(LayoutError::Twice("log")),
                Word::Class(new) => {
                    log_seen |= new == Class::Log;
                    class = new;
                    continue;
                }
                Word::Spare if spare_seen => return Err(LayoutError::Twice("spare")),
                Word::Cache if cache_seen => return Err(LayoutError::Twice("cache")),
                Word::Spare | Word::Cache => (1, usize::MAX),
                Word::Group(GroupKind::Raidz(_)) if class == Class::Log => {
                    return Err(LayoutError::LogKind("raidz"));
                }
                Word::Group(GroupKind::Raidz(parity)) => (usize::from(parity) + 1, RAIDZ_MAX),
                Word::Group(_) => (2, usize::MAX),
            };
            let is_device = |w: &&OsString| matches!(word_of(w.as_bytes()), Word::Device);
            let count = rest.iter().take_while(is_device).count();
            let (members, after) = rest.split_at(count);
            let devices = members.iter().map(|m| resolve(m)).collect::<Result<Vec<_>, _>>()?;
            if devices.len() < least {
                return Err(LayoutError::TooFew { word: shown, least });
            }
            if devices.len() > most {
                return Err(LayoutError::TooMany { word: shown, most });
            }
            rest = after;
            match word {
                Word::Spare => {
                    (spare_seen, class) = (true, Class::Normal);
                    layout.spares = devices;
                }
                Word::Cache => {
                    (cache_seen, class) = (true, Class::Normal);
                    layout.cache = devices;
                }
                Word::Group(kind) => layout.groups.push(Group { kind, class, devices }),
                Word::Class(_) | Word::Draid | Word::Device => {}
            }
        }
        if layout.groups.is_empty() && layout.spares.is_empty() && layout.cache.is_empty() {
            return Err(LayoutError::Nothing);
        }
        if log_seen && !layout.groups.iter().any(|group| group.class == Class::Log) {
            return Err(LayoutError::NoLog);
        }
        Ok(layout)
    }

    /// Every device, data first, then spares and cache.
    pub fn devices(&self) -> impl Iterator<Item = &PathBuf> {
        let data = self.groups.iter().flat_map(|group| &group.devices);
        data.chain(&self.spares).chain(&self.cache)
    }
}

/// What a device is, as far as a layout's soundness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// It is a regular file.
    pub is_file: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// Sizes that differ by less, in bytes, count as equal.
const SIZE_FUZZ: u64 = 16 << 20;

/// What is unsound about a layout, or `None`: each text is the whole message. Making the pool
/// anyway takes force.
#[must_use]
pub fn unsound(layout: &Layout, facts: impl FnMut(&PathBuf) -> Facts) -> Option<String> {
    if let Err(text) = replication(&grouped(layout, facts)) {
        return Some(text);
    }
    if !layout.groups.iter().any(|group| group.class == Class::Normal) {
        return Some("at least one general top-level vdev must be specified".into());
    }
    None
}

/// What is unsound about what a pool is to get besides the groups that it has, its log left out.
#[must_use]
pub fn unsound_beside(
    pool: &[(GroupKind, Vec<Facts>)],
    layout: &Layout,
    facts: impl FnMut(&PathBuf) -> Facts,
) -> Option<String> {
    // A pool that is not sound itself asks nothing of what it gets.
    let pool = replication(pool).ok()?;
    match (pool, replication(&grouped(layout, facts))) {
        (_, Err(text)) => Some(text),
        (Some(pool), Ok(Some(new))) => {
            mismatch_beside(pool, new).map(|text| format!("mismatched replication level: {text}"))
        }
        (_, Ok(_)) => None,
    }
}

fn grouped(
    layout: &Layout,
    mut facts: impl FnMut(&PathBuf) -> Facts,
) -> Vec<(GroupKind, Vec<Facts>)> {
    let groups = layout.groups.iter().filter(|group| group.class != Class::Log);
    groups.map(|group| (group.kind, group.devices.iter().map(&mut facts).collect())).collect()
}

/// What all the groups are like, if there are any and they are alike; else what is wrong.
fn replication(groups: &[(GroupKind, Vec<Facts>)]) -> Result<Option<Replication>, String> {
    let mut last: Option<Replication> = None;
    for (kind, known) in groups {
        let any_file = known.iter().any(|f| f.is_file);
        let name = match kind {
            GroupKind::Single if any_file => "file",
            kind => kind.name(),
        };
        if *kind != GroupKind::Single {
            if any_file && !known.iter().all(|f| f.is_file) {
                return Err(format!(
                    "mismatched replication level: {name} contains both files and devices"
                ));
            }
            let least = known.iter().map(|f| f.size).min().unwrap_or(0);
            let most = known.iter().map(|f| f.size).max().unwrap_or(0);
            if most - least > SIZE_FUZZ {
                return Err(format!("{name} contains devices of different sizes"));
            }
        }
        let this = (*kind, name, known.len());
        if let Some(text) = last.and_then(|last| mismatch(last, this)) {
            return Err(format!("mismatched replication level: {text}"));
        }
        last = Some(this);
    }
    Ok(last)
}

type Replication = (GroupKind, &'static str, usize);

/// In what a new group differs from those of the pool.
fn mismatch_beside(pool: Replication, new: Replication) -> Option<String> {
    use GroupKind::{Mirror, Raidz};
    match (pool, new) {
        ((Raidz(p), a, _), (Mirror, b, n)) | ((Mirror, b, n), (Raidz(p), a, _)) => {
            let other = n - 1;
            (usize::from(p) != other).then(|| {
                format!(
                    "pool and new vdev with different redundancy, {a} and {b} vdevs, \
                     {p} vs. {other} ({n}-way)"
                )
            })
        }
        ((_, a, _), (_, b, _)) if a != b => Some(format!("pool uses {a} and new vdev is {b}")),
        ((Raidz(p), ..), (Raidz(q), ..)) if p != q => {
            Some(format!("pool uses {p} device parity and new vdev uses {q}"))
        }
        ((_, a, n), (_, b, m)) => {
            (n != m).then(|| format!("pool uses {n}-way {a} and new vdev uses {m}-way {b}"))
        }
    }
}

fn mismatch(last: Replication, this: Replication) -> Option<String> {
    use GroupKind::{Mirror, Raidz};
    match (last, this) {
        ((Raidz(p), a, _), (Raidz(q), b, _)) => (p != q).then(|| {
            format!("{a} and {b} vdevs with different redundancy, {p} vs. {q} are present")
        }),
        ((Mirror, _, n), (Mirror, b, m)) => {
            (n != m).then(|| format!("both {n}-way and {m}-way {b} vdevs are present"))
        }
        ((Raidz(p), a, _), (Mirror, b, n)) | ((Mirror, b, n), (Raidz(p), a, _)) => {
            let other = n - 1;
            (usize::from(p) != other).then(|| {
                format!(
                    "{a} and {b} vdevs with different redundancy, \
                     {p} vs. {other} ({n}-way) are present"
                )
            })
        }
        ((_, a, _), (_, b, _)) => (a != b).then(|| format!("both {a} and {b} vdevs are present")),
    }
}

#[cfg(test)]
mod tests;
