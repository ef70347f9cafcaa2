//! Pools that this process holds: opened once, for all its commands, until they are exported or it ends.
//!
//! The one idea: a command asks for a pool by name and gets a session, and does not see whether the pool was
//! opened for it alone or is held. What a held pool's session changed is on disk when it ends, as ever; only the
//! pool stays open.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pool::devices::Scan;
use pool::{Pool, PoolError};
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Arc, Mutex, MutexGuard};

use super::Here;
use super::session::{self, For, Located, Session};
use crate::state::Known;
use crate::{Doing, Error, Result, Why};

/// How long an export waits for commands that have the pool in use.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// One of them, with what there is to know of it.
#[derive(Clone)]
struct One {
    pool: Arc<Pool>,
    scan: Arc<Scan>,
    index: usize,
    known: Option<Known>,
}

/// All of them, by name.
#[derive(Default)]
pub struct Held {
    pools: Mutex<BTreeMap<String, One>>,
    /// One pool at a time comes or goes.
    coming: Mutex<()>,
    ending: AtomicBool,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Held {
    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.pools.lock().keys().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.lock().get(name).map(|one| one.pool.clone())
    }

    /// Who holds them is about to close them: commands that only wait need not.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Those that commands may change come and go under this lock.
    pub(super) fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.coming.lock()
    }

    pub(super) fn located(&self, name: &str) -> Option<Located> {
        let One { pool, scan, index, known } = self.pools.lock().get(name)?.clone();
        Some(Located::held(pool, scan, index, known))
    }

    /// Takes in a pool that a session has opened.
    fn take_in(&self, session: Session) {
        let Session { pool, scan, index, known, .. } = session;
        let name = pool.name().to_string();
        self.pools.lock().insert(name, One { pool, scan, index, known });
    }

    /// Gives a pool up, once nobody else has it in use, and leaves it to the caller to close.
    pub(super) fn give_up(&self, name: &str, doing: &Doing) -> Result<()> {
        let start = rt::time::now();
        loop {
            {
                let mut pools = self.pools.lock();
                let Some(one) = pools.get(name) else { return Ok(()) };
                // This list, and the session that is to end it.
                if Arc::strong_count(&one.pool) <= 2 {
                    pools.remove(name);
                    return Ok(());
                }
            }
            if start.elapsed() > PATIENCE {
                return Err(Error::cannot(doing.clone(), Why::PoolBusy));
            }
            rt::time::sleep(LOOK);
        }
    }

    /// Puts on stable storage what was changed; what could not be, by name.
    pub fn sync(&self) -> Vec<(String, PoolError)> {
        let pools: Vec<_> = self.pools.lock().values().map(|one| one.pool.clone()).collect();
        let changed = pools.iter().filter(|pool| pool.has_changes());
        let failed = |pool: &Arc<Pool>| Some((pool.name().to_string(), pool.sync().err()?));
        changed.filter_map(failed).collect()
    }

    /// Closes all of them; what went wrong, by name. They stay remembered.
    pub fn close(&self) -> Vec<(String, PoolError)> {
        let _alone = self.one_at_a_time();
        let pools = std::mem::take(&mut *self.pools.lock());
        let failed = |(name, one): (String, One)| Some((name, one.pool.close().err()?));
        pools.into_iter().filter_map(failed).collect()
    }
}

impl Here {
    /// Opens a remembered pool to be held; nothing if it is, or if this process holds none. Why it can only be
    /// read, if so.
    pub(super) fn hold(&self, name: &str) -> Result<Option<String>> {
        let Some(held) = &self.held else { return Ok(None) };
        if held.pool(name).is_some() {
            return Ok(None);
        }
        let (session, reason) = match session::open(self, name, &[], For::Writing) {
            Ok(session) => (session, None),
            Err(error) => match error.why() {
                Some(Why::ReadOnly(reason)) => {
                    (session::open(self, name, &[], For::Reading)?, Some(reason.clone()))
                }
                _ => return Err(error),
            },
        };
        held.take_in(session);
        Ok(reason)
    }
}
