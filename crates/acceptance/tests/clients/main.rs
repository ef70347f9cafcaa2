//! Files of a served pool through the client library: right, for whom they are, and there when the server comes back.

#![allow(clippy::unwrap_used)]

mod files;
mod leases;
mod made_up;
mod many;
mod people;
mod restarts;
mod wholes;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use acceptance::{Server, assert_verified, thumper};
use client::{Client, Open, Options, Subject};
use rt::sync::Arc;
use testkit::{Images, Ran, TempDir, fresh_images, temp_dir, tool};
use wire::{Answer, HEADER, Head, Hello};

const ROOT: Subject = Subject::ROOT;
const READ: Open = Open::READ;
const CAPABILITIES: &[u8] = b"security.capability";
const NEW: Open = Open { write: true, create: true, new: true, ..READ };

/// A served pool: `tank`, and `tank/a`, `tank/b` for two organisations.
struct Site {
    images: Images,
    aside: TempDir,
    server: Option<Server>,
}

impl Site {
    fn new() -> Site {
        Site::with(&[])
    }

    /// With these words for the server.
    fn with(words: &[&str]) -> Site {
        let (images, aside) = (fresh_images(5, 128 << 20), temp_dir());
        let server = Some(Server::start_with(&aside.path().join("pools"), words));
        let site = Site { images, aside, server };
        let disks = site.images.disks();
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        site.run(&words);
        site.run(&["zfs", "create", "tank/a"]);
        site.run(&["zfs", "create", "tank/b"]);
        site
    }

    fn state(&self) -> PathBuf {
        self.aside.path().join("pools")
    }

    fn run(&self, words: &[&str]) {
        drop(Ran::of(thumper(&self.state()).args(words)).expect_ok());
    }

    fn client(&self, tree: &str) -> Arc<Client> {
        Client::connect(self.options(tree)).unwrap()
    }

    fn options(&self, tree: &str) -> Options {
        Options::new(self.server.as_ref().unwrap().socket(), tree)
    }

    fn restart(&mut self) {
        self.server.take().unwrap().kill();
        self.server = Some(Server::start(&self.state()));
    }

    fn restart_in_order(&mut self) {
        drop(self.server.take().unwrap().stop());
        self.server = Some(Server::start(&self.state()));
    }

    fn end(mut self) {
        drop(self.server.take().unwrap().stop());
        tool::zdb_content(self.images.path(), "tank");
        assert_verified(self.images.path(), "tank");
    }
}

fn who(uid: u32) -> Subject {
    Subject { uid, gid: uid, groups: Vec::new() }
}

fn errno<T>(result: client::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno)
}

/// Names and sizes of a directory.
fn names(client: &Client, path: &[u8]) -> BTreeMap<String, u64> {
    let (mut out, mut from) = (BTreeMap::new(), 0);
    loop {
        let (entries, next) = client.list(&ROOT, path, from).unwrap();
        for entry in entries {
            let name = String::from_utf8(entry.name).unwrap();
            assert!(out.insert(name, entry.stat.size).is_none());
        }
        match next {
            Some(next) => from = next,
            None => return out,
        }
    }
}

/// A connection that greets, as one of `session` or of a new one.
fn greeting(socket: &Path, session: Option<[u8; 16]>) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let hello = Hello { tree: "tank".into(), session, beside: false };
    stream.write_all(&wire::greeting(&hello).unwrap()).unwrap();
    stream
}

/// The same, and what it was told.
fn greeted(socket: &Path, session: Option<[u8; 16]>) -> (UnixStream, Answer) {
    let mut stream = greeting(socket, session);
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).unwrap();
    let mut part = vec![0; Head::read(head).unwrap().part];
    stream.read_exact(&mut part).unwrap();
    (stream, wire::decode(&part).unwrap())
}
