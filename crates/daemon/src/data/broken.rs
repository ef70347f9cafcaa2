//! Files that a server or a client that died may have left in part.
//!
//! The one idea: what clients were told is written, and nobody made stable, is lost with the server. Who asks through
//! a handle that was open then is told. A client of XRootD's is not: it opens the file anew when its connection is
//! gone, after a boot as well, sends what it was not told of, and the rest stays a hole. On disk such a file is like
//! any other, but for its time: it was changed shortly before the pool was opened, and by nobody since. So that it
//! has that time, a file that was there before is stamped, and the stamp is stable, before anybody writes.
//!
//! XRootD itself tells its clients that bytes are written which are under way to the server yet, or are kept for the close. If
//! it dies and the server lives on it is the same for them: what it had open then, as who goes on with what is not broken, is
//! held against them for as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use format::znode::Time;
use rt::sync::Mutex;

use super::tree::Place;

/// How long before. XRootD's clients give up after half an hour.
const SHORTLY: Duration = Duration::from_secs(3600);
/// A time may lie so far ahead: clocks are put right.
const AHEAD: Duration = Duration::from_secs(60);

/// Files that clients had open to be written when they went away, at most.
const LEFT_MAX: usize = 1 << 16;

/// A file: pool, data set, object.
type Key = (u64, u64, u64);

fn key(of: &Place) -> Key {
    (of.fs.pool().guid(), of.fs.dataset().object, of.object)
}

/// When clients went away that had files open to be written, by the clock on the wall.
#[derive(Default)]
pub(super) struct Left(Mutex<Times>);

#[derive(Default)]
struct Times {
    by_file: BTreeMap<Key, Duration>,
    /// The same, the oldest first: a client may have had thousands open.
    by_time: BTreeSet<(Duration, Key)>,
}

impl Times {
    fn note(&mut self, of: Key, now: Duration) {
        let is_over = |since: Duration| now.saturating_sub(since) >= SHORTLY;
        while let Some((_, oldest)) = self.by_time.first().filter(|(since, _)| is_over(*since)) {
            self.forget(*oldest);
        }
        self.forget(of);
        if self.by_file.len() >= LEFT_MAX
            && let Some((_, oldest)) = self.by_time.first()
        {
            self.forget(*oldest);
        }
        self.by_file.insert(of, now);
        self.by_time.insert((now, of));
    }

    fn forget(&mut self, of: Key) {
        if let Some(since) = self.by_file.remove(&of) {
            self.by_time.remove(&(since, of));
        }
    }
}

impl Left {
    /// A client has gone without closing this.
    pub(super) fn note(&self, of: &Place, now: Duration) {
        self.0.lock().note(key(of), now);
    }

    /// May something of a file that was changed last at `changed` be lost with a client?
    pub(super) fn may_be_broken(&self, of: &Place, changed: Time, now: Duration) -> bool {
        let since = self.0.lock().by_file.get(&key(of)).copied();
        since.is_some_and(|since| may_be(changed, now, now.saturating_sub(since)))
    }
}

/// May something of a file that was changed last at `changed` be lost with a server, if its pool is held for so
/// long at `now`, its logs worked off?
pub(super) fn may_be(changed: Time, now: Duration, held_for: Duration) -> bool {
    let nanos = |secs: i64, nanos: u32| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    let span =
        |time: Duration| nanos(time.as_secs().try_into().unwrap_or(i64::MAX), time.subsec_nanos());
    let ago = span(now) - nanos(changed.secs, changed.nanos);
    let since = -span(AHEAD)..span(held_for);
    !since.contains(&ago) && ago < span(held_for) + span(SHORTLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen red, by the clock: each looked at all of them, 17 seconds for what one client had open.
    #[test]
    fn the_oldest_are_forgotten() {
        let (mut times, now) = (Times::default(), Duration::from_secs(10_000));
        let many = LEFT_MAX as u64 + 10;
        (0..many).for_each(|file| times.note((1, 2, file), now + Duration::from_millis(file)));
        times.note((1, 2, 10), now + Duration::from_secs(100));
        let kept = |times: &Times| times.by_file.keys().map(|key| key.2).collect::<Vec<_>>();
        assert_eq!(kept(&times), (10..many).collect::<Vec<_>>());
        times.note((1, 2, 0), now + Duration::from_secs(110));
        assert_eq!(kept(&times)[..3], [0, 10, 12]);
        times.note((1, 2, 3), now + SHORTLY + Duration::from_secs(99));
        assert_eq!(kept(&times), [0, 3, 10]);
        assert_eq!(times.by_time.len(), 3);
    }

    #[test]
    fn changed_before_the_pool_was_opened_and_not_since() {
        let now = Duration::from_secs(1_000_000);
        let ago = |secs: i64| {
            may_be(Time { secs: 1_000_000 - secs, nanos: 0 }, now, Duration::from_secs(100))
        };
        assert_eq!([ago(0), ago(99), ago(-59)], [false; 3], "since");
        assert_eq!([ago(100), ago(101), ago(3699)], [true; 3], "shortly before");
        assert_eq!([ago(3700), ago(1_000_000)], [false; 2], "long before");
        // The clock is wrong: now, or then.
        assert_eq!([ago(-61), ago(-1_000_000)], [true; 2]);
    }
}
