//! Which of a mount's threads wait for the kernel's next request, and which rest.
//!
//! The one idea: the kernel gives a request to the thread that has waited longest, so of many that wait each is served by one
//! whose core and caches have long been somebody else's. So no more wait than there are cores, and the others rest, within
//! the last request that they have served. Where all who do not rest have work and one of them waits for something itself (a
//! disk, or what is to be stable), one that rests joins them; they rest again as soon as enough wait. Who gives the last
//! answer looks for what comes next ([`crate::look`]).

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::look::{Next, look};

/// How often somebody looks who has been at work for long; and that is so long.
const LOOK: Duration = Duration::from_millis(1);
/// Looks in a row at which some thread has waited all the time, after which nobody looks.
const QUIET: u32 = 100;

/// Who of the threads of a mount does what. Only those count that have served once: the others have not been here.
#[derive(Default)]
struct Threads {
    /// All of them; who neither works nor rests waits for the kernel.
    known: usize,
    /// At work since the last look.
    begun: usize,
    /// At work since before that.
    at_length: usize,
    resting: usize,
    /// How many looks there have been.
    looks: u64,
    /// One of those that rest looks each [`LOOK`].
    looked_for: bool,
    /// Looks since there was last nobody who waits.
    quiet: u32,
    /// A thread has left the session: the others are to see that it has ended.
    ending: bool,
    /// What is known of the next request.
    next: Next,
}

impl Threads {
    fn at_work(&self) -> usize {
        self.begun + self.at_length
    }

    fn waiting(&self) -> usize {
        self.known - self.at_work() - self.resting
    }
}

/// The threads of one mount.
pub(crate) struct Turns {
    /// How many wait at most.
    enough: usize,
    /// Where requests come.
    device: OnceLock<OwnedFd>,
    /// Requests that threads have taken so far.
    begun: AtomicU64,
    threads: Mutex<Threads>,
    change: Condvar,
}

/// A request is served. The end of it may take as long as the thread is not needed: it comes after the answer.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// The look after which it began.
    look: u64,
    may_rest: bool,
}

thread_local! {
    /// Of which mount this thread is, once it has served.
    static OF: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// A thread that serves. When it ends the session has: no other one may rest on, for the session waits for each.
struct Member(Arc<Turns>);

impl Drop for Member {
    fn drop(&mut self) {
        let mut threads = self.0.threads.lock();
        threads.ending = true;
        self.0.change.notify_all();
    }
}

impl Turns {
    /// Of threads of which so many wait.
    pub(crate) fn new(enough: usize) -> Arc<Turns> {
        let (device, begun, threads) = Default::default();
        Arc::new(Turns { enough, device, begun, threads, change: Condvar::new() })
    }

    /// Requests come here, and may be looked for.
    pub(crate) fn look_at(&self, device: OwnedFd) {
        let _ = self.device.set(device);
    }

    /// This thread serves a request, until the turn is dropped.
    pub(crate) fn begin(self: &Arc<Turns>) -> Turn<'_> {
        self.turn(true)
    }

    /// The same, where it is not done with what it was given when the turn ends.
    pub(crate) fn pass(self: &Arc<Turns>) -> Turn<'_> {
        self.turn(false)
    }

    fn turn(self: &Arc<Turns>, may_rest: bool) -> Turn<'_> {
        let is_new = OF.with_borrow_mut(|of| {
            let is_new = of.is_none();
            of.get_or_insert_with(|| Member(self.clone()));
            is_new
        });
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut threads = self.threads.lock();
        threads.known += usize::from(is_new);
        if threads.at_work() == 0 {
            threads.next.came();
        }
        threads.begun += 1;
        if threads.waiting() == 0 {
            threads.quiet = 0;
            if threads.resting > 0 && !threads.looked_for {
                self.change.notify_one();
            }
        }
        Turn { turns: self, look: threads.looks, may_rest }
    }

    /// Returns when this thread is needed.
    fn rest(&self, mut threads: MutexGuard<'_, Threads>) {
        threads.resting += 1;
        while !threads.ending {
            if threads.looked_for || threads.quiet >= QUIET {
                threads = self.change.wait(threads);
                continue;
            }
            // Who looks and is needed leaves nobody to look: the next that finds nobody waiting calls one.
            threads.looked_for = true;
            let (now, is_time) = self.change.wait_timeout(threads, LOOK);
            threads = now;
            threads.looked_for = false;
            if is_time && self.look(&mut threads) {
                break;
            }
        }
        threads.resting -= 1;
    }

    /// Is one more needed?
    fn look(&self, threads: &mut Threads) -> bool {
        let needed = threads.waiting() == 0 && threads.at_length > 0;
        threads.quiet += 1;
        threads.looks += 1;
        threads.at_length += std::mem::take(&mut threads.begun);
        needed
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut threads = self.turns.threads.lock();
        match self.look == threads.looks {
            true => threads.begun -= 1,
            false => threads.at_length -= 1,
        }
        if !self.may_rest || rt::thread::panicking() {
            return;
        }
        let device = self.turns.device.get().filter(|_| threads.at_work() == 0);
        if threads.waiting() > self.turns.enough {
            self.turns.rest(threads);
        } else if let Some(device) = device
            && let Some(mut giving) = threads.next.is_due()
        {
            drop(threads);
            look(device, &self.turns.begun, &mut giving);
            self.turns.threads.lock().next.looked(giving);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread::ThreadId;

    use rt::sync::mpsc;
    use rt::thread::{JoinHandle, spawn};

    use super::*;

    const THREADS: usize = 4;
    const ENOUGH: usize = 2;
    const LONG: Duration = Duration::from_secs(20);

    type Request = Box<dyn FnOnce() + Send>;

    /// A mount whose kernel is a channel.
    struct Mount {
        turns: Arc<Turns>,
        requests: mpsc::Sender<Request>,
        threads: Vec<JoinHandle<()>>,
    }

    impl Mount {
        fn new(rests: bool) -> Mount {
            let turns = Turns::new(ENOUGH);
            let (requests, next) = mpsc::bounded::<Request>(THREADS);
            let next = Arc::new(Mutex::new(next));
            let serve = |_| {
                let (turns, next) = (turns.clone(), next.clone());
                spawn("serve", move || {
                    loop {
                        let Ok(request) = next.lock().recv() else { return };
                        let _turn = if rests { turns.begin() } else { turns.pass() };
                        request();
                    }
                })
            };
            Mount { threads: (0..THREADS).map(serve).collect(), turns, requests }
        }

        /// As many requests as there are threads, each of which waits for the others: true once all have come together.
        fn all_at_once(&self) -> bool {
            let (here, came) = mpsc::bounded(THREADS);
            let go = Arc::new((Mutex::new(false), Condvar::new()));
            for _ in 0..THREADS {
                let (here, go) = (here.clone(), go.clone());
                let wait = move || {
                    here.send(()).unwrap();
                    drop(go.1.wait_while(go.0.lock(), |go| !*go));
                };
                assert!(self.requests.send(Box::new(wait)).is_ok());
            }
            let all = (0..THREADS).all(|_| came.recv_timeout(LONG).is_ok());
            *go.0.lock() = true;
            go.1.notify_all();
            all
        }

        /// Who serves requests that come one after the other.
        fn who_serves(&self) -> BTreeSet<String> {
            let (tell, told) = mpsc::bounded(1);
            let one = |_| {
                let tell = tell.clone();
                let id = || -> ThreadId { std::thread::current().id() };
                let request = Box::new(move || tell.send(id()).unwrap());
                assert!(self.requests.send(request).is_ok());
                let id = told.recv_timeout(LONG).unwrap();
                self.until(|threads| threads.at_work() == 0);
                format!("{id:?}")
            };
            (0..100).map(one).collect()
        }

        fn until(&self, done: impl Fn(&Threads) -> bool) {
            let start = rt::time::now();
            while !done(&self.turns.threads.lock()) {
                assert!(start.elapsed() < LONG, "it never comes to that");
                rt::time::sleep(LOOK);
            }
        }

        /// The kernel has unmounted: true once each thread has left.
        fn end(self) -> bool {
            drop(self.requests);
            let (tell, told) = mpsc::bounded(1);
            let joined = spawn("end", move || {
                self.threads.into_iter().for_each(JoinHandle::join);
                tell.send(()).unwrap();
            });
            let ended = told.recv_timeout(LONG).is_ok();
            if ended {
                joined.join();
            }
            ended
        }
    }

    #[test]
    fn no_more_wait_than_are_enough() {
        let mount = Mount::new(true);
        assert!(mount.all_at_once());
        mount.until(|threads| threads.resting == THREADS - ENOUGH);
        let serving = mount.who_serves();
        assert!(serving.len() <= ENOUGH, "{serving:?}");
        assert!(mount.end());
    }

    #[test]
    fn one_more_is_needed_where_nobody_waits_and_somebody_has_been_at_work_for_long() {
        let turns = Turns::new(ENOUGH);
        let needed = |begun, at_length, resting| {
            let mut threads =
                Threads { known: THREADS, begun, at_length, resting, ..Threads::default() };
            turns.look(&mut threads)
        };
        assert!(needed(1, 1, 2) && needed(0, 3, 1));
        assert!(!needed(0, 1, 2), "one waits");
        assert!(!needed(2, 0, 2), "they have only begun");
    }

    #[test]
    fn who_rests_comes_when_all_others_wait_for_something() {
        let mount = Mount::new(true);
        for _ in 0..3 {
            assert!(mount.all_at_once());
            mount.until(|threads| threads.resting == THREADS - ENOUGH);
        }
        assert!(mount.end());
    }

    #[test]
    fn nobody_looks_while_nothing_happens_and_somebody_does_again_when_it_does() {
        let mount = Mount::new(true);
        assert!(mount.all_at_once());
        mount.until(|threads| threads.quiet == QUIET && !threads.looked_for);
        let looks = mount.turns.threads.lock().looks;
        mount.who_serves();
        rt::time::sleep(10 * LOOK);
        assert_eq!(mount.turns.threads.lock().looks, looks, "one of them waited all the time");
        assert!(mount.all_at_once());
        assert!(mount.end());
    }

    #[test]
    fn who_is_not_done_does_not_rest() {
        let mount = Mount::new(false);
        assert!(mount.all_at_once());
        mount.until(|threads| threads.waiting() == THREADS);
        assert!(mount.end());
    }

    /// Where they come from there is nothing yet: who looks does so for a while.
    #[test]
    fn who_gives_the_last_answer_looks_for_the_next_request() {
        let (device, _kernel) = std::io::pipe().unwrap();
        let turns = Turns::new(ENOUGH);
        turns.look_at(device.into());
        let is_looked_for = |turn: Turn<'_>| {
            // However late it came until now, it is as likely as at first.
            turn.turns.threads.lock().next = Next::default();
            let start = rt::time::now();
            drop(turn);
            start.elapsed() >= crate::look::LOOK
        };
        assert!(is_looked_for(turns.begin()));
        // What is not done with what it was given has to go on; and while somebody is at work he gives the last answer.
        assert!((0..100).any(|_| !is_looked_for(turns.pass())));
        let ((here, came), (end, ended)) = (mpsc::bounded(1), mpsc::bounded::<()>(1));
        let others = turns.clone();
        let other = spawn("at work", move || {
            let _turn = others.begin();
            here.send(()).unwrap();
            let _ = ended.recv();
        });
        came.recv().unwrap();
        assert!((0..100).any(|_| !is_looked_for(turns.begin())));
        drop(end);
        other.join();
    }
}
