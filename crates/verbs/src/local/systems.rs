//! File systems of a held pool that clients work in, open until a data set changes.
//!
//! The one idea: nothing that is remembered here changes but by a task of the pool's. It was read after those were counted,
//! and goes as soon as their number is another.

use std::collections::{BTreeMap, BTreeSet};

use fs::{Filesystem, FsError};
use pool::Pool;
use pool::dsl::lookup;
use rt::sync::{Arc, Mutex};

/// A file system, and what there is to know of it for every path through it.
pub struct System {
    /// It.
    pub fs: Arc<Filesystem>,
    /// Digests of its files are made while they are written.
    pub makes_digests: bool,
    /// Names of the data sets right below it.
    pub below: BTreeSet<String>,
}

impl System {
    fn open(pool: &Arc<Pool>, name: &str) -> Result<System, FsError> {
        let fs = Arc::new(Filesystem::open(pool, name)?);
        let found = lookup::find(pool.mos(), name)?;
        let below = match found.is_snapshot() {
            true => Vec::new(),
            false => lookup::children(pool.mos(), found.dir_object, &found.dir)?,
        };
        let below = below.into_iter().map(|(name, _)| name);
        let below = below.filter(|name| lookup::is_shown(name)).collect();
        Ok(System { makes_digests: fs.wants_digests()?, fs, below })
    }
}

/// Those of a pool, by name.
#[derive(Clone, Default)]
pub(super) struct Systems(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// How many tasks the pool had run.
    tasks: u64,
    by_name: BTreeMap<String, Arc<System>>,
}

impl Systems {
    pub(super) fn get(&self, pool: &Arc<Pool>, name: &str) -> Result<Arc<System>, FsError> {
        let tasks = pool.tasks();
        {
            let mut known = self.0.lock();
            if known.tasks < tasks {
                *known = Known { tasks, ..Known::default() };
            }
            if known.tasks == tasks
                && let Some(system) = known.by_name.get(name)
            {
                return Ok(system.clone());
            }
        }
        let system = Arc::new(System::open(pool, name)?);
        let mut known = self.0.lock();
        if known.tasks == tasks {
            known.by_name.insert(name.to_string(), system.clone());
        }
        Ok(system)
    }

    /// Closes those that nobody works in.
    pub(super) fn forget(&self) {
        self.0.lock().by_name.clear();
    }
}
