//! Sessions and what they have open.

use std::collections::BTreeMap;

use fs::code;
use rt::random::seed_from_system;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};
use verbs::Held;
use wire::Session as Number;

use super::broken::Left;
use super::leases::Leases;
use super::tree::{Found, Place, Result, Tree, fail, told};
use crate::peer::Peer;

/// Files that a session may have open.
const HANDLES_MAX: usize = 1 << 16;
/// Sessions at once.
const SESSIONS_MAX: usize = 256;

/// An open file.
pub(super) struct Handle {
    pub(super) place: Place,
    pub(super) read: bool,
    pub(super) write: bool,
    /// By somebody who is not root.
    pub(super) of_user: bool,
    /// Digests of what is written are made.
    pub(super) digests: bool,
    /// He goes on with what is not broken, and so does who comes after him.
    pub(super) unbroken: bool,
}

impl Handle {
    /// For nothing yet: the object stays, whatever becomes of its names.
    pub(super) fn of(tree: &Tree, found: Found) -> Result<Handle> {
        found.place.fs.hold(found.place.object).map_err(told)?;
        let handle = Handle::held(found.place.clone());
        tree.confirm(&found)?;
        Ok(handle)
    }

    /// The same, for what is held for it already.
    pub(super) fn held(place: Place) -> Handle {
        let (read, write, of_user, digests, unbroken) = Default::default();
        Handle { place, read, write, of_user, digests, unbroken }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.digests {
            self.place.fs.unwatch(self.place.object);
        }
        // What has no name any more and cannot be freed now is freed when the file system is opened anew.
        drop(self.place.fs.let_go(self.place.object));
    }
}

/// What a session has open.
#[derive(Default)]
struct Open {
    files: BTreeMap<u64, Arc<Handle>>,
    /// So many are about to be.
    coming: usize,
}

/// Room for one more open file: nothing is made or emptied for it without.
pub(super) struct Room<'a>(&'a Session);

impl Room<'_> {
    /// Keeps a file open; its number.
    pub(super) fn keep(self, handle: Handle) -> u64 {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.open.lock().files.insert(number, Arc::new(handle));
        number
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.open.lock().coming -= 1;
    }
}

/// What connections of one client share.
pub(super) struct Session {
    pub(super) tree: Tree,
    /// What clients have left open.
    pub(super) left: Arc<Left>,
    pub(super) leases: Leases,
    number: Number,
    uid: u32,
    open: Mutex<Open>,
    next: AtomicU64,
}

impl Drop for Session {
    /// Who closes in order has nothing open by then.
    fn drop(&mut self) {
        for handle in self.open.lock().files.values().filter(|handle| handle.unbroken) {
            self.left.note(&handle.place, rt::time::wall_clock());
        }
    }
}

impl Session {
    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// Room for one more, if there is any.
    pub(super) fn room(&self) -> Result<Room<'_>> {
        let mut open = self.open.lock();
        if open.files.len() + open.coming >= HANDLES_MAX {
            return fail(code::MFILE, "Too many open files");
        }
        open.coming += 1;
        Ok(Room(self))
    }

    /// The open file of a number.
    pub(super) fn handle(&self, number: u64) -> Result<Arc<Handle>> {
        let open = self.open.lock().files.get(&number).cloned();
        open.map_or_else(|| fail(code::BADF, "Bad file descriptor"), Ok)
    }

    /// Lets go of one.
    pub(super) fn close(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.lock().files.remove(&number)
    }
}

/// What clients have moved so far.
#[derive(Default)]
pub(crate) struct Moved {
    /// Bytes that they have read.
    pub(crate) read: AtomicU64,
    /// Bytes that they have written.
    pub(crate) written: AtomicU64,
    /// Requests of all kinds.
    pub(crate) requests: AtomicU64,
}

/// All sessions.
pub(crate) struct Sessions {
    /// Users who may move files, besides those who command the server.
    movers: Vec<u32>,
    held: Arc<Held>,
    list: Mutex<BTreeMap<Number, rt::sync::Weak<Session>>>,
    left: Arc<Left>,
    moved: Moved,
    cores: usize,
}

impl Sessions {
    pub(crate) fn new(held: Arc<Held>, movers: Vec<u32>) -> Sessions {
        let (list, left, moved) = Default::default();
        Sessions { movers, held, list, left, moved, cores: rt::thread::available_cores() }
    }

    /// What clients have moved so far.
    pub(crate) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// Cores that the server may use.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// Are the pools about to be closed?
    pub(super) fn are_ending(&self) -> bool {
        self.held.is_ending()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.list.lock().values().filter(|session| session.strong_count() > 0).count() as u64
    }

    /// May the peer move files?
    pub(crate) fn admit(&self, peer: Peer) -> bool {
        peer.commands() || self.movers.contains(&peer.uid)
    }

    /// Begins a session.
    pub(super) fn begin(&self, peer: Peer, tree: &str) -> Result<Arc<Session>> {
        let tree = Tree::new(self.held.clone(), tree)?;
        let mut list = self.list.lock();
        list.retain(|_, session| session.strong_count() > 0);
        if list.len() >= SESSIONS_MAX {
            return fail(
                code::MFILE,
                format!("the server has {SESSIONS_MAX} clients; try again later"),
            );
        }
        let mut number = [0; 16];
        number[..8].copy_from_slice(&seed_from_system().to_le_bytes());
        number[8..].copy_from_slice(&seed_from_system().to_le_bytes());
        let (open, next, left) = (Mutex::default(), AtomicU64::new(1), self.left.clone());
        let (leases, uid) = (Leases::of(peer), peer.uid);
        let session = Arc::new(Session { tree, left, leases, number, uid, open, next });
        list.insert(number, Arc::downgrade(&session));
        Ok(session)
    }

    /// Joins one.
    pub(super) fn join(&self, peer: Peer, number: &Number) -> Result<Arc<Session>> {
        let session = self.list.lock().get(number).and_then(rt::sync::Weak::upgrade);
        match session.filter(|session| session.uid == peer.uid) {
            Some(session) => Ok(session),
            None => fail(code::STALE, "the session is over"),
        }
    }
}
