//! What the targets of the server share: a small pool that is served, and an honest client's side of a connection.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use daemon::fuzzing::Server;
use rt::sync::Arc;
use verbs::datasets;
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::pools;
use verbs::state::StateFile;
use verbs::{Engine, Held, Local};
use wire::{Answer, HEADER, Head, MAGIC, Reply, Request, Way};

/// Bytes of its memory, at most.
const MEMORY: u64 = 128 << 20;

/// A server of the pool `tank`, with file systems `tank/theirs` and `tank/ours`.
pub struct Site {
    /// The server.
    pub server: Arc<Server>,
    /// Its engine.
    pub engine: Local,
    /// Its pools.
    pub held: Arc<Held>,
}

impl Site {
    /// Makes one, whose image nobody else sees: it has no name any more.
    pub fn new() -> Site {
        let dir = std::env::temp_dir().join(format!("fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let image = dir.join("image");
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(256 << 20).expect("room");
        let held = Arc::new(Held::default());
        let engine = Local::new(StateFile::new(dir.join("pools"))).with_memory(MEMORY);
        let mut engine = engine.holding(held.clone());
        let disk = Group { kind: GroupKind::Single, class: Class::Normal, devices: vec![image] };
        let layout = Layout { groups: vec![disk], ..Layout::default() };
        let create = pools::Create { name: "tank".into(), layout, ..pools::Create::default() };
        engine.pool_create(&create).expect("a pool");
        for (name, quota) in [("tank/theirs", "64M"), ("tank/ours", "none")] {
            let properties = vec![("refquota".into(), quota.into())];
            let create = datasets::Create {
                name: name.into(),
                parents: false,
                volume: None,
                properties,
                dry_run: false,
                unmounted: true,
                places: Vec::new(),
                command: String::new(),
            };
            engine.dataset_create(&create).expect("a file system");
        }
        std::fs::remove_dir_all(&dir).expect("it goes");
        let run = |words: &[OsString],
                   _: &std::ffi::OsStr,
                   _: &mut dyn Engine,
                   out: &mut dyn Write,
                   _: &mut dyn Write| {
            // Something is printed, and a status depends on what came.
            drop(writeln!(out, "{} words", words.len()));
            words.iter().map(|word| word.len()).sum::<usize>() as u8
        };
        let server = Arc::new(Server::new(engine.clone(), held.clone(), Arc::new(run)));
        Site { server, engine, held }
    }

    /// A connection to the server, which answers it in a thread of its own.
    pub fn connect(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a connection");
        let server = self.server.clone();
        drop(rt::thread::spawn("connection", move || drop(server.converse(&theirs))));
        ours
    }

    /// What is written goes to the image, as the server's timer has it.
    pub fn sync(&self) {
        if let Some(pool) = self.held.pool("tank") {
            pool.sync().expect("the pool is whole");
        }
    }
}

/// A connection as an honest client has it.
pub struct Lane(UnixStream);

impl Lane {
    /// Greets.
    pub fn new(mut stream: UnixStream, tree: &str) -> Lane {
        let hello = wire::Hello { tree: tree.into(), session: None, beside: false };
        let frame = wire::encode(&hello, 0, Way::Behind).expect("short");
        let part = &frame[HEADER..];
        let length = (part.len() as u32).to_le_bytes();
        stream.write_all(&[&MAGIC[..], &length, part].concat()).expect("a server");
        let mut lane = Lane(stream);
        assert!(matches!(lane.answer().0, Ok(Reply::Welcome(_))), "the server knows {tree}");
        lane
    }

    /// Asks, and has the answer with its bulk bytes.
    pub fn ask(&mut self, request: &Request, bulk: &[u8]) -> (Answer, Vec<u8>) {
        let frame = wire::encode(request, bulk.len(), Way::Behind).expect("short");
        self.0.write_all(&[&frame, bulk].concat()).expect("the server is there");
        self.answer()
    }

    /// Sends a typed part as it is; `None`: that has ended the connection.
    pub fn send(&mut self, part: &[u8], bulk: &[u8]) -> Option<(Answer, Vec<u8>)> {
        let lengths = [(part.len() as u32).to_le_bytes(), (bulk.len() as u32).to_le_bytes()];
        self.0.write_all(&[&lengths.concat(), part, bulk].concat()).ok()?;
        self.read_answer()
    }

    fn answer(&mut self) -> (Answer, Vec<u8>) {
        self.read_answer().expect("an answer")
    }

    fn read_answer(&mut self) -> Option<(Answer, Vec<u8>)> {
        let mut head = [0; HEADER];
        self.0.read_exact(&mut head).ok()?;
        let Head { part, bulk, .. } = Head::read(head).expect("a head");
        let mut part = vec![0; part];
        self.0.read_exact(&mut part).expect("all of it");
        let mut bytes = vec![0; bulk];
        self.0.read_exact(&mut bytes).expect("all of it");
        Some((wire::decode(&part).expect("an answer"), bytes))
    }
}
