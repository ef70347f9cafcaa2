//! `zpool scrub`, `zpool resilver`: begun, paused, stopped, and worked on until they are done.
//!
//! A pool that no server holds is worked on by the command itself, until the scan is done; one that was left in the
//! middle, by whoever, is gone on with. In a server a thread of its own does it ([`work`]), and the command only waits
//! if it is asked to.

use std::time::Duration;

use format::scan::ScanFunction;
use pool::{Pool, ScanAnswer, ScanStep};
use rt::sync::{Arc, Weak};

use super::held::Held;
use super::opening::{For, open};
use super::session::{Session, pool_error};
use super::{Here, status};
use crate::pools::{Scan, ScanRequest, ScanWish};
use crate::{Doing, Error, Result, Why, events};

/// How often it is looked whether there is something to do.
const IDLE: Duration = Duration::from_millis(500);
/// The pause after each slice, in which others have the disks: a part of what the slice took.
const YIELD_SHARE: u32 = 20;
const YIELD_LEAST: Duration = Duration::from_millis(2);
/// How long a waiting command waits for the thread to begin.
const BEGIN_MAX: Duration = Duration::from_secs(5);
/// Bytes of a slice while others write.
const BUSY_SLICE: u64 = 32 << 20;
/// How often a waiting command looks.
const LOOK: Duration = Duration::from_millis(200);

fn doing(request: &ScanRequest) -> Doing {
    let name = request.name.clone();
    match request.wish {
        ScanWish::Scrub => Doing::Scrub(name),
        ScanWish::Pause => Doing::PauseScrub(name),
        ScanWish::Stop => Doing::StopScrub(name),
        ScanWish::Resilver => Doing::Resilver(name),
    }
}

/// Tells whoever follows events of a scan that `function` names.
fn tell(session: &Session, resilver: bool, what: &str) {
    let kind = if resilver { "resilver" } else { "scrub" };
    let class = format!("{}{kind}_{what}", events::SCAN);
    session.told.iter().for_each(|told| told.tell(&session.pool, &class));
}

/// Does what is wished; `progress` hears of it while the command stays, until it gives false.
pub(super) fn scan(
    here: &Here,
    request: &ScanRequest,
    progress: &mut dyn FnMut(&Scan) -> bool,
) -> Result<()> {
    let session = open(here, &request.name, &request.places, For::Writing)?;
    let fail = |error| pool_error(doing(request), error);
    let before = session.pool.scan_status().map_err(fail)?;
    let running = before.filter(|status| status.is_running());
    let is_resilver = running.is_some_and(|status| status.is_resilver());
    let pool = &session.pool;
    let answer = match request.wish {
        ScanWish::Scrub => pool.scan_start(ScanFunction::Scrub),
        ScanWish::Pause => pool.scan_pause(),
        ScanWish::Stop => pool.scan_stop(),
        // There is one: it goes on.
        ScanWish::Resilver if is_resilver => Ok(ScanAnswer::Done),
        ScanWish::Resilver => pool.scan_start(ScanFunction::Resilver),
    };
    let refused = |why| Err(Error::cannot(doing(request), why));
    let event = match (answer.map_err(fail)?, request.wish) {
        (ScanAnswer::Done | ScanAnswer::Resumed, ScanWish::Pause) => "paused",
        (ScanAnswer::Done, ScanWish::Stop) => "abort",
        (ScanAnswer::Done, ScanWish::Resilver) if is_resilver => "",
        (ScanAnswer::Done, _) => "start",
        (ScanAnswer::Resumed, _) => "resume",
        // Who began it is gone, and nobody else goes on with it.
        (ScanAnswer::Scrubbing, ScanWish::Scrub) if !session.held => "",
        (ScanAnswer::NothingLacks, _) => return session.close(doing(request)),
        (ScanAnswer::Scrubbing, _) => return refused(Why::Scrubbing),
        (ScanAnswer::Resilvering, _) => return refused(Why::Resilvering),
        (ScanAnswer::Paused, _) => return refused(Why::ScrubPaused),
        (ScanAnswer::NoScan, _) => return refused(Why::NoScrub),
    };
    if !event.is_empty() {
        let resilver = is_resilver || request.wish == ScanWish::Resilver;
        tell(&session, resilver, event);
    }
    session.note(&request.command).map_err(fail)?;
    let works = matches!(request.wish, ScanWish::Scrub | ScanWish::Resilver);
    if works && !session.held {
        run(&session.pool, progress).map_err(fail)?;
    }
    let waits = works && session.held && request.wait;
    let scanned = Arc::downgrade(&session.pool);
    session.close(doing(request))?;
    if waits { wait(here, &scanned, progress, doing(request)) } else { Ok(()) }
}

/// Ends a session after which leaves may lack something: what they do is filled, if nobody else does that, or waited for if
/// that is `wanted`.
pub(super) fn fill(
    here: &Here,
    session: Session,
    wanted: bool,
    progress: &mut dyn FnMut(&Scan) -> bool,
    doing: Doing,
) -> Result<()> {
    if !session.held {
        let pool = &session.pool;
        // What was left of an older one comes first.
        let begun = |answer| matches!(answer, ScanAnswer::Done | ScanAnswer::Resilvering);
        let filled = match pool.needs_resilver() {
            true => {
                pool.scan_start(ScanFunction::Resilver).and_then(|answer| match begun(answer) {
                    true => run(pool, progress),
                    false => Ok(()),
                })
            }
            false => Ok(()),
        };
        filled.map_err(|error| pool_error(doing.clone(), error))?;
        return session.close(doing);
    }
    let filled = Arc::downgrade(&session.pool);
    session.close(doing.clone())?;
    if !wanted {
        return Ok(());
    }
    // Its thread has not begun yet.
    let start = rt::time::now();
    let is_due = |pool: Arc<Pool>| pool.needs_resilver() && !pool.is_scanning();
    while filled.upgrade().is_some_and(is_due) && start.elapsed() < BEGIN_MAX {
        rt::time::sleep(LOOK);
    }
    wait(here, &filled, progress, doing)
}

/// Works on the scan of a pool until it is done, and on what leaves have come to lack meanwhile.
pub(super) fn run(
    pool: &Pool,
    progress: &mut dyn FnMut(&Scan) -> bool,
) -> std::result::Result<(), pool::PoolError> {
    loop {
        let mut wanted = true;
        pool.scan_run(&mut |now| {
            wanted = progress(&status::of_scan(now));
            wanted
        })?;
        if !wanted || !pool.needs_resilver() {
            return Ok(());
        }
        if pool.scan_start(ScanFunction::Resilver)? != ScanAnswer::Done {
            return Ok(());
        }
    }
}

/// Waits until the server has done it. Whoever waits does not have the pool: it can be exported meanwhile.
fn wait(
    here: &Here,
    pool: &Weak<Pool>,
    progress: &mut dyn FnMut(&Scan) -> bool,
    doing: Doing,
) -> Result<()> {
    loop {
        let Some(pool) = pool.upgrade() else {
            let why = "the pool was exported or destroyed meanwhile";
            return Err(Error::cannot(doing, Why::NotDone(why.into())));
        };
        if !pool.is_scanning() {
            return Ok(());
        }
        let now = pool.scan_status().map_err(|error| pool_error(doing.clone(), error))?;
        drop(pool);
        let ending = here.held.as_ref().is_some_and(|held| held.is_ending());
        let now = now.map(|now| status::of_scan(&now)).unwrap_or_default();
        if ending || !progress(&now) {
            return Ok(());
        }
        rt::time::sleep(LOOK);
    }
}

/// Goes on with the scans of a pool that is held, until it is let go of.
pub(super) fn work(pool: &Arc<Pool>, held: &Arc<Held>) {
    let (pool, held): (Weak<Pool>, Weak<Held>) = (Arc::downgrade(pool), Arc::downgrade(held));
    let body = move || {
        while let Some(pool) = pool.upgrade() {
            let pause = go_on(&pool, &held);
            // Whoever exports it finds nobody else with it.
            drop(pool);
            rt::time::sleep(pause);
        }
    };
    drop(rt::thread::spawn("scan", body));
}

/// Does one slice, if there is something to do; how long to wait before the next.
fn go_on(pool: &Pool, held: &Weak<Held>) -> Duration {
    let start = rt::time::now();
    let tell = |resilver: bool, what: &str| {
        let kind = if resilver { "resilver" } else { "scrub" };
        let held = held.upgrade();
        held.iter().for_each(|held| held.tell(pool, &format!("{}{kind}_{what}", events::SCAN)));
    };
    if pool.suspended().is_some() {
        return IDLE;
    }
    // Who waits for a new disk waits for redundancy: a scrub can be begun again, as with OpenZFS.
    if pool.needs_resilver() && pool.is_filling() {
        let in_the_way = pool.scan_status().ok().flatten();
        let scrub = in_the_way.filter(|now| now.is_running() && !now.is_resilver());
        if scrub.is_some() && matches!(pool.scan_stop(), Ok(ScanAnswer::Done)) {
            tell(false, "abort");
        }
    }
    if !pool.is_scanning() {
        let wanted = pool.needs_resilver();
        if wanted && matches!(pool.scan_start(ScanFunction::Resilver), Ok(ScanAnswer::Done)) {
            tell(true, "start");
        } else {
            return IDLE;
        }
    }
    let resilver = pool.scan_status().ok().flatten().is_some_and(|now| now.is_resilver());
    let busy = pool.has_changes();
    let step = if busy { pool.scan_step_within(BUSY_SLICE) } else { pool.scan_step() };
    match step {
        // Others write: they have the disks for half of the time.
        Ok(ScanStep::More) if busy => start.elapsed().max(YIELD_LEAST),
        Ok(ScanStep::More) => (start.elapsed() / YIELD_SHARE).max(YIELD_LEAST),
        Ok(ScanStep::Later) => {
            // What it waits for comes with the next txg, and nobody else may ask for one.
            let _ = pool.sync();
            YIELD_LEAST
        }
        Ok(ScanStep::Done) => {
            tell(resilver, "finish");
            YIELD_LEAST
        }
        Ok(ScanStep::Idle) | Err(_) => IDLE,
    }
}

#[cfg(test)]
mod tests {
    use testkit::{fresh_images, temp_dir};

    use super::*;
    use crate::local::held::tests::{becomes, mirror_and_spare};
    use crate::state::StateFile;
    use crate::{Engine, Local, disks, pools};

    fn wished(wish: ScanWish, wait: bool) -> ScanRequest {
        let (name, places, command) = ("tank".to_owned(), Vec::new(), String::new());
        ScanRequest { name, wish, wait, places, command }
    }

    /// What became of scans, in order.
    fn told_of_scans(held: &Held) -> Vec<String> {
        let told: Vec<_> = held.events().after(0).iter().map(|event| event.class()).collect();
        let of_scan = |name: &&str| name.starts_with("scrub_") || name.starts_with("resilver_");
        let names = told.iter().filter_map(|class| class.strip_prefix(events::SCAN));
        names.filter(of_scan).map(str::to_owned).collect()
    }

    /// Seen red: the pool was busy for as long as somebody waited for its scrub.
    #[test]
    fn who_waits_for_a_scrub_does_not_keep_the_pool() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        // One that takes hours.
        pool.scan_hush(true);
        let mut engine = Local::new(state).holding(held);
        let scrub = wished(ScanWish::Scrub, true);
        let mut waiting = engine.clone();
        let waits = move || waiting.pool_scan(&scrub, &mut |_| true);
        let waits = rt::thread::spawn("scrub", waits);
        let start = rt::time::now();
        while !pool.is_scanning() && start.elapsed() < BEGIN_MAX {
            rt::time::sleep(Duration::from_millis(1));
        }
        drop(pool);
        let names = vec!["tank".to_owned()];
        let export = pools::Export { names, ..Default::default() };
        let errors: Vec<_> =
            engine.pool_export(&export).unwrap().iter().map(Error::to_string).collect();
        assert_eq!(errors, [""; 0]);
        let ended = waits.join().map_err(|error| error.to_string());
        let why = "cannot scrub tank: the pool was exported or destroyed meanwhile";
        assert_eq!(ended, Err(why.to_owned()));
    }

    /// Seen red: whoever mails that a scrub is done told of one that was stopped.
    #[test]
    fn a_scrub_that_is_stopped_is_not_told_of_as_done() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        pool.scan_hush(true);
        let mut engine = Local::new(state.clone()).holding(held.clone());
        for wish in [ScanWish::Scrub, ScanWish::Stop] {
            engine.pool_scan(&wished(wish, false), &mut |_| true).expect("it is done");
        }
        drop(pool);
        assert_eq!(told_of_scans(&held), ["scrub_start", "scrub_abort"]);
        assert_eq!(held.close(&state).len(), 0);
    }

    /// A disk that is new is redundancy that is wanted; a scrub can be begun again.
    #[test]
    fn a_scrub_gives_way_to_a_new_disk() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, images) = mirror_and_spare(&held, state.clone());
        pool.scan_hush(true);
        let mut engine = Local::new(state.clone()).holding(held.clone());
        engine.pool_scan(&wished(ScanWish::Scrub, false), &mut |_| true).expect("it begins");
        let new = fresh_images(1, 64 << 20);
        let attach = disks::Change {
            name: "tank".into(),
            device: images.disk(0).display().to_string(),
            act: disks::Act::Attach(new.disk(0)),
            force: false,
            wait: false,
            places: Vec::new(),
            command: String::new(),
        };
        engine.pool_disk(&attach, &mut |_| true).expect("it is attached");
        assert!(becomes(|| told_of_scans(&held).len() >= 3), "{:?}", told_of_scans(&held));
        assert_eq!(told_of_scans(&held)[..3], ["scrub_start", "scrub_abort", "resilver_start"]);
        pool.scan_hush(false);
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
