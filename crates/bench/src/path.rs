//! The same works through different doors: the engine itself, the client library, or a directory of the host (a
//! mount, or another file system).
//!
//! The one idea: what differs is only the door. A large file ends on stable storage; small ones where only the engine can
//! say so.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use client::Client;
use fs::Filesystem;
use rt::sync::Arc;
use serde_json::Value;
use wire::{Open, Subject};

use crate::clock::Clock;
use crate::data::Source;
use crate::options::Options;
use crate::{CHUNK, FILE, POOL};

/// Bytes of an append before each fsync.
const APPEND: usize = 4096;

/// A way to files, by their names.
trait Door: Sync + Send {
    fn open(&self, name: &str, how: How) -> Result<Box<dyn Opened>>;

    /// Makes a small file.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.open(name, How::Make)?.write(0, bytes)
    }

    /// Reads one; how many bytes it has.
    fn get(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        self.open(name, How::Read)?.read(0, buf)
    }

    /// Puts on disk what is not yet, if nobody else does who has the pool.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Make,
    Read,
}

/// An open file.
trait Opened: Sync + Send {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn write_stable(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write(at, bytes)?;
        self.sync()
    }
}

struct Library(Arc<Client>);

impl Door for Library {
    fn open(&self, name: &str, how: How) -> Result<Box<dyn Opened>> {
        let make = how == How::Make;
        let how = Open { write: make, create: make, truncate: make, ..Open::READ };
        Ok(Box::new(self.0.open(&Subject::ROOT, name.as_bytes(), how, 0o644)?))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (who, how) = (&Subject::ROOT, Open::default());
        Ok(self.0.put(who, name.as_bytes(), how, 0o644, bytes, false)?)
    }

    fn get(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        Ok(self.0.get(&Subject::ROOT, name.as_bytes(), buf)?.0)
    }
}

impl Opened for client::File {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(client::File::read(self, at, buf)?)
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(client::File::write(self, at, bytes)?)
    }
    fn sync(&self) -> Result<()> {
        Ok(client::File::sync(self)?)
    }
    fn write_stable(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(client::File::write_stable(self, at, bytes)?)
    }
}

struct Directory(PathBuf);

impl Door for Directory {
    fn open(&self, name: &str, how: How) -> Result<Box<dyn Opened>> {
        let path = self.0.join(name);
        let file = match how {
            How::Make => File::create(&path),
            How::Read => File::open(&path),
        };
        Ok(Box::new(file.with_context(|| path.display().to_string())?))
    }
}

impl Opened for File {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.read_at(buf, at)?)
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all_at(bytes, at)?)
    }
    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}

struct Engine(Arc<Filesystem>);

struct Object(Arc<Filesystem>, u64);

impl Door for Engine {
    fn open(&self, name: &str, how: How) -> Result<Box<dyn Opened>> {
        let (fs, name) = (&self.0, name.as_bytes());
        let number = match (fs.lookup(fs.root(), name)?, how) {
            (Some(entry), How::Read) => entry.object,
            (None, How::Make) => fs.create(fs.root(), name, &FILE)?,
            (Some(entry), How::Make) => {
                fs.truncate(entry.object, 0)?;
                entry.object
            }
            (None, How::Read) => bail!("no such file: {}", name.escape_ascii()),
        };
        Ok(Box::new(Object(fs.clone(), number)))
    }

    fn settle(&self) -> Result<()> {
        self.0.pool().sync()?;
        Ok(())
    }
}

impl Opened for Object {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.0.read(self.1, at, buf)?)
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write(self.1, at, bytes)?)
    }
    fn sync(&self) -> Result<()> {
        Ok(self.0.fsync(self.1)?)
    }
}

/// Does the work `--what` through the door `--door`.
pub(crate) fn run(options: &Options) -> Result<Value> {
    match options.door.as_str() {
        "engine" => {
            let pool = crate::open(options, true)?;
            crate::prepare(&pool, options)?;
            let fs = Arc::new(Filesystem::open(&pool, POOL)?);
            let line = work(options, &Engine(fs.clone()))?;
            drop(fs);
            pool.close()?;
            Ok(line)
        }
        "library" => {
            let reach = client::Options::new(&options.dir, options.tree.clone());
            work(options, &Library(Client::connect(reach)?))
        }
        "directory" => work(options, &Directory(options.dir.clone())),
        other => bail!("unknown door '{other}': engine, library or directory"),
    }
}

fn work(options: &Options, door: &dyn Door) -> Result<Value> {
    let source = Source::new(&options.data)?;
    let large = |object: usize| format!("object{object}");
    let small = |file: usize| format!("file{file}");
    let chunks = || (0..options.object_bytes).step_by(CHUNK);
    let size = |at: u64| (options.object_bytes - at).min(CHUNK as u64) as usize;
    // Runs of small files, as a client makes them.
    let runs = |work: &(dyn Fn(usize) -> Result<()> + Sync)| {
        crate::on_threads(options.threads, options.files.div_ceil(64), |run| {
            (run * 64..((run + 1) * 64).min(options.files)).try_for_each(work)
        })
    };
    let clock = Clock::start();
    let items = match options.what.as_str() {
        "write" => {
            crate::on_threads(options.threads, options.objects, |object| {
                let file = door.open(&large(object), How::Make)?;
                for at in chunks() {
                    file.write(at, source.bytes(object as u64, at, size(at)))?;
                }
                file.sync()
            })?;
            options.objects
        }
        "read" => {
            crate::on_threads(options.threads, options.objects, |object| {
                let (file, mut buf) = (door.open(&large(object), How::Read)?, vec![0; CHUNK]);
                for at in chunks() {
                    let buf = &mut buf[..size(at)];
                    ensure!(file.read(at, buf)? == buf.len(), "object {object} ends at {at}");
                    let right = || *buf == *source.bytes(object as u64, at, buf.len());
                    ensure!(!options.verify || right(), "object {object} at {at}: wrong bytes");
                }
                Ok(())
            })?;
            options.objects
        }
        "small" => {
            runs(&|file| {
                let data = source.bytes(file as u64, 0, options.file_bytes as usize);
                door.put(&small(file), data)
            })?;
            options.files
        }
        "readsmall" => {
            runs(&|file| {
                let mut buf = vec![0; options.file_bytes as usize];
                let got = door.get(&small(file), &mut buf)?;
                let right = || buf == source.bytes(file as u64, 0, buf.len());
                ensure!(got == buf.len() && (!options.verify || right()), "file {file}: wrong");
                Ok(())
            })?;
            options.files
        }
        "fsync" => {
            let file = door.open("log", How::Make)?;
            for turn in 0..options.count as u64 {
                let at = turn * APPEND as u64;
                file.write_stable(at, source.bytes(0, at, APPEND))?;
            }
            options.count
        }
        other => bail!("unknown work '{other}': write, read, small, readsmall or fsync"),
    };
    if matches!(options.what.as_str(), "write" | "small") {
        door.settle()?;
    }
    let timed = clock.stop();
    let bytes = match options.what.as_str() {
        "write" | "read" => items as u64 * options.object_bytes,
        "fsync" => (items * APPEND) as u64,
        _ => items as u64 * options.file_bytes,
    };
    let mut line = crate::line(&options.what, options, &timed, bytes, items as u64);
    line["door"] = options.door.clone().into();
    Ok(line)
}

/// How fast one thread copies memory that is not in a cache, in 1 MiB pieces as the works above use.
pub(crate) fn copy(options: &Options) -> Value {
    let (from, mut to) = (vec![1; 64 * CHUNK], vec![0; 64 * CHUNK]);
    to.copy_from_slice(&from);
    let rounds = 16;
    let clock = Clock::start();
    for _ in 0..rounds {
        for (to, from) in to.chunks_mut(CHUNK).zip(from.chunks(CHUNK)) {
            to.copy_from_slice(from);
        }
        std::hint::black_box(&mut to);
    }
    let timed = clock.stop();
    crate::line("copy", options, &timed, (rounds * from.len()) as u64, rounds as u64)
}
