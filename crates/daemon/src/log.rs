//! What the server says of itself: a line each, for people, or as JSON.

use std::io::Write;

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
        let mut err = std::io::stderr().lock();
        for part in text.to_string().lines() {
            // A log that cannot be written is nobody's failure.
            let _ = writeln!(err, "{}", self.line(&time, part));
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
}
