//! Stays with a pool that is changed: when its devices fail beyond redundancy, it says so and tries them again.
//!
//! The one idea: the engine waits in the middle of a txg, so all there is to do is to knock. What the pool's
//! property `failmode` says decides: `wait` waits, with the others the verb ends with the error at once.

use std::sync::OnceLock;
use std::time::Duration;

use pool::{Pool, PoolError, Stored};
use rt::sync::Arc;

/// How often it is looked whether the pool is suspended.
const LOOK: Duration = Duration::from_millis(100);
/// How many looks lie between two attempts.
const LOOKS_PER_ATTEMPT: u32 = 20;

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// What is told of a suspended pool, and of slow devices, goes here: one for the process, since it concerns all that it does.
static TELL: OnceLock<Tell> = OnceLock::new();

/// Who hears of pools that are suspended and go on. Without one nobody is told, and pools wait all the same.
pub fn on_suspended(tell: impl Fn(&str) + Send + Sync + 'static) {
    // The first one stays: a process has one place for such news.
    drop(TELL.set(Box::new(tell)));
}

/// Tells whoever listens.
pub(super) fn say(line: &str) {
    TELL.get().into_iter().for_each(|tell| tell(line));
}

/// Says which devices have left a pool and still look like parts of it.
pub(super) fn say_unlabelled(pool: &Pool) {
    for gone in pool.take_unlabelled() {
        let (pool, path, error) = (pool.name(), gone.path, gone.error);
        say(&format!("pool '{pool}': '{path}' has left it and keeps its label: {error}"));
    }
}

/// Has a pool wait for its devices from now on, or not, as its property says. Whoever waits is let go then.
pub(super) fn obey(pool: &Pool) -> Result<(), PoolError> {
    let properties = pool.pool_properties()?;
    // 0, the default, is `wait`.
    let other =
        |(name, value): &(String, Stored)| name == "failmode" && *value != Stored::Number(0);
    pool.set_patient(!properties.iter().any(other))
}

/// Makes an open pool wait for its devices, as long as its property says so.
pub(super) fn keep(pool: &Arc<Pool>) -> Result<(), PoolError> {
    obey(pool)?;
    let Some(gate) = pool.gate().map(Arc::downgrade) else { return Ok(()) };
    let name = pool.name().to_string();
    let body = move || {
        let mut told = 0u32;
        loop {
            rt::time::sleep(LOOK);
            // Of the pool itself it holds nothing, or its devices would stay locked.
            let Some(gate) = gate.upgrade() else { return };
            match gate.reason() {
                None if told > 0 => {
                    say(&format!("pool '{name}' goes on"));
                    told = 0;
                }
                None => {}
                Some(reason) => {
                    if told == 0 {
                        say(&format!(
                            "pool '{name}' is suspended: {reason}\n\
                             It goes on when its devices are back. What it has acknowledged is on disk; \
                             an interrupt lets go of the rest."
                        ));
                    }
                    told += 1;
                    if told.is_multiple_of(LOOKS_PER_ATTEMPT) {
                        gate.resume();
                    }
                }
            }
        }
    };
    // It ends when the pool does; nobody waits for it.
    drop(rt::thread::spawn("keeper", body));
    Ok(())
}
