//! `verify`: the judge's report in the words of the doors.
//!
//! The one idea: a pool that changes while it is judged is called lost though it is fine. So no verdict is given of
//! one that somebody holds, nobody can begin to write it until the judge is done, and that it was written all the
//! same, by a kernel, which asks for no locks of files, is told by its newest uberblock.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use pool::devices::scan;

use crate::judge::{DeviceDamage, FileDamage, Progress, Verdict, Verify, VerifyReport};
use crate::{Doing, Error, Result, Why};

use super::Here;
use super::located::{Located, locate};
use super::session::pool_error;

/// How often a pool is looked for, if it has other devices each time.
const LOOKS_MAX: usize = 16;

/// Runs the judge over a pool. The pool itself is not opened: a judge asks nobody.
pub(super) fn verify(
    here: &Here,
    request: &Verify,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<VerifyReport> {
    let (mut located, still) = keep_still(here, request)?;
    for disk in &request.at_risk {
        let unknown = || Error::Other(format!("no such device in pool: {disk}"));
        located.without(disk).then_some(()).ok_or_else(unknown)?;
    }
    let found = located.found();
    let doing = || Doing::Open(request.name.clone());
    let keep = request.keep.clone().map(verify::Keep::new);
    let past = here.rescue.as_ref().is_some_and(|rescue| rescue.txg.is_some());
    let options = verify::Options { memory: request.memory, keep, past, ..Default::default() };
    let before = still.newest_txg(found.guid());
    let mut told = |p: verify::Progress| progress(Progress { done: p.bytes, total: p.bytes_total });
    let report = verify::verify_pool(found, &options, &mut told).map_err(|error| match error {
        verify::VerifyError::Vdev(error) => pool_error(doing(), error.into()),
        verify::VerifyError::Abandoned => Error::Other(error.to_string()),
        kept => Error::cannot(Doing::Verify(request.name.clone()), Why::Damaged(kept.to_string())),
    })?;
    let after = still.newest_txg(found.guid());
    if let (Some(before), Some(after)) = (before, after)
        && before != after
    {
        let why = format!("it was written while it was judged: at txg {before}, then at {after}");
        return Err(refused(request, why));
    }
    let files = report.lost_files().map(|file| FileDamage {
        dataset: file.dataset.clone(),
        path: file.path.clone(),
        bytes: file.lost_bytes,
    });
    let devices = report.devices.iter().map(|device| DeviceDamage {
        device: device.device.clone(),
        guid: device.guid,
        missing: device.missing,
        labels: device.labels.clone(),
        rings: device.rings.clone(),
        read_errors: device.read_errors,
        bad_blocks: device.bad_blocks,
        lacks_txgs: device.lacks_txgs,
    });
    Ok(VerifyReport {
        name: request.name.clone(),
        verdict: match report.verdict {
            verify::Verdict::Clean => Verdict::Clean,
            verify::Verdict::Whole => Verdict::Whole,
            verify::Verdict::Lost => Verdict::Lost,
        },
        txg: report.txg,
        blocks: report.blocks,
        bytes: report.bytes,
        datasets: report.datasets,
        encrypted: report.encrypted.clone(),
        devices: devices.collect(),
        files: files.collect(),
        findings: report.findings.iter().map(|f| f.text.clone()).collect(),
        notes: report.notes,
    })
}

fn refused(request: &Verify, why: String) -> Error {
    Error::cannot(Doing::Verify(request.name.clone()), Why::NotDone(why))
}

/// The devices of a pool that nobody of us can write as long as this is there.
struct Still {
    paths: Vec<PathBuf>,
    locked: Vec<File>,
}

impl Still {
    /// Asks for a lock beside which nobody gets the one of those who write; `false`: somebody has that.
    fn lock(paths: Vec<PathBuf>) -> (Still, bool) {
        let mut still = Still { paths, locked: Vec::new() };
        let mut free = true;
        for file in still.paths.iter().filter_map(|path| File::open(path).ok()) {
            match file.try_lock_shared() {
                // Where there are no locks, nobody can be asked.
                Ok(()) | Err(TryLockError::Error(_)) => still.locked.push(file),
                Err(TryLockError::WouldBlock) => free = false,
            }
        }
        (still, free)
    }

    /// The newest uberblock's txg of the pool, as its devices have it now.
    fn newest_txg(&self, guid: u64) -> Option<u64> {
        let now = scan(&self.paths).ok()?;
        let pool = now.pools.iter().find(|pool| pool.guid() == guid)?;
        pool.uberblocks.first().map(|uberblock| uberblock.txg.get())
    }
}

impl Drop for Still {
    /// A program that another thread is about to start holds copies of the descriptors until it has begun.
    fn drop(&mut self) {
        // One that cannot be given back goes with the last descriptor.
        self.locked.iter().for_each(|file| drop(file.unlock()));
    }
}

/// Finds the pool, and has nobody change it from before it was looked at.
fn keep_still(here: &Here, request: &Verify) -> Result<(Located, Still)> {
    let mut still: Option<Still> = None;
    for _ in 0..LOOKS_MAX {
        let located = locate(here, &request.name, &request.places)?;
        // The rescue door looks at the disks alone.
        let served = here.held.as_ref().and_then(|held| held.located(&request.name));
        let served = served.is_some_and(|held| held.found().guid() == located.found().guid());
        if located.is_held() || served {
            let why =
                "it is served, and changes while it is judged; stop the server, or export the pool";
            return Err(refused(request, why.into()));
        }
        let paths = located.paths();
        let is_still = |still: &mut Still| paths.iter().all(|path| still.paths.contains(path));
        if let Some(still) = still.take_if(is_still) {
            return Ok((located, still));
        }
        let (locked, free) = Still::lock(paths);
        if !free {
            let why = "another process is writing it, and it changes while it is judged";
            return Err(refused(request, why.into()));
        }
        still = Some(locked);
    }
    Err(refused(request, "its devices change all the time".into()))
}

#[cfg(test)]
mod tests {
    use testkit::{fresh_images, temp_dir};

    use super::*;
    use crate::layout::{Class, Group, GroupKind, Layout};
    use crate::state::StateFile;
    use crate::{Engine, Local, datasets, pools};

    /// A kernel asks for no locks of files. What it does is done here by putting its bytes there.
    #[test]
    fn there_is_no_verdict_of_what_is_written_meanwhile() {
        let (images, dir) = (fresh_images(1, 64 << 20), temp_dir());
        let mut engine = Local::new(StateFile::new(dir.path().join("pools")));
        let devices = images.disks();
        let group = Group { kind: GroupKind::Single, class: Class::Normal, devices };
        let layout = Layout { groups: vec![group], ..Layout::default() };
        let create = pools::Create { name: "tank".into(), layout, ..Default::default() };
        engine.pool_create(&create).expect("a pool");
        let disk = images.disk(0);
        let read = || std::fs::read(&disk).expect("it is read");
        let write = |bytes: &[u8]| std::fs::write(&disk, bytes).expect("it is written");
        let before = read();
        let create = datasets::Create { name: "tank/a".into(), ..Default::default() };
        engine.dataset_create(&create).expect("a data set");
        let after = read();
        write(&before);
        let (name, places) = ("tank".to_owned(), Vec::new());
        let request = Verify { name, places, memory: 256 << 20, keep: None, at_risk: Vec::new() };
        let judge = |mut meanwhile: Option<&[u8]>| {
            let mut told = |_| {
                meanwhile.take().into_iter().for_each(write);
                true
            };
            verify(&engine.here, &request, &mut told).map(|report| report.verdict)
        };
        assert_eq!(judge(None).expect("a verdict"), Verdict::Clean);
        let refused = judge(Some(&after)).map_err(|error| error.to_string()).unwrap_err();
        assert!(refused.contains("it was written while it was judged: at txg "), "{refused}");
        assert_eq!(judge(None).expect("a verdict"), Verdict::Clean);
    }
}
