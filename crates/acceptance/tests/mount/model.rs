//! Random operations of POSIX, done in a mounted file system and in a tmpfs: what each says, and what is there
//! afterwards, must be the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use acceptance::Stage;
use rustix::fs::{
    self as sys, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags,
    RenameFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use testkit::random::Rng;
use testkit::{Compare, TempDir, assert_same, host, rounds, tool};

use crate::served::{Served, judged, serve, stage, wanted};

/// The longest file, in bytes.
const SIZE_MAX: u64 = 400_000;
/// Files that are open at once.
const OPEN_MAX: usize = 8;

/// Writes through mappings: a program, since Rust's rules do not let a test do so.
const MAPPER: &str = r"
import mmap, os, sys
for line in sys.stdin:
    path, at, size, byte = line.rstrip('\n').rsplit(' ', 3)
    at, size = int(at), int(size)
    try:
        with open(path, 'r+b') as f:
            length = os.fstat(f.fileno()).st_size
            if length > at:
                end = min(at + size, length)
                with mmap.mmap(f.fileno(), length) as m:
                    m[at:end] = bytes([int(byte)]) * (end - at)
        print(0, flush=True)
    except OSError as e:
        print(e.errno, flush=True)
";

struct Mapper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Mapper {
    fn new() -> Mapper {
        let mut child = Command::new(tool::program("python3", "python3"))
            .args(["-c", MAPPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Mapper { child, input, output: BufReader::new(output) }
    }

    fn write(&mut self, path: &Path, at: u64, size: u64, byte: u8) -> i32 {
        writeln!(self.input, "{} {at} {size} {byte}", path.display()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an operation came to: the same on both sides, or the test has failed.
type Said = std::result::Result<String, Errno>;

fn said<T: std::fmt::Debug>(result: Result<T>) -> Said {
    // A device of no driver in a file system that allows none says so with another number.
    let same = |e| if e == Errno::ACCESS { Errno::NXIO } else { e };
    result.map(|value| format!("{value:?}")).map_err(same)
}

/// What is compared of stat: all that does not depend on where the file is.
fn looks(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = if kind == FileType::Directory { 0 } else { stat.st_size };
    format!(
        "{kind:?} {:o} links {} owner {}:{} size {size} rdev {:x}",
        stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_rdev
    )
}

fn times(stat: &Stat) -> String {
    format!("{}.{} {}.{}", stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec)
}

fn stat(path: &Path) -> Result<Stat> {
    sys::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

fn read_at(file: &File, at: u64, size: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; size];
    let mut done = 0;
    while done < size {
        match rustix::io::pread(file, &mut buf[done..], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    buf.truncate(done);
    Ok(buf)
}

fn write_at(file: &File, at: u64, data: &[u8]) -> Result<usize> {
    rustix::io::pwrite(file, data, at)
}

fn open(path: &Path, flags: OFlags, mode: u32) -> Result<File> {
    // Nobody is at the other end of a pipe here.
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    sys::open(path, flags, Mode::from_raw_mode(mode)).map(File::from)
}

fn names(path: &Path) -> Result<BTreeSet<Vec<u8>>> {
    let dir = sys::Dir::read_from(open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?)?;
    let mut names = BTreeSet::new();
    for entry in dir {
        let entry = entry?;
        let new = names.insert(entry.file_name().to_bytes().to_vec());
        assert!(new, "{}: {entry:?} twice", path.display());
    }
    Ok(names)
}

fn xattrs(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut list = vec![0u8; 65_536];
    let count = sys::llistxattr(path, &mut list[..])?;
    let names = list[..count].split(|b| *b == 0).filter(|name| !name.is_empty());
    let mut found = BTreeMap::new();
    for name in names {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = vec![0u8; 65_536];
        let size = sys::lgetxattr(path, name.as_str(), &mut value[..])?;
        found.insert(name, value[..size].to_vec());
    }
    Ok(found)
}

/// What data there is according to SEEK_DATA and SEEK_HOLE: nothing but zeros may be outside.
fn assert_holes_are_zeros(path: &Path) {
    let Ok(file) = open(path, OFlags::RDONLY, 0) else { return };
    let size = sys::fstat(&file).unwrap().st_size as u64;
    let mut at = 0;
    while at < size {
        let data = match sys::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            Err(e) => panic!("{}: SEEK_DATA {at}: {e}", path.display()),
        };
        assert!(data >= at, "{}: {data} for {at}", path.display());
        let hole = read_at(&file, at, (data - at) as usize).unwrap();
        assert!(hole.iter().all(|b| *b == 0), "{}: data in {at}..{data}", path.display());
        if data == size {
            return;
        }
        at = sys::seek(&file, SeekFrom::Hole(data)).unwrap();
        assert!(at > data && at <= size, "{}: hole {at} after {data}", path.display());
    }
}

struct Both {
    /// The mount, then the model.
    tops: [PathBuf; 2],
    open: Vec<([File; 2], OFlags)>,
    rng: Rng,
    mapper: Mapper,
    /// Names that stood for something not long ago.
    known: Vec<String>,
    seen: BTreeMap<&'static str, (u64, u64)>,
}

impl Both {
    fn new(mount: &Path, model: &Path, seed: u64) -> Both {
        Both {
            tops: [mount.to_path_buf(), model.to_path_buf()],
            open: Vec::new(),
            rng: Rng::new(seed),
            mapper: Mapper::new(),
            known: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Does the same on both sides; what they say must agree. True if it was done.
    fn both(&mut self, what: &'static str, told: &str, each: impl Fn(&Path) -> Said) -> bool {
        let [ours, theirs] = &self.tops;
        let (ours, theirs) = (each(ours), each(theirs));
        assert_eq!(ours, theirs, "{what} {told}");
        let seen = self.seen.entry(what).or_default();
        match ours {
            Ok(_) => seen.0 += 1,
            Err(_) => seen.1 += 1,
        }
        ours.is_ok()
    }

    /// A name of few, so that they meet; three levels deep at most.
    fn path(&mut self) -> String {
        if !self.known.is_empty() && !self.rng.one_in(3) {
            return self.rng.pick(&self.known).clone();
        }
        let mut path = String::new();
        for _ in 0..self.rng.below(3) {
            path += &format!("d{}/", self.rng.below(4));
        }
        path + &self.name()
    }

    fn name(&mut self) -> String {
        match self.rng.below(40) {
            0 => format!("d{}", self.rng.below(4)),
            1 => "x".repeat(255),
            2 => "y".repeat(256),
            3 => "n\u{e4}me with spaces\n\u{1f4be}".into(),
            _ => format!("f{}", self.rng.below(12)),
        }
    }

    fn dir(&mut self) -> String {
        let mut path = String::from(".");
        for _ in 0..self.rng.below(3) {
            path += &format!("/d{}", self.rng.below(4));
        }
        path
    }

    fn data(&mut self) -> Vec<u8> {
        let sizes = [1, 100, 4096, 5000, 131_072, 140_000];
        let most = *self.rng.pick(&sizes);
        let mut data = vec![0; 1 + self.rng.index(most)];
        if !self.rng.one_in(6) {
            self.rng.fill(&mut data);
        }
        data
    }

    fn mode(&mut self) -> u32 {
        *self.rng.pick(&[0o644, 0o600, 0o755, 0o777, 0o4755, 0o2711, 0o000, 0o1777, 0o666])
    }

    fn step(&mut self) {
        match self.rng.below(36) {
            0..=3 => self.create(),
            4..=6 => self.write_path(),
            7..=9 => self.write_open(),
            10 | 11 => self.append(),
            12 | 13 => self.truncate(),
            14 => self.close(),
            15..=17 => self.read(),
            18 | 19 => self.rename(),
            20 => self.link(),
            21..=23 => self.unlink(),
            24 => self.special(),
            25 | 26 => self.attributes(),
            27 | 28 => self.extended(),
            29 | 30 => self.mkdir(),
            31 => self.rmdir(),
            32 => self.listing(),
            33 => self.punch(),
            34 => self.map(),
            _ => self.others(),
        }
    }

    fn create(&mut self) {
        let (path, mode) = (self.path(), self.mode());
        let exclusive = self.rng.one_in(2);
        let flags = OFlags::CREATE
            | OFlags::RDWR
            | if exclusive { OFlags::EXCL } else { OFlags::empty() }
            | if self.rng.one_in(4) { OFlags::TRUNC } else { OFlags::empty() }
            | if self.rng.one_in(6) { OFlags::APPEND } else { OFlags::empty() }
            | if self.rng.one_in(60) { OFlags::SYNC } else { OFlags::empty() };
        let told = format!("{path} {flags:?} {mode:o}");
        let made =
            self.both("open", &told, |top| said(open(&top.join(&path), flags, mode).map(drop)));
        if made && self.open.len() < OPEN_MAX {
            let again = flags & !(OFlags::EXCL | OFlags::TRUNC | OFlags::CREATE);
            let files = [0, 1].map(|side| open(&self.tops[side].join(&path), again, 0).unwrap());
            self.open.push((files, again));
        }
        self.check(&path);
    }

    fn write_path(&mut self) {
        let (path, at, data) = (self.path(), self.rng.below(SIZE_MAX / 2), self.data());
        let told = format!("{path} at {at}, {}", data.len());
        self.both("write", &told, |top| {
            let file = open(&top.join(&path), OFlags::WRONLY, 0);
            said(file.and_then(|file| write_at(&file, at, &data)))
        });
        self.check(&path);
    }

    fn write_open(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (at, data) = (self.rng.below(SIZE_MAX / 2), self.data());
        let index = self.rng.index(self.open.len());
        let sync = self.rng.one_in(40);
        let ([ours, theirs], flags) = &self.open[index];
        let told = format!("handle {index} {flags:?} at {at}, {}", data.len());
        let write = |file: &File| {
            let done = write_at(file, at, &data)?;
            if sync {
                sys::fsync(file)?;
            }
            let stat = sys::fstat(file)?;
            Ok::<_, Errno>((done, looks(&stat)))
        };
        assert_eq!(write(ours), write(theirs), "{told}");
        let whole = |file: &File| read_at(file, 0, SIZE_MAX as usize * 2);
        assert!(whole(ours) == whole(theirs), "{told}: contents differ");
        self.seen.entry("write to what is open").or_default().0 += 1;
    }

    fn append(&mut self) {
        let (path, data) = (self.path(), self.data());
        if stat(&self.tops[1].join(&path)).is_ok_and(|s| s.st_size as u64 > SIZE_MAX) {
            return;
        }
        self.both("append", &path, |top| {
            let file = open(&top.join(&path), OFlags::WRONLY | OFlags::APPEND, 0);
            said(file.and_then(|file| rustix::io::write(&file, &data)))
        });
        self.check(&path);
    }

    fn truncate(&mut self) {
        let (path, size) = (self.path(), self.rng.below(SIZE_MAX));
        self.both("truncate", &format!("{path} {size}"), |top| {
            let file = open(&top.join(&path), OFlags::WRONLY, 0);
            said(file.and_then(|file| sys::ftruncate(&file, size)))
        });
        self.check(&path);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let index = self.rng.index(self.open.len());
            drop(self.open.swap_remove(index));
        }
    }

    fn read(&mut self) {
        let (path, at) = (self.path(), self.rng.below(SIZE_MAX));
        let size = self.rng.index(100_000);
        self.both("read", &format!("{path} at {at}, {size}"), |top| {
            let file = open(&top.join(&path), OFlags::RDONLY, 0);
            said(file.and_then(|file| read_at(&file, at, size)))
        });
    }

    fn rename(&mut self) {
        let (from, to) = (self.path(), self.path());
        let flags = match self.rng.below(6) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        self.both("rename", &format!("{from} {to} {flags:?}"), |top| {
            said(sys::renameat_with(CWD, top.join(&from), CWD, top.join(&to), flags))
        });
        self.check(&from);
        self.check(&to);
    }

    fn link(&mut self) {
        let (from, to) = (self.path(), self.path());
        self.both("link", &format!("{from} {to}"), |top| {
            said(sys::linkat(CWD, top.join(&from), CWD, top.join(&to), AtFlags::empty()))
        });
        self.check(&from);
    }

    fn unlink(&mut self) {
        let path = self.path();
        self.both("unlink", &path, |top| {
            said(sys::unlinkat(CWD, top.join(&path), AtFlags::empty()))
        });
    }

    fn special(&mut self) {
        let path = self.path();
        match self.rng.below(3) {
            0 => {
                let target = self.path();
                self.both("symlink", &format!("{path} to {target}"), |top| {
                    said(sys::symlinkat(&target, CWD, top.join(&path)))
                });
                self.both("readlink", &path, |top| {
                    said(sys::readlinkat(CWD, top.join(&path), Vec::new()))
                });
            }
            1 => {
                self.both("fifo", &path, |top| {
                    let mode = Mode::from_raw_mode(0o640);
                    said(sys::mknodat(CWD, top.join(&path), FileType::Fifo, mode, 0))
                });
            }
            _ => {
                let (kind, dev) = (FileType::CharacterDevice, sys::makedev(10, 70_000));
                self.both("device", &path, |top| {
                    let mode = Mode::from_raw_mode(0o600);
                    said(sys::mknodat(CWD, top.join(&path), kind, mode, dev))
                });
            }
        }
        self.check(&path);
    }

    fn attributes(&mut self) {
        let path = self.path();
        match self.rng.below(3) {
            0 => {
                let mode = self.mode();
                self.both("chmod", &format!("{path} {mode:o}"), |top| {
                    let mode = Mode::from_raw_mode(mode);
                    said(sys::chmodat(CWD, top.join(&path), mode, AtFlags::empty()))
                });
            }
            1 => {
                let (uid, gid) = (self.rng.below(3) as u32 * 1000, self.rng.below(3) as u32 * 100);
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                self.both("chown", &format!("{path} {uid:?} {gid:?}"), |top| {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    said(sys::chownat(CWD, top.join(&path), uid, gid, flags))
                });
            }
            _ => {
                let mut time = || Timespec {
                    tv_sec: self.rng.below(4_000_000_000) as i64 - 1000,
                    tv_nsec: self.rng.below(1_000_000_000) as _,
                };
                let times_set = Timestamps { last_access: time(), last_modification: time() };
                self.both("utimens", &path, |top| {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let set = sys::utimensat(CWD, top.join(&path), &times_set, flags);
                    said(set.and_then(|()| stat(&top.join(&path)).map(|s| times(&s))))
                });
            }
        }
        self.check(&path);
    }

    fn extended(&mut self) {
        let path = self.path();
        let name = format!("{}.x{}", self.rng.pick(&["trusted", "user"]), self.rng.below(2));
        let mut value = vec![0; *self.rng.pick(&[0, 1, 50, 700, 5000])];
        self.rng.fill(&mut value);
        let flags = match self.rng.below(4) {
            0 => XattrFlags::CREATE,
            1 => XattrFlags::REPLACE,
            _ => XattrFlags::empty(),
        };
        match self.rng.below(3) {
            0 => self.both("removexattr", &format!("{path} {name}"), |top| {
                said(sys::lremovexattr(top.join(&path), name.as_str()))
            }),
            _ => self.both("setxattr", &format!("{path} {name} {flags:?}"), |top| {
                said(sys::lsetxattr(top.join(&path), name.as_str(), &value, flags))
            }),
        };
        self.both("listxattr", &path, |top| said(xattrs(&top.join(&path))));
    }

    fn mkdir(&mut self) {
        let (path, mode) = (self.dir(), self.mode());
        self.both("mkdir", &format!("{path} {mode:o}"), |top| {
            said(sys::mkdirat(CWD, top.join(&path), Mode::from_raw_mode(mode)))
        });
        self.check(&path);
    }

    fn rmdir(&mut self) {
        let path = self.dir();
        if path != "." {
            self.both("rmdir", &path, |top| {
                said(sys::unlinkat(CWD, top.join(&path), AtFlags::REMOVEDIR))
            });
        }
    }

    fn listing(&mut self) {
        let path = self.dir();
        self.both("readdir", &path, |top| said(names(&top.join(&path))));
        self.check(&path);
    }

    fn punch(&mut self) {
        let (path, at, size) =
            (self.path(), self.rng.below(SIZE_MAX), 1 + self.rng.below(SIZE_MAX / 2));
        let flags = match self.rng.one_in(4) {
            true => FallocateFlags::empty(),
            false => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        };
        let at = if flags.is_empty() { at / 2 } else { at };
        self.both("fallocate", &format!("{path} {at} {size} {flags:?}"), |top| {
            let file = open(&top.join(&path), OFlags::RDWR, 0);
            said(file.and_then(|file| sys::fallocate(&file, flags, at, size)))
        });
        self.check(&path);
        assert_holes_are_zeros(&self.tops[0].join(&path));
    }

    fn map(&mut self) {
        let (path, at) = (self.path(), self.rng.below(SIZE_MAX / 2));
        let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // A line is what the program reads.
        if path.contains('\n') || !sys::stat(self.tops[1].join(&path)).is_ok_and(is_file) {
            return;
        }
        let (size, byte) = (1 + self.rng.below(20_000), self.rng.word() as u8);
        let [ours, theirs] = self.tops.clone().map(|top| top.join(&path));
        let one = self.mapper.write(&ours, at, size, byte);
        assert_eq!(one, self.mapper.write(&theirs, at, size, byte), "map {path} {at} {size}");
        self.seen.entry("map").or_default().0 += 1;
        self.check(&path);
    }

    fn others(&mut self) {
        match self.rng.below(3) {
            0 => {
                let (from, to) = (self.path(), self.path());
                let size = self.rng.index(200_000);
                self.both("copy_file_range", &format!("{from} {to} {size}"), |top| {
                    let from = open(&top.join(&from), OFlags::RDONLY, 0);
                    let to = open(&top.join(&to), OFlags::WRONLY, 0);
                    said(from.and_then(|from| {
                        let copied =
                            to.and_then(|to| sys::copy_file_range(&from, None, &to, None, size));
                        // How much at once is each one's own affair.
                        copied.map(|count| count > 0)
                    }))
                });
                // What was copied in part on one side is made the same again.
                for path in [&from, &to] {
                    self.both("truncate", path, |top| {
                        let file = open(&top.join(path), OFlags::WRONLY | OFlags::TRUNC, 0);
                        said(file.map(drop))
                    });
                }
            }
            1 if self.open.len() >= 2 => {
                let lock = |side: usize| {
                    let files: Vec<&File> =
                        self.open.iter().map(|(files, _)| &files[side]).take(2).collect();
                    let how = FlockOperation::NonBlockingLockExclusive;
                    let locked = (sys::flock(files[0], how), sys::flock(files[1], how));
                    for file in files {
                        sys::flock(file, FlockOperation::Unlock).unwrap();
                    }
                    locked
                };
                assert_eq!(lock(0), lock(1), "flock");
                self.seen.entry("flock").or_default().0 += 1;
            }
            _ => {
                let dir = self.dir();
                self.both("fsync of a directory", &dir, |top| {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    said(open(&top.join(&dir), flags, 0).map(drop))
                });
            }
        }
    }

    /// What is at `path` looks the same on both sides.
    fn check(&mut self, path: &str) {
        let there =
            self.both("stat", path, |top| said(stat(&top.join(path)).map(|stat| looks(&stat))));
        self.known.retain(|known| known != path);
        if there && !path.starts_with('.') {
            self.known.push(path.to_string());
        }
        self.both("contents", path, |top| {
            let path = top.join(path);
            let kind = FileType::from_raw_mode(stat(&path)?.st_mode);
            match kind {
                FileType::RegularFile => {
                    let file = open(&path, OFlags::RDONLY, 0)?;
                    let bytes = read_at(&file, 0, SIZE_MAX as usize * 2)?;
                    Ok(format!("{} bytes, {:x}", bytes.len(), crc(&bytes)))
                }
                _ => Ok(format!("{kind:?}")),
            }
        });
    }

    /// What is open and what has names: all the same.
    fn check_all(&mut self) {
        for (index, ([ours, theirs], _)) in self.open.iter().enumerate() {
            let stats = [ours, theirs].map(|file| looks(&sys::fstat(file).unwrap()));
            assert_eq!(stats[0], stats[1], "handle {index}");
            let [ours, theirs] = [ours, theirs].map(|file| read_at(file, 0, SIZE_MAX as usize * 2));
            assert!(ours == theirs, "handle {index}");
        }
        let [ours, theirs] = [0, 1].map(|side| host::list(&self.tops[side]));
        assert_same(&theirs, &ours, ALIKE);
    }
}

/// A sum that tells contents from each other.
fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Times of the two sides differ, but for those that were set.
const ALIKE: Compare = Compare { mtime: false, ..Compare::COPY };

fn play(served: &Served, model: &TempDir, steps: u64, seed: u64) {
    // Modes are compared as they were asked for.
    let _ = rustix::process::umask(Mode::empty());
    let mut both = Both::new(&served.dir, model.path(), seed);
    for top in &both.tops {
        sys::chmod(top, Mode::from_raw_mode(0o755)).unwrap();
        for dir in ["d0", "d1", "d2", "d0/d0", "d0/d1"] {
            sys::mkdir(top.join(dir), Mode::from_raw_mode(0o755)).unwrap();
        }
    }
    for step in 0..steps {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            both.step();
            if step % 250 == 249 {
                both.check_all();
            }
        }));
        if let Err(panic) = played {
            drop(writeln!(std::io::stderr(), "seed {seed}, step {step}"));
            std::panic::resume_unwind(panic);
        }
    }
    both.check_all();
    drop(writeln!(std::io::stderr(), "done and refused: {:?}", both.seen));
    let never: Vec<_> = both.seen.iter().filter(|(_, (done, _))| *done == 0).collect();
    // In few steps not everything has its turn.
    assert!(never.is_empty() || steps < 700, "never done: {never:?}");
    both.open.clear();
}

/// So many random operations, in a mounted file system and a tmpfs of its own.
pub(crate) fn played(served: &Served, steps: u64, seed: u64) {
    play(served, &tempfile_in_memory(), steps, seed);
}

fn against_tmpfs(options: &str, steps: u64, seed: u64) {
    let stage: Stage = stage(2 << 30, options);
    let served = serve(&stage, "tank", "mnt");
    let model = tempfile_in_memory();
    play(&served, &model, steps, seed);
    served.unmount(&stage);
    judged(&stage);
    // Once more, by a new mount, and by our own reader.
    let served = serve(&stage, "-r tank", "mnt");
    assert_same(&host::list(model.path()), &host::list(&served.dir), ALIKE);
    served.unmount(&stage);
    let _got = stage.ok("get -r tank:/ back");
    // Attributes that only root sees are not copied out.
    let copied = Compare { xattrs: false, ..ALIKE };
    assert_same(&host::list(model.path()), &host::list(&stage.aside("back")), copied);
}

fn tempfile_in_memory() -> TempDir {
    let dir = TempDir::with_prefix_in("thumper-", "/dev/shm").unwrap();
    let kind = sys::statfs(dir.path()).unwrap().f_type;
    assert_eq!(kind, 0x0102_1994, "/dev/shm is no tmpfs, which these tests compare with");
    dir
}

#[test]
fn random_operations_are_as_in_tmpfs() {
    if wanted("random operations of POSIX against tmpfs") {
        against_tmpfs("-O xattr=sa", rounds(2200, 14_000), 1);
    }
}

#[test]
fn and_with_attributes_in_directories_and_small_records() {
    if wanted("random operations of POSIX against tmpfs") {
        against_tmpfs("-O recordsize=4k -O compression=lz4 -O atime=off", rounds(800, 6_000), 2);
    }
}

#[test]
fn names_are_bytes() {
    if !wanted("names of any bytes") {
        return;
    }
    let stage = stage(256 << 20, "");
    let served = serve(&stage, "tank", "mnt");
    let odd: Vec<Vec<u8>> = (1..=255u8).filter(|b| *b != b'/').map(|b| vec![b'n', b]).collect();
    for name in &odd {
        std::fs::write(served.dir.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let found = names(&served.dir).unwrap();
    let all: BTreeSet<Vec<u8>> = odd.into_iter().chain([b".".to_vec(), b"..".to_vec()]).collect();
    assert!(found == all);
    served.unmount(&stage);
    judged(&stage);
}
