//! Any requests of a client, one after the other, on a pool that is served: each is answered or ends its own
//! connection, they do not leave their tree, and another client has what it wrote.
#![no_main]

use fuzz::{Lane, Site};
use libfuzzer_sys::fuzz_target;
use rt::sync::Mutex;
use wire::{Entry, Open, Reply, Request, Subject, Target};

const ROOT: Subject = Subject::ROOT;
/// Requests of one run, at most.
const REQUESTS_MAX: usize = 48;
/// How often what was written is put on the image.
const RUNS_A_TXG: u64 = 64;

struct Honest {
    site: Site,
    lane: Lane,
    handle: u64,
    runs: u64,
}

fn begin() -> Honest {
    let site = Site::new();
    let mut lane = Lane::new(site.connect(), "tank");
    let how = Open { read: true, write: true, create: true, ..Open::default() };
    let open = Request::Open { who: ROOT, path: b"ours/file".to_vec(), how, mode: 0o644 };
    let (Ok(Reply::Opened { handle, .. }), _) = lane.ask(&open, &[]) else { panic!("a file") };
    Honest { site, lane, handle, runs: 0 }
}

/// All entries of a directory.
fn entries(lane: &mut Lane, path: &[u8]) -> Vec<Entry> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let list = Request::List { who: ROOT, path: path.to_vec(), from };
        let (Ok(Reply::Entries(entries, next)), _) = lane.ask(&list, &[]) else { panic!("a list") };
        all.extend(entries);
        match next {
            Some(next) => from = next,
            None => return all,
        }
    }
}

/// Removes all that is in a directory.
fn clear(lane: &mut Lane, path: &[u8]) {
    for Entry { name, stat } in entries(lane, path) {
        let path = [path, b"/", &name].concat();
        // A path that is too long is walked from its middle.
        let gone = if stat.mode >> 12 == 4 {
            clear(lane, &path);
            Request::Rmdir { who: ROOT, path }
        } else {
            Request::Unlink { who: ROOT, path }
        };
        assert_eq!(lane.ask(&gone, &[]).0, Ok(Reply::Done), "{gone:?}");
    }
}

impl Honest {
    /// What the other one does: it writes, reads back, and looks at its names.
    fn goes_on(&mut self) {
        self.runs += 1;
        let (handle, offset) = (self.handle, self.runs % 7 * 1000);
        let bytes = self.runs.to_le_bytes().repeat(200);
        let (wrote, _) = self.lane.ask(
            &Request::Write { handle, offset, stable: self.runs % 2 == 0, close: false },
            &bytes,
        );
        assert_eq!(wrote, Ok(Reply::Done));
        let read = Request::Read { handle, offset, length: bytes.len() as u32 };
        let (read, back) = self.lane.ask(&read, &[]);
        assert!(read == Ok(Reply::Bytes) && back == bytes, "what was written is read");
        let names = |entries: Vec<Entry>| entries.into_iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names(entries(&mut self.lane, b"")), [&b"ours"[..], b"theirs"]);
        assert_eq!(names(entries(&mut self.lane, b"ours")), [b"file"]);
        clear(&mut self.lane, b"theirs");
        if self.runs.is_multiple_of(RUNS_A_TXG) {
            self.site.sync();
        }
    }
}

/// A request that makes the tree deeper than paths are long could not be taken away again.
fn is_deep(part: &[u8]) -> bool {
    let path = match wire::decode(part) {
        Ok(
            Request::Open { path, .. } | Request::Put { path, .. } | Request::Mkdir { path, .. },
        ) => path,
        Ok(Request::Rename { from, to, .. }) => [from, to].concat(),
        Ok(Request::SetXattr { of: Target::Path(path), .. }) => path,
        _ => return false,
    };
    path.len() > 60
}

static HONEST: Mutex<Option<Honest>> = Mutex::new(None);

// For each request: bytes of its typed part, a number for bulk bytes, the part.
fuzz_target!(|bytes: &[u8]| {
    let mut honest = HONEST.lock();
    let honest = honest.get_or_insert_with(begin);
    let mut lane = Lane::new(honest.site.connect(), "tank/theirs");
    let mut rest = bytes;
    for _ in 0..REQUESTS_MAX {
        let Some((&[length, bulk], after)) = rest.split_first_chunk::<2>() else { break };
        let (part, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        if is_deep(part) {
            continue;
        }
        let bulk =
            vec![length; [0, 0, 1, 100, 4096, 70_000, 131_072, 300_001][usize::from(bulk % 8)]];
        if lane.send(part, &bulk).is_none() {
            break;
        }
    }
    drop(lane);
    honest.goes_on();
});
