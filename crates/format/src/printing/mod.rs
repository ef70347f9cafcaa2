//! Structures as text, in the layout of zdb: what people compare with its output.
//!
//! The one idea: each function wraps a structure and gives something that displays it. Bytes of
//! unknown origin never reach a terminal as they are: see [`text`].

mod blkptr;
mod compact;
mod list;
mod uberblock;

#[cfg(test)]
mod tests;

use std::fmt;

pub use blkptr::blkptr;
pub use compact::compact;
pub use list::list;
pub use uberblock::uberblock;

/// Something to display, as a closure.
struct Shown<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// A name or string: UTF-8 as it is; control characters and other bytes as `\x1b`.
pub fn text(bytes: &[u8]) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        let escape = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    })
}

/// A time in seconds since 1970 as C's `asctime` has it, in UTC: `Wed May  1 00:01:12 2024`.
pub fn utc(seconds: u64) -> impl fmt::Display {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    Shown(move |f: &mut fmt::Formatter<'_>| {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let weekday = DAYS.get((days % 7) as usize).unwrap_or(&"");
        // Years are counted from March, so that the leap day is the last one: of 400 years (an
        // era), of 100, of 4, of one. 719,468 days lie between March of year 0 and 1970.
        let from_march = days + 719_468;
        let (era, day) = (from_march / 146_097, from_march % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let year = era * 400 + year + u64::from(month >= 10);
        let month = MONTHS.get(month as usize).unwrap_or(&"");
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
    })
}
