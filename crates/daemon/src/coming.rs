//! The pools of a server, as they come.
//!
//! The one idea: each is opened by a thread of its own, so one whose devices do not answer is waited for, and keeps no other
//! from being served. What is not there when the server begins to serve is taken when it comes.

use std::collections::BTreeSet;
use std::time::Duration;

use rt::sync::Arc;
use rt::sync::mpsc::{Receiver, RecvError, Sender, bounded};
use verbs::{Held, Local, Why};

use crate::log::Form;

/// How long the server waits for its pools before it serves those that it has.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether somebody wants the server to end, meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether the devices of a pool have come that had none.
const LATE: Duration = Duration::from_secs(1);

/// What has become of a pool that was to be opened: why it can only be read, if so.
type Outcome = verbs::Result<Option<String>>;

/// The pools that are not there yet.
pub(crate) struct Coming {
    engine: Local,
    held: Arc<Held>,
    log: Form,
    /// Those that are being opened.
    under_way: BTreeSet<String>,
    /// Those whose devices were not there.
    late: BTreeSet<String>,
    tell: Sender<(String, Outcome)>,
    told: Receiver<(String, Outcome)>,
}

impl Coming {
    /// Begins to open these.
    pub(crate) fn begin(engine: &Local, held: &Arc<Held>, log: Form, names: &[String]) -> Coming {
        let (tell, told) = bounded(names.len());
        let (engine, held) = (engine.clone(), held.clone());
        let (under_way, late) = Default::default();
        let mut coming = Coming { engine, held, log, under_way, late, tell, told };
        names.iter().for_each(|name| coming.open(name.clone()));
        coming
    }

    /// Opens one beside the others; without a thread at once.
    fn open(&mut self, name: String) {
        if !self.under_way.insert(name.clone()) {
            return;
        }
        let open = |engine: &Local, tell: &Sender<_>, name: String| {
            let outcome = engine.hold(&name);
            // Whoever does not hear it any more has nothing to do with it.
            drop(tell.send((name, outcome)));
        };
        let (engine, tell, of) = (self.engine.clone(), self.tell.clone(), name.clone());
        if rt::thread::try_spawn("opens", move || open(&engine, &tell, of)).is_err() {
            open(&self.engine, &self.tell, name);
        }
    }

    /// Waits until all have come, or are not to be had now, and mounts what is in them; not for longer than
    /// [`PATIENCE`], nor if somebody wants that to end. If `all` have to come: why one cannot.
    pub(crate) fn wait(&mut self, all: bool, mut ends: impl FnMut() -> bool) -> verbs::Result<()> {
        let (start, mut failed) = (rt::time::now(), Ok(()));
        while !self.under_way.is_empty() && start.elapsed() < PATIENCE {
            if ends() {
                return failed;
            }
            let Ok((name, outcome)) = self.told.recv_timeout(LOOK) else { continue };
            self.under_way.remove(&name);
            match outcome {
                Ok(None) => self.log.say(format!("pool '{name}' is served")),
                Ok(Some(why)) => {
                    self.log.say(format!("pool '{name}' is served for reading: {why}"));
                }
                Err(error) if all => failed = failed.and(Err(error)),
                Err(error) => self.is_not_served(name, &error),
            }
        }
        failed?;
        for name in &self.under_way {
            self.log.say(format!("pool '{name}' is not served before its devices have answered"));
        }
        // All at once: what is in one pool may belong inside what is in another.
        self.mount_all();
        Ok(())
    }

    fn is_not_served(&mut self, name: String, error: &verbs::Error) {
        self.log.say(format!("pool '{name}' is not served: {error}"));
        if may_come(error) {
            self.late.insert(name);
        }
    }

    fn mount_all(&mut self) {
        self.engine.mount_all().iter().for_each(|error| self.log.say(error.to_string()));
    }

    /// Takes those that are not there yet when they come, beside the caller.
    pub(crate) fn follow(mut self) {
        let follow = move || {
            while !self.late.is_empty() || !self.under_way.is_empty() {
                match self.told.recv_timeout(LATE) {
                    Ok((name, outcome)) => self.hear(name, outcome),
                    Err(_) if self.held.is_ending() => return,
                    Err(RecvError::Timeout | RecvError::Disconnected) => self.try_again(),
                }
            }
        };
        // Without a thread it is as if they never came.
        drop(rt::thread::try_spawn("latecomers", follow));
    }

    fn hear(&mut self, name: String, outcome: Outcome) {
        self.under_way.remove(&name);
        match outcome {
            Ok(reason) => {
                let why = reason.map_or_else(String::new, |why| format!(" for reading: {why}"));
                self.log.say(format!("pool '{name}' has come and is served{why}"));
                self.mount_all();
            }
            // That was said when it was tried first.
            Err(error) if may_come(&error) => drop(self.late.insert(name)),
            Err(error) => self.is_not_served(name, &error),
        }
    }

    fn try_again(&mut self) {
        let Ok(state) = self.engine.state().load() else { return };
        for name in std::mem::take(&mut self.late) {
            // Somebody may have exported it, or taken it by another way.
            if state.pool(&name).is_some() && self.held.pool(&name).is_none() {
                self.open(name);
            }
        }
    }
}

/// May a pool that did not open for this be had later?
fn may_come(error: &verbs::Error) -> bool {
    matches!(error.why(), Some(Why::Unavailable | Why::Held))
}
