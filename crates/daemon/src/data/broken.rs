//! Files that a server that died may have left in part.
//!
//! The one idea: what clients were told is written, and nobody made stable, is lost with the server. Who asks through
//! a handle that was open then is told. A client of XRootD's is not: it opens the file anew when its connection is
//! gone, after a boot as well, sends what it was not told of, and the rest stays a hole. On disk such a file is like
//! any other, but for its time: it was changed shortly before the pool was opened, and by nobody since. So that it
//! has that time, a file that was there before is stamped, and the stamp is stable, before anybody writes.

use std::time::Duration;

use format::znode::Time;

/// How long before. XRootD's clients give up after half an hour.
const SHORTLY: Duration = Duration::from_secs(3600);
/// A time may lie so far ahead: clocks are put right.
const AHEAD: Duration = Duration::from_secs(60);

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
