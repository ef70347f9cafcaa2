//! `mount unmount`: a file system as a directory of the host, served by this process.
//!
//! The one idea: a mount ends by being unmounted, whoever asks for it. Then the pool is closed as after any other
//! command; who unmounts waits for that, so that his next command finds the pool free.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use fuse::{MountError, Mounted, Options, Signals};
use rt::sync::mpsc;

use super::Here;
use super::files::fs_error;
use super::filesystems::pool_of;
use super::located::locate;
use super::opening::{For, open};
use super::places::clear_remains;
use super::session::Session;
use crate::mounts::{Mount, News, Unmount};
use crate::{Doing, Error, Result, Why};

/// How often it is looked whether somebody wants the end.
const LOOK: Duration = Duration::from_millis(100);
/// How often what has changed is put on disk, as in OpenZFS.
const TXG_TIMEOUT: Duration = Duration::from_secs(5);
/// How long who was asked to end waits for files that are in use.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// How long who has unmounted waits for the pool to be let go.
const CLOSE_MAX: Duration = Duration::from_secs(120);

pub(super) fn mount_error(what: &'static str, name: String, error: MountError) -> Error {
    match error {
        MountError::Fs(error) => fs_error(what, &name, error),
        other => Error::cannot(Doing::File(what, name), Why::Host(other.to_string())),
    }
}

pub(super) fn mount(here: &Here, request: &Mount, tell: &mut dyn FnMut(News)) -> Result<()> {
    let name = &request.dataset;
    let doing = Doing::File("mount", name.clone());
    let host = |e: std::io::Error| Error::cannot(doing.clone(), Why::Host(e.to_string()));
    // Before any thread is started: all of them are to leave signals to the one that waits for them. A server has
    // its own way with them.
    let signals = match here.held {
        None => Some(Signals::hold_back().map_err(host)?),
        Some(_) => None,
    };
    let reading = request.read_only || name.contains('@');
    let mode = if reading { For::Reading } else { For::Writing };
    let session = open(here, pool_of(name), &request.dirs, mode)?;
    clear_remains(&request.dir);
    let options = Options { read_only: reading, ..Options::default() };
    let mounted = fuse::mount(&session.pool, name, &request.dir, &options)
        .map_err(|e| mount_error("mount", name.clone(), e))?;
    tell(News::Mounted { dataset: name.clone(), dir: mounted.dir().to_path_buf() });
    serve(&session, mounted, signals, tell);
    session.close(doing)
}

/// Serves until it is unmounted, or a signal asks for the end.
fn serve(
    session: &Session,
    mounted: Mounted,
    signals: Option<Signals>,
    tell: &mut dyn FnMut(News),
) {
    let (send, asked) = mpsc::bounded(1);
    // It waits until the process ends. Who asks twice does not want to wait for a pool that is suspended.
    if let Some(signals) = signals {
        drop(rt::thread::spawn("signals", move || {
            drop(signals.wait());
            drop(send.send(()));
            drop(signals.let_through());
            loop {
                rt::time::sleep(BUSY_MAX);
            }
        }));
    }
    let mut synced = rt::time::now();
    while !mounted.has_ended(LOOK) {
        if synced.elapsed() >= TXG_TIMEOUT {
            // What goes wrong is told to who asks for something to be stable.
            if session.pool.has_changes() {
                drop(session.pool.sync());
            }
            synced = rt::time::now();
        }
        if asked.try_recv().is_err() {
            continue;
        }
        match mounted.unmount(false) {
            // Until it has ended: it may be mounted elsewhere, too, and is served there.
            Ok(()) => {}
            // It was unmounted just now.
            Err(MountError::NotOurs(_)) if mounted.has_ended(BUSY_MAX) => return,
            Err(_) => {
                tell(News::Busy(mounted.dir().to_path_buf()));
                drop(mounted.unmount(true));
                // What is in use then ends with the process.
                let _ = mounted.has_ended(BUSY_MAX);
                return;
            }
        }
    }
}

pub(super) fn unmount(here: &Here, request: &Unmount) -> Result<()> {
    let shown = request.dir.display().to_string();
    let name = fuse::unmount(&request.dir, request.lazily)
        .map_err(|e| mount_error("unmount", shown, e))?;
    // A server keeps the pool.
    if request.lazily || here.held.is_some() {
        return Ok(());
    }
    // Who cannot find the pool cannot wait for it either.
    let devices: Vec<PathBuf> = match locate(here, pool_of(&name), &request.dirs) {
        Ok(located) => located.paths(),
        Err(_) => Vec::new(),
    };
    let start = rt::time::now();
    while start.elapsed() < CLOSE_MAX && devices.iter().any(is_held) {
        rt::time::sleep(LOOK / 10);
    }
    Ok(())
}

/// Has somebody opened the device for writing? Whoever has holds a lock.
fn is_held(path: &PathBuf) -> bool {
    use rustix::fs::{FlockOperation, flock};
    let Ok(device) = File::open(path) else { return false };
    flock(&device, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
