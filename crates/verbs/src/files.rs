//! Requests and reports about files in data sets.

use std::path::PathBuf;

/// A file in a data set: `POOL[/FS][@SNAPSHOT]:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The data set or snapshot.
    pub dataset: String,
    /// The path from its root, as bytes; empty for the root.
    pub path: Vec<u8>,
}

impl Place {
    /// Reads a place. `None` without a colon, and for a path of the host (`/x:y`, `./x:y`).
    ///
    /// Data set names may have colons, too: the first colon that is followed by `/`, or else the
    /// first one, ends the name; [`Place::others`] are the other readings.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Place> {
        if text.first().is_none_or(|c| matches!(c, b'/' | b'.' | b':')) {
            return None;
        }
        let rooted = text.windows(2).position(|w| w == b":/");
        Place::split(text, rooted.or_else(|| text.iter().position(|c| *c == b':'))?)
    }

    fn split(text: &[u8], colon: usize) -> Option<Place> {
        let (dataset, path) = (text.get(..colon)?, text.get(colon + 1..)?);
        let dataset = String::from_utf8_lossy(dataset).into_owned();
        Some(Place { dataset, path: path.to_vec() })
    }

    /// What the place may mean instead, if there is no such data set: with more of it as the name.
    pub fn others(&self) -> impl Iterator<Item = Place> {
        let text = self.text();
        let start = self.dataset.len() + 1;
        let end = text.len();
        (start..end)
            .filter(|at| text.get(*at) == Some(&b':'))
            .filter_map(|at| Place::split(&text, at))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// The place as it was typed.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        [self.dataset.as_bytes(), b":", &self.path].concat()
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with its numbers.
    Char(u32, u32),
    /// A block device with its numbers.
    Block(u32, u32),
}

/// A time: seconds since 1970 (before: negative) and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Its name in its directory; for a file that was asked for, the path as asked.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its object number.
    pub object: u64,
    /// Permissions, with set-id and sticky bits.
    pub mode: u32,
    /// Names that it has.
    pub links: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space on disk, in bytes.
    pub allocated: u64,
    /// Times.
    pub atime: Time,
    /// Of the last change to its data.
    pub mtime: Time,
    /// Of the last change to itself.
    pub ctime: Time,
    /// What a link points to.
    pub target: Option<Vec<u8>>,
}

/// Lists files.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// The files and directories.
    pub places: Vec<Place>,
    /// What is below, too.
    pub recursive: bool,
    /// Directories themselves, not what is in them.
    pub directory: bool,
    /// As the intent log of the data set has it, as far as that is ahead of the pool; in memory only.
    pub replay: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// What a listing says, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A directory begins; its path as it is asked for.
    Directory(Vec<u8>),
    /// A file, or an entry of the directory that began last.
    File(Box<FileReport>),
}

/// Writes a file's bytes to a stream.
#[derive(Clone, Debug)]
pub struct Cat {
    /// The files, one after the other.
    pub places: Vec<Place>,
    /// As the intent log of the data set has it, as far as that is ahead of the pool; in memory only.
    pub replay: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// Copies files out of a pool.
#[derive(Clone, Debug)]
pub struct Get {
    /// What.
    pub places: Vec<Place>,
    /// Where to: a file or directory of the host. A file is replaced when the new one is whole; a device, a pipe or what
    /// a process has open takes the bytes.
    pub to: PathBuf,
    /// Directories with all that is in them.
    pub recursive: bool,
    /// What cannot be read is left out, and told ([`Copied::lost`]). Of a whole file system, what no directory leads
    /// to is copied, too, into a directory `lost+found` by its number.
    pub salvage: bool,
    /// As the intent log of the data set has it, as far as that is ahead of the pool; in memory only.
    pub replay: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// Copies files into a pool.
#[derive(Clone, Debug)]
pub struct Put {
    /// What: files and directories of the host. Without `recursive`, a device or a pipe, or a link to one, is what comes
    /// out of it.
    pub from: Vec<PathBuf>,
    /// Where to.
    pub to: Place,
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
    /// What goes into the pool's history, if anything.
    pub command: String,
}

/// Makes directories.
#[derive(Clone, Debug)]
pub struct Mkdir {
    /// Which.
    pub places: Vec<Place>,
    /// Parents that are missing are made too, and one that is there is fine.
    pub parents: bool,
    /// Permissions, if not those of 0777 without the umask's; missing parents get those, and let their owner in.
    pub mode: Option<u32>,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// Renames.
#[derive(Clone, Debug)]
pub struct Move {
    /// What.
    pub from: Vec<Place>,
    /// To what, or into which directory.
    pub to: Place,
    /// What is there is not replaced.
    pub no_clobber: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// Removes.
#[derive(Clone, Debug)]
pub struct Remove {
    /// What.
    pub places: Vec<Place>,
    /// Directories with all that is in them.
    pub recursive: bool,
    /// What is not there is fine.
    pub force: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, directories, links and others.
    pub entries: u64,
    /// Bytes of data, holes not counted.
    pub bytes: u64,
    /// What could not be read and is zeros now, in the order of the files.
    pub lost: Vec<Lost>,
}

/// A range of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file, as places are written.
    pub place: String,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place = |text: &str| {
            Place::parse(text.as_bytes()).map(|p| (p.dataset, String::from_utf8(p.path).unwrap()))
        };
        for (text, dataset, path) in [
            ("tank:", "tank", ""),
            ("tank:/", "tank", "/"),
            ("tank:a/b", "tank", "a/b"),
            ("tank:/a:b/c", "tank", "/a:b/c"),
            ("tank/fs@snap:/a", "tank/fs@snap", "/a"),
            ("tank/with space_and.dots:x:/a", "tank/with space_and.dots:x", "/a"),
            ("tank/with:x:a", "tank/with", "x:a"),
        ] {
            assert_eq!(place(text), Some((dataset.into(), path.into())), "{text}");
            assert_eq!(Place::parse(text.as_bytes()).unwrap().text(), text.as_bytes());
        }
        let others: Vec<_> = Place::parse(b"a:b:c:d").unwrap().others().collect();
        assert_eq!(others.len(), 2);
        assert_eq!((others[0].dataset.as_str(), &others[0].path[..]), ("a:b", &b"c:d"[..]));
        assert_eq!(place("tank"), None);
        assert_eq!((place("/tmp/x:y"), place("./x:y"), place(":x")), (None, None, None));
    }
}
