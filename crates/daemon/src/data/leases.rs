//! Bytes that clients send from where they are.
//!
//! Place: beside `reads`. The one idea: what is leased stays where it is until the client has said that it has sent it, or its
//! process is gone. Who has only lost his connections may be in the midst of sending, and so may who is stopped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use fs::Lent;
use rt::buf::Shelf;
use rt::mem::{Class, Holder, Reclaim};
use rt::random::seed_from_system;
use rt::sync::{Arc, Mutex, Weak};
use rt::{Account, Grant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wire::{BULK_MAX, Reply};

use super::handles::{Handle, Session};
use super::lane::Supply;
use super::tree::{Place, Result, told};
use crate::peer::Peer;

/// Of the account at most one of so many parts is leased: who sends takes as long as the network does.
const PART: u64 = 8;

/// No time.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Where leases come from.
pub(crate) struct Shop {
    shelf: Arc<Shelf>,
    memory: Account,
    orphans: Arc<Orphans>,
}

impl Shop {
    /// With an empty shelf.
    ///
    /// # Errors
    /// The system has no memory that others can read.
    pub(crate) fn of(account: &Account) -> std::io::Result<Shop> {
        let shelf = Shelf::new()?;
        let weak: Weak<dyn Reclaim> = Arc::<Shelf>::downgrade(&shelf);
        account.add_reclaimer(Class::Elastic, weak);
        Ok(Shop { shelf, memory: account.of(Holder::Leases), orphans: Arc::default() })
    }

    /// The shelf.
    pub(super) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    fn grant(&self, bytes: u64) -> Option<Grant> {
        self.memory.try_grant_within(Class::Normal, bytes, self.memory.cap() / PART)
    }
}

/// Leases bytes of a file, so many from an offset on, if all of them are on the shelf, or can be put there, in so few pieces.
pub(super) fn lease(
    session: &Session,
    handle: &Handle,
    (offset, length, pieces_max): (u64, usize, usize),
    supply: Supply<'_>,
) -> Result<Reply> {
    let Some(shop) = supply.shop.filter(|_| (1..=BULK_MAX).contains(&length)) else {
        return Ok(Reply::Done);
    };
    // Before anything is moved.
    let Some(mut memory) = shop.grant(length as u64) else { return Ok(Reply::Done) };
    let Place { fs, object } = &handle.place;
    let lent = fs.lend_shelved(*object, offset, length, &shop.shelf).map_err(told)?;
    let Some(lent) = lent else { return Ok(Reply::Done) };
    let more = lent.memory_bytes().saturating_sub(memory.bytes());
    if let Some(more) = shop.grant(more) {
        memory.merge(more);
        if let Some(places) = lent.places(&shop.shelf).filter(|places| places.len() <= pieces_max)
            && let Some(lease) = session.leases.begin(lent, memory, shop)
        {
            return Ok(Reply::Leased { lease, places });
        }
    }
    Ok(Reply::Done)
}

/// A lease: the bytes, and the memory for them.
struct Leased {
    _bytes: Lent,
    _memory: Grant,
}

type Held = BTreeMap<u64, Leased>;

/// What is leased in sessions that are over, by the number of the process that has it.
#[derive(Default)]
struct Orphans(Mutex<BTreeMap<i32, Arc<Orphan>>>);

struct Orphan {
    process: OwnedFd,
    held: Mutex<Held>,
}

impl Orphans {
    /// Keeps these for as long as the process lives. Of each one thread waits, however many sessions it had.
    fn keep(self: &Arc<Self>, number: i32, process: OwnedFd, held: Held) {
        let mut all = self.0.lock();
        // Another one can have had the number.
        let known = all.get(&number).filter(|orphan| !has_ended(&orphan.process, Some(&NOW)));
        if let Some(orphan) = known {
            return orphan.held.lock().extend(held);
        }
        let orphan = Arc::new(Orphan { process, held: Mutex::new(held) });
        let before = all.insert(number, orphan.clone());
        drop(all);
        drop(before);
        let orphans = self.clone();
        let body = move || {
            while !has_ended(&orphan.process, None) {}
            orphans.forget(number, &orphan);
        };
        // Without a thread they are kept until the number comes again: nobody would see what became of the client.
        drop(rt::thread::try_spawn("leases", body));
    }

    fn forget(&self, number: i32, orphan: &Arc<Orphan>) {
        let mut all = self.0.lock();
        let is_known = all.get(&number).is_some_and(|known| Arc::ptr_eq(known, orphan));
        let gone = is_known.then(|| all.remove(&number));
        drop(all);
        drop(gone);
    }

    /// Those of these that the process has.
    fn take(&self, number: i32, leases: &[u64]) -> Vec<Leased> {
        let Some(orphan) = self.0.lock().get(&number).cloned() else { return Vec::new() };
        let mut held = orphan.held.lock();
        leases.iter().filter_map(|lease| held.remove(lease)).collect()
    }
}

/// Has the process ended, or does it in this time?
fn has_ended(process: &OwnedFd, within: Option<&Timespec>) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], within).is_ok_and(|count| count > 0)
}

/// The leases of a session.
pub(super) struct Leases {
    peer: Peer,
    state: Mutex<State>,
}

struct State {
    /// The client's process, once it has leased anything, and who holds that when the session is over.
    process: Option<(OwnedFd, Arc<Orphans>)>,
    /// No number comes again, also not of another session: a client may tell the next server of what it had from the last.
    last: u64,
    held: Held,
}

impl Leases {
    pub(super) fn of(peer: Peer) -> Leases {
        let (process, last, held) = (None, seed_from_system(), Held::new());
        Leases { peer, state: Mutex::new(State { process, last, held }) }
    }

    /// Begins one; its number. `None`: the client's process cannot be seen from here.
    fn begin(&self, bytes: Lent, memory: Grant, shop: &Shop) -> Option<u64> {
        let mut state = self.state.lock();
        if state.process.is_none() {
            let pid = Pid::from_raw(self.peer.pid).filter(|_| self.peer.pid > 0)?;
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            state.process = Some((process, shop.orphans.clone()));
        }
        state.last = state.last.wrapping_add(1);
        let number = state.last;
        state.held.insert(number, Leased { _bytes: bytes, _memory: memory });
        Some(number)
    }

    /// Ends these, also those that the client's process has of a session that is over; of others nothing is known.
    pub(super) fn end(&self, leases: &[u64], shop: Option<&Shop>) {
        let (mut ended, mut others) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for lease in leases {
            match state.held.remove(lease) {
                Some(leased) => ended.push(leased),
                None => others.push(*lease),
            }
        }
        drop(state);
        if let Some(shop) = shop.filter(|_| !others.is_empty()) {
            ended.extend(shop.orphans.take(self.peer.pid, &others));
        }
        // Pages go back to the system, maybe.
        drop(ended);
    }
}

impl Drop for Leases {
    /// The session is over. What is leased is held until the client's process is gone, as it mostly is in a moment.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let held = std::mem::take(&mut state.held);
        if let Some((process, orphans)) = state.process.take().filter(|_| !held.is_empty()) {
            orphans.keep(self.peer.pid, process, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use fs::{NewObject, Who, mode};
    use rt::time::{now, sleep};
    use rustix::io::pread;

    use super::super::tree::tests::{close, held};
    use super::*;

    const LENGTH: usize = 128 << 10;

    fn until(what: &str, done: impl Fn() -> bool) {
        let start = now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "not so in time: {what}");
            sleep(Duration::from_millis(5));
        }
    }

    /// A client's process. Nobody waits for what it would say, should a test fail.
    fn process() -> Child {
        let mut sleep = Command::new("sleep");
        sleep.arg("100").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sleep.spawn().unwrap()
    }

    /// Who is cut off may be in the midst of sending, so what he has leased stays until his process has ended.
    #[test]
    fn what_is_leased_outlives_the_session_but_not_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (held, engine) = held(dir.path());
        let fs = held.system("tank").unwrap().unwrap().fs.clone();
        let file = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
        let bytes = (0..LENGTH as u32).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<_>>();
        let number = fs.create_with(fs.root(), b"file", &file, &bytes).unwrap();
        fs.pool().sync().unwrap();
        let account = Account::new(64 << 20, 0);
        let shop = Shop::of(&account).unwrap();
        let lent = || {
            for _ in 0..3 {
                fs.lend(number, 0, LENGTH).unwrap();
            }
            let lent = fs.lend_shelved(number, 0, LENGTH, &shop.shelf).unwrap();
            lent.expect("it was wanted again and again")
        };
        let mut client = process();
        let of = |pid: u32| Leases::of(Peer { pid: pid as i32, uid: 0, gid: 0 });
        let begin =
            |leases: &Leases| leases.begin(lent(), shop.grant(LENGTH as u64).unwrap(), &shop);
        assert_eq!(begin(&of(0)), None, "a process that cannot be seen from here");
        assert_eq!(account.used(), 0);
        // What was ended is, whatever else is said.
        let leases = of(client.id());
        let (first, second) = (begin(&leases).unwrap(), begin(&leases).unwrap());
        assert_eq!(account.used(), 2 * LENGTH as u64);
        leases.end(&[second, second, first.wrapping_sub(1), second.wrapping_add(1)], Some(&shop));
        assert_eq!(account.used(), LENGTH as u64);
        let [(at, length)] = lent().places(&shop.shelf).unwrap()[..] else { panic!("one record") };
        assert_eq!(length as usize, LENGTH);
        drop(leases);
        drop(fs);
        close(&held, &engine);
        sleep(Duration::from_millis(50));
        let mut sent = vec![0; LENGTH];
        assert_eq!(pread(shop.shelf().reader(), &mut sent, at).unwrap(), LENGTH);
        assert!(sent == bytes, "it is sent still");
        assert_eq!(account.used(), LENGTH as u64);
        client.kill().unwrap();
        client.wait().unwrap();
        until("given back", || account.used() == 0);
        until("gone", || {
            pread(shop.shelf().reader(), &mut sent.clone(), at).is_ok() && is_empty(&shop, at)
        });
    }

    /// Who cuts his connections again and again makes no thread each time, and what he had he may end in the next session.
    #[test]
    fn what_is_left_of_many_sessions_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let (held, engine) = held(dir.path());
        let fs = held.system("tank").unwrap().unwrap().fs.clone();
        let file = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
        let number = fs.create_with(fs.root(), b"file", &file, &[7; LENGTH]).unwrap();
        fs.pool().sync().unwrap();
        let account = Account::new(64 << 20, 0);
        let shop = Shop::of(&account).unwrap();
        for _ in 0..3 {
            fs.lend(number, 0, LENGTH).unwrap();
        }
        let mut clients: Vec<_> = (0..2).map(|_| process()).collect();
        let of = |pid: u32| Leases::of(Peer { pid: pid as i32, uid: 0, gid: 0 });
        let left = |pid: u32| {
            let (leases, memory) = (of(pid), shop.grant(LENGTH as u64).unwrap());
            let lent = fs.lend_shelved(number, 0, LENGTH, &shop.shelf).unwrap().unwrap();
            leases.begin(lent, memory, &shop).unwrap()
        };
        let (one, other) = (clients[0].id(), clients[1].id());
        let (first, theirs) = (left(one), left(other));
        (0..20).for_each(|_| _ = left(one));
        assert_eq!(account.used(), 22 * LENGTH as u64);
        assert_eq!(shop.orphans.0.lock().len(), 2, "with a thread each");
        // His own, and no other's.
        of(one).end(&[first, theirs, first], Some(&shop));
        assert_eq!(account.used(), 21 * LENGTH as u64);
        for (client, rest) in clients.iter_mut().zip([LENGTH as u64, 0]) {
            client.kill().unwrap();
            client.wait().unwrap();
            until("given back", || account.used() == rest);
        }
        until("nobody waits", || shop.orphans.0.lock().is_empty());
        drop(fs);
        close(&held, &engine);
    }

    fn is_empty(shop: &Shop, at: u64) -> bool {
        let mut bytes = [1; 4096];
        pread(shop.shelf().reader(), &mut bytes, at).unwrap();
        bytes == [0; 4096]
    }

    #[test]
    fn a_part_of_the_memory_can_be_leased() {
        let account = Account::new(64 << 20, 0);
        let shop = Shop::of(&account).unwrap();
        let first = shop.grant(8 << 20);
        assert!(first.is_some() && shop.grant(1).is_none());
        drop(first);
        assert!(shop.grant(1).is_some());
    }
}
