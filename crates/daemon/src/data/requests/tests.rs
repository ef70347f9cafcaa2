//! What clients ask while the pools go, several of them at once, and of files that are protected, digested, growing or behind a
//! link.

use std::time::Duration;

use fs::Filesystem;
use pool::props::space::Owner;
use rt::mem::Class;
use rt::time::sleep;
use verbs::Held;

use super::super::handles::Sessions;
use super::super::shares::Shares;
use super::super::tree::tests::{close, create_pool, held};
use super::*;
use crate::peer::Peer;

const MIB: u64 = 1 << 20;

/// The pool's root file system, and a session of root's there.
fn opened(held: &Arc<Held>) -> (Arc<Filesystem>, Arc<Session>) {
    let fs = held.system("tank").unwrap().unwrap().fs.clone();
    let peer = Peer { pid: 0, uid: 0, gid: 0 };
    (fs, Sessions::new(held.clone(), Vec::new()).begin(peer, "tank").unwrap())
}

/// The pools are taken from the server when a request has passed the last question that may fail by that, and before it has
/// made anything: whoever asked is not sent to the next server, which has the file.
#[test]
fn what_is_made_when_the_pools_go_is_not_made_by_the_next_server_too() {
    let dir = tempfile::tempdir().unwrap();
    let (held, mut engine) = held(dir.path());
    // Its turn to be closed comes before that of `tank`, and it is waited for some seconds as long as somebody changes it.
    create_pool(&mut engine, "first", &dir.path().join("other"));
    let first = held.system("first").unwrap().unwrap().fs.clone();
    let system = held.system("tank").unwrap().unwrap();
    assert!(system.makes_digests);
    let fs = &system.fs;
    let pool = fs.pool();
    let peer = Peer { pid: 0, uid: 0, gid: 0 };
    let session = &*Sessions::new(held.clone(), Vec::new()).begin(peer, "tank").unwrap();
    // Who may go beyond his quota waits for a sync, and that for who is in its txg.
    fs.set_quota(Owner::User, false, 0, MIB).unwrap();
    let file = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let other = fs.create_with(fs.root(), b"other", &file, &[0; MIB as usize]).unwrap();
    fs.truncate(other, 0).unwrap();
    let in_tank = pool.admit(fs.dataset(), 0).unwrap();
    let in_first = first.pool().admit(first.dataset(), 0).unwrap();
    let before = pool.open_txg().unwrap();
    std::thread::scope(|scope| {
        let how = Open { write: true, create: true, new: true, digests: true, ..Open::READ };
        let opened = scope.spawn(move || {
            open(session, &Subject::ROOT, b"new", how, 0o644).map(|(handle, ..)| handle.digests)
        });
        while pool.open_txg().unwrap() == before {
            sleep(Duration::from_millis(1));
        }
        let closed = scope.spawn(|| close(&held, &engine));
        while held.pool("tank").is_some() {
            sleep(Duration::from_millis(1));
        }
        drop(in_tank);
        assert_eq!(opened.join().unwrap().map_err(|failure| failure.text), Ok(true));
        assert!(fs.lookup(fs.root(), b"new").unwrap().is_some());
        drop(in_first);
        closed.join().unwrap();
    });
}

/// Nothing that a write takes away is taken from what has nothing of the kind.
#[test]
fn who_may_append_may_do_so_whatever_attributes_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let (fs, session) = opened(&held);
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 7, gid: 7 });
    let number = fs.create_with(fs.root(), b"log", &file, b"one, ").unwrap();
    fs.set_xattr(number, b"user.any", Some(b"x")).unwrap();
    let protect = |attrs: &mut fs::Attrs| attrs.flags |= format::znode::Pflags::APPENDONLY;
    fs.change_attrs(number, protect).unwrap();
    let who = Subject { uid: 7, gid: 7, groups: Vec::new() };
    let (handle, ..) = open(&session, &who, b"log", Open { write: true, ..Open::READ }, 0).unwrap();
    let goal = Goal { handle: Arc::new(handle), offset: 5 };
    let mut bulk = fs.buffers_for(5, 3);
    bulk[0].copy_from_slice(b"two");
    write(&goal, bulk).unwrap();
    let mut text = [0; 8];
    fs.read(number, 0, &mut text).unwrap();
    assert_eq!(&text, b"one, two");
    drop((goal, session, fs));
    close(&held, &engine);
}

/// The memory that it takes to read a file for its digest is asked for, and only where no digest is kept. Seen red: it was in no
/// account, more than a mebibyte for each client that asked.
#[test]
fn a_digest_that_has_to_be_made_asks_for_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let (fs, session) = opened(&held);
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    fs.create_with(fs.root(), b"file", &file, &[7; 3 * MIB as usize]).unwrap();
    let memory_for_one = || {
        let memory = rt::Account::new(64 * MIB, 0);
        let (buffers, shares) = (rt::BufPool::of(&memory), Shares::of(MIB));
        let supply = Supply { buffers: &buffers, memory: &memory, shares: &shares, shop: None };
        let (who, of) = (Subject::ROOT, Target::Path(b"file".to_vec()));
        let request = Request::GetXattr { who, of, name: b"user.XrdCks.adler32".to_vec() };
        let (reply, _) = answer(&session, request, None, Vec::new(), supply).unwrap();
        assert!(matches!(reply, Reply::Value(_)));
        assert_eq!(memory.used(), 0, "it was for that alone");
        memory.used_max()
    };
    assert!(memory_for_one() >= 2 * MIB);
    assert_eq!(memory_for_one(), 0, "it is kept by now");
    drop((session, fs));
    close(&held, &engine);
}

/// It grows after it was opened, while memory for what is read of it is waited for.
#[test]
fn who_gets_a_file_that_grows_is_told_of_no_fewer_bytes_than_he_has() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let (fs, session) = opened(&held);
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let number = fs.create_with(fs.root(), b"file", &file, b"old, ").unwrap();
    let memory = rt::Account::new(64 * MIB, 0);
    let (buffers, shares) = (rt::BufPool::of(&memory), Shares::of(MIB));
    let supply = Supply { buffers: &buffers, memory: &memory, shares: &shares, shop: None };
    let all = memory.try_grant(Class::Normal, memory.max(Class::Normal)).unwrap();
    let (reply, bulk) = std::thread::scope(|scope| {
        let request = Request::Get { who: Subject::ROOT, path: b"file".to_vec(), length: 100 };
        let got = scope.spawn(|| answer(&session, request, None, Vec::new(), supply).unwrap());
        while memory.wanted() == 0 {
            sleep(Duration::from_millis(1));
        }
        fs.append(number, b"new").unwrap();
        drop(all);
        got.join().unwrap()
    });
    let Reply::Got(stat) = reply else { panic!("{reply:?}") };
    assert_eq!((stat.size, bulk.as_ref().map(Bulk::length)), (8, Some(8)));
    drop((bulk, session, fs));
    close(&held, &engine);
}

/// As of open(2), whoever opens a link that leads nowhere makes what it leads to, unless that is to be new. Seen red: its own
/// name was there already, and so nothing was found and nothing made.
#[test]
fn what_a_link_leads_to_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let (fs, session) = opened(&held);
    let make = |dir: u64, name: &[u8], mode, target| {
        let who = Who { uid: 0, gid: 0 };
        fs.create(dir, name, &NewObject { target, ..NewObject::of(mode | 0o755, who) }).unwrap()
    };
    let below = make(fs.root(), b"dir", mode::DIR, None);
    for (name, target) in
        [(&b"up"[..], &b"../made"[..]), (b"away", b"no/made"), (b"out", b"../../x")]
    {
        make(below, name, mode::SYMLINK, Some(target));
    }
    let how = Open { write: true, create: true, ..Open::READ };
    let object = |path: &[u8], how| {
        let opened = open(&session, &Subject::ROOT, path, how, 0o644);
        opened.map(|(handle, ..)| handle.place.object).map_err(|failure| failure.errno)
    };
    assert_eq!(object(b"dir/up", Open { new: true, ..how }), Err(code::EXIST));
    assert_eq!(object(b"dir/up", Open { create: false, ..how }), Err(code::NOENT));
    assert_eq!(object(b"dir/away", Open { parents: true, ..how }), Err(code::NOENT));
    assert_eq!(object(b"dir/out", how), Err(code::ACCES));
    assert_eq!(fs.lookup(fs.root(), b"made").unwrap(), None);
    let made = object(b"dir/up", how);
    assert!(made.is_ok() && made == object(b"dir/up", how), "{made:?}");
    assert_eq!(fs.lookup(fs.root(), b"made").unwrap().map(|entry| entry.object), made.ok());
    drop((session, fs));
    close(&held, &engine);
}

/// Of those who make a file of one name at once, each gets the same one; of those who want a new one, one alone. Seen red: who was
/// slower was told that there is one.
#[test]
fn who_is_slower_gets_what_the_faster_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let (fs, session) = opened(&held);
    let how = Open { write: true, create: true, ..Open::READ };
    let at_once = |number: usize, new: bool| {
        let path = format!("{new}{number}").into_bytes();
        let start = std::sync::Barrier::new(2);
        let make = || {
            start.wait();
            let opened = open(&session, &Subject::ROOT, &path, Open { new, ..how }, 0o644);
            opened.map(|(handle, ..)| handle.place.object).map_err(|failure| failure.errno)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(make);
            [make(), other.join().unwrap()]
        })
    };
    for number in 0..500 {
        let [one, other] = at_once(number, false);
        assert!(one.is_ok() && one == other, "{one:?}, {other:?}");
        let new = at_once(number, true);
        assert!(new.iter().any(|made| made.is_ok()) && new.contains(&Err(code::EXIST)), "{new:?}");
    }
    drop((session, fs));
    close(&held, &engine);
}
