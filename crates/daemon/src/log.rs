//! What the server says of itself: a line each, for people, or as JSON.
//!
//! Nobody waits for standard error: it may be a pipe that is not read. A thread of its own writes the lines; those
//! that find too many before them are left out, and counted.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use rt::sync::{Arc, Condvar, Mutex};

/// Lines that may wait.
const LINES_MAX: usize = 1000;

/// How long the last lines are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `2026-01-31T23:59:59Z pool 'tank' is served`
    #[default]
    Text,
    /// `{"time":"2026-01-31T23:59:59Z","text":"pool 'tank' is served"}`
    Json,
}

impl Form {
    /// A line as it is at a time, without its end.
    fn line(self, time: &str, text: &str) -> String {
        match self {
            Form::Text => format!("{time} {text}"),
            Form::Json => serde_json::json!({ "time": time, "text": text }).to_string(),
        }
    }

    /// Says something on standard error; each line of it is one of the log.
    pub(crate) fn say(self, text: impl std::fmt::Display) {
        let now = i64::try_from(rt::time::wall_clock().as_secs()).unwrap_or(i64::MAX);
        let time =
            jiff::Timestamp::from_second(now).map_or_else(|_| now.to_string(), |t| t.to_string());
        let lines = lines();
        for part in text.to_string().lines() {
            lines.put(part, |text| self.line(&time, text));
        }
    }
}

/// Waits until all is written that was said, but not for long.
pub(crate) fn finish() {
    lines().finish(PATIENCE);
}

/// The lines of this process, and whoever writes them.
fn lines() -> &'static Lines {
    static LINES: OnceLock<Arc<Lines>> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Arc::new(Lines::default());
        let writer = lines.clone();
        drop(rt::thread::spawn("log", move || writer.write(&mut std::io::stderr())));
        lines
    })
}

#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    left_out: u64,
    /// Some are being written.
    busy: bool,
}

impl Lines {
    fn put(&self, text: &str, line: impl Fn(&str) -> String) {
        let mut waiting = self.waiting.lock();
        if waiting.lines.len() >= LINES_MAX {
            waiting.left_out += 1;
            return;
        }
        if waiting.left_out > 0 {
            let count = std::mem::take(&mut waiting.left_out);
            let said = format!("{count} lines before this one are left out: nobody read them");
            waiting.lines.push_back(line(&said));
        }
        waiting.lines.push_back(line(text));
        self.changed.notify_all();
    }

    /// Writes what comes, for ever.
    fn write(&self, to: &mut impl Write) {
        loop {
            let lines = {
                let mut waiting = self.waiting.lock();
                waiting.busy = false;
                self.changed.notify_all();
                while waiting.lines.is_empty() {
                    waiting = self.changed.wait(waiting);
                }
                waiting.busy = true;
                std::mem::take(&mut waiting.lines)
            };
            let text: String = lines.into_iter().flat_map(|line| [line, "\n".into()]).collect();
            // A log that cannot be written is nobody's failure.
            drop(to.write_all(text.as_bytes()));
        }
    }

    fn finish(&self, patience: Duration) {
        let start = rt::time::now();
        let mut waiting = self.waiting.lock();
        while (waiting.busy || !waiting.lines.is_empty()) && start.elapsed() < patience {
            waiting = self.changed.wait_timeout(waiting, Duration::from_millis(100)).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_people_or_for_machines() {
        let text = "pool \"tank\" is served";
        assert_eq!(Form::Text.line("T", text), "T pool \"tank\" is served");
        let json = Form::Json.line("T", text);
        assert_eq!(json, r#"{"time":"T","text":"pool \"tank\" is served"}"#);
    }

    /// A reader who reads nothing until he is told to.
    struct Slow(rt::sync::mpsc::Receiver<()>, rt::sync::mpsc::Sender<String>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.recv().expect("it is told");
            self.1.send(String::from_utf8_lossy(bytes).into_owned()).expect("it is heard");
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_who_does_not_read() {
        let lines = Arc::new(Lines::default());
        let put = |text: &str| lines.put(text, str::to_string);
        let (go, told) = rt::sync::mpsc::bounded(1);
        let (says, heard) = rt::sync::mpsc::bounded(1);
        let writer = lines.clone();
        drop(rt::thread::spawn("log", move || writer.write(&mut Slow(told, says))));
        put("first");
        while !lines.waiting.lock().busy {
            rt::thread::yield_now();
        }
        (0..LINES_MAX + 7).for_each(|n| put(&n.to_string()));
        lines.finish(Duration::ZERO);
        go.send(()).expect("it listens");
        assert_eq!(heard.recv().expect("it writes"), "first\n");
        go.send(()).expect("it listens");
        let rest = heard.recv().expect("it writes");
        assert!(rest.starts_with("0\n1\n") && rest.ends_with("\n999\n"), "in order: {rest}");
        put("last");
        go.send(()).expect("it listens");
        let last = "7 lines before this one are left out: nobody read them\nlast\n";
        assert_eq!(heard.recv().expect("it writes"), last);
        lines.finish(Duration::from_secs(60));
        assert!(!lines.waiting.lock().busy);
    }
}
