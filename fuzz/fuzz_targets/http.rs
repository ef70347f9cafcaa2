//! Any bytes at the listener for metrics and the page, in any pieces: they are answered in well-formed HTTP, the pieces
//! make no difference, and what is no request for something that there is gets nothing but a refusal.
#![no_main]

use fuzz::Site;
use libfuzzer_sys::fuzz_target;
use rt::sync::Mutex;
use watch::fuzzing::Answering;

static ANSWERING: Mutex<Option<Answering>> = Mutex::new(None);

/// The status of an answer, its headers, and its body.
fn taken_apart(answer: &[u8]) -> (&str, Vec<(&str, &str)>, &[u8]) {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("headers end");
    let mut lines = std::str::from_utf8(&answer[..end]).expect("text").split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).expect("a status");
    let headers = lines.map(|line| line.split_once(": ").expect("a header")).collect();
    (&status[..3], headers, &answer[end + 4..])
}

// A number that says how it is cut into pieces, and what comes.
fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut answering = ANSWERING.lock();
    let answering = answering.get_or_insert_with(|| {
        let site = Site::new();
        Answering::new(site.engine.clone(), site.held.clone())
    });
    let whole = answering.answer(bytes.chunks(1024));
    let cut = answering.answer(bytes.chunks(1 + usize::from(first)));
    let status =
        |answer: &Option<Vec<u8>>| answer.as_ref().map(|answer| taken_apart(answer).0.to_string());
    assert_eq!(status(&whole), status(&cut), "pieces make no difference");
    let Some(whole) = whole else { return };
    let (status, headers, body) = taken_apart(&whole);
    let length = headers.iter().find(|(name, _)| *name == "Content-Length").expect("a length");
    let length: usize = length.1.parse().expect("a number");
    let is_head = bytes.starts_with(b"HEAD ");
    assert!(body.len() == length || is_head && body.is_empty(), "{length} bytes");
    if status == "200" {
        let target = bytes.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        assert!(bytes.starts_with(b"GET /") || is_head);
        assert!([&b"/"[..], b"/metrics", b"/status.json"].contains(&path));
        assert!(headers.contains(&("Connection", "close")));
    }
});
