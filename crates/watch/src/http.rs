//! A door for browsers and collectors of metrics: answers to GET, and nothing else.
//!
//! The one idea: there is nothing to be confused by. A connection is one request, of which the first line and the
//! headers are read, at most [`HEAD_MAX`] bytes and [`PATIENCE`] long, and one answer, after which it is closed. No bodies
//! are taken, nothing is kept alive, and there are at most [`CONNECTIONS_MAX`] at a time.
//!
//! A listener on the loopback answers only to names of the loopback, so that no page from elsewhere can have a
//! browser read it under a name of its own.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rt::sync::Arc;
use rt::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the first line and the headers, at most.
const HEAD_MAX: usize = 8 << 10;
/// Connections at once, at most.
const CONNECTIONS_MAX: usize = 32;
/// How long a request may take to arrive, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is taken after one could not be.
const BREATH: Duration = Duration::from_millis(100);
/// Bytes that are read and forgotten of one who goes on talking.
const DRAINED_MAX: usize = 64 << 10;
/// How long that takes, however many they are at a time.
const DRAINED_FOR: Duration = Duration::from_secs(1);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `/metrics`; what follows a `?` is in `query`.
    pub(crate) path: String,
    pub(crate) query: String,
    /// The headers of the answer alone are wanted.
    head_only: bool,
    /// The name by which the server was called, if it was.
    host: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    /// Content of a kind.
    pub(crate) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: 200, kind, body: body.into() }
    }

    /// There is nothing, and why.
    pub(crate) fn refusal(status: u16, why: &str) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n").into() }
    }
}

/// What to answer.
pub(crate) type Answering = dyn Fn(&Request) -> Answer + Send + Sync;

/// Where to listen: an address and a port, or a port alone, which is one of the loopback.
///
/// # Errors
/// It is neither.
pub fn address(word: &str) -> std::result::Result<SocketAddr, String> {
    let loopback = |port: &str| {
        let port = port.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    };
    let port = word.strip_prefix("localhost:").or_else(|| word.strip_prefix(':')).unwrap_or(word);
    let found = word.parse().ok().or_else(|| loopback(port));
    found.ok_or_else(|| format!("'{word}' is no port, and no address with one (127.0.0.1:9100)"))
}

/// Answers for ever, in threads of its own.
pub(crate) fn start(listener: TcpListener, answering: Arc<Answering>) -> Result<()> {
    let local = listener.local_addr()?.ip().is_loopback();
    let count = Arc::new(AtomicUsize::new(0));
    let body = move || {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, or the like: it may pass.
                rt::time::sleep(BREATH);
                continue;
            };
            let place = Place(count.clone());
            if count.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                continue;
            }
            let answering = answering.clone();
            let body = move || {
                let _place = place;
                // Who went away does not want to know.
                drop(converse(&stream, local, &*answering));
            };
            // Without a thread this one goes away with his connection.
            if rt::thread::try_spawn("http", body).is_err() {
                rt::time::sleep(BREATH);
            }
        }
    };
    drop(rt::thread::spawn("http-accept", body));
    Ok(())
}

/// A place of a connection, which is free again when this is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn converse(mut stream: &TcpStream, local: bool, answering: &Answering) -> Result<()> {
    let mut read = |part: &mut [u8], left| {
        stream.set_read_timeout(Some(left))?;
        stream.read(part)
    };
    let answer = respond(&mut read, local, answering)?;
    write_all(stream, &answer)?;
    stream.shutdown(Shutdown::Write)?;
    // What it has said too much would break off what it is told, if it lay there unread.
    let start = rt::time::now();
    let mut rest = [0; 4096];
    for _ in 0..DRAINED_MAX / rest.len() {
        let left = DRAINED_FOR.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// What `read` brings is a request: the bytes of its answer. `read` waits no longer than it is told.
pub(crate) fn respond(
    read: &mut dyn FnMut(&mut [u8], Duration) -> Result<usize>,
    local: bool,
    answering: &Answering,
) -> Result<Vec<u8>> {
    let head = read_head(read)?;
    let request = head.map_or_else(Err, |head| parse(&head));
    let (answer, head_only) = match request {
        Err(answer) => (answer, false),
        Ok(request) if local && !request.host.as_deref().is_none_or(is_loopback) => {
            (Answer::refusal(421, "this listener has no such name"), false)
        }
        Ok(request) => (answering(&request), request.head_only),
    };
    let mut bytes = headers(&answer).into_bytes();
    if !head_only {
        bytes.extend_from_slice(&answer.body);
    }
    Ok(bytes)
}

/// Writes all of it within [`PATIENCE`], however many bytes are taken at a time.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    let start = rt::time::now();
    while !bytes.is_empty() {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to the empty line after the headers; the answer to one who does not come to it.
fn read_head(
    read: &mut dyn FnMut(&mut [u8], Duration) -> Result<usize>,
) -> Result<std::result::Result<Vec<u8>, Answer>> {
    let start = rt::time::now();
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(Err(Answer::refusal(408, "the request did not come to its end")));
        }
        let got = match read(&mut part, left) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error),
        };
        // The end may lie across two parts.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&part[..got]);
        let end = head[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n");
        // However it was cut.
        if let Some(end) = end.map(|end| from + end).filter(|end| end + 4 <= HEAD_MAX) {
            head.truncate(end);
            return Ok(Ok(head));
        }
        if head.len() > HEAD_MAX {
            return Ok(Err(Answer::refusal(431, "the headers are too long")));
        }
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The request of a first line and headers.
fn parse(head: &[u8]) -> std::result::Result<Request, Answer> {
    let bad = |why: &str| Answer::refusal(400, why);
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) || b"\r\n\t".contains(byte);
    if !head.iter().all(plain) {
        return Err(bad("bytes that do not belong into a request"));
    }
    let text = std::str::from_utf8(head).map_err(|_| bad("no text"))?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(bad("not a request line"));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(Answer::refusal(505, "HTTP/1.0 and 1.1 are spoken here"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Answer::refusal(405, "there is nothing here but to GET"));
    }
    if !target.starts_with('/') {
        return Err(bad("not a path"));
    }
    let mut host = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("not a header"))?;
        if name.is_empty() || name.contains([' ', '\t', '\r', '\n']) {
            return Err(bad("not a header"));
        }
        if name.eq_ignore_ascii_case("host") && host.replace(value.trim().to_string()).is_some() {
            return Err(bad("two hosts"));
        }
    }
    if version == "HTTP/1.1" && host.is_none() {
        return Err(bad("no host"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let head_only = method == "HEAD";
    Ok(Request { path: path.into(), query: query.into(), head_only, host })
}

/// Is it a name of the loopback, with a port or without?
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn headers(answer: &Answer) -> String {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    };
    let allow = if answer.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    // The page has its style and its script in itself, and asks nobody but us.
    format!(
        "HTTP/1.1 {} {reason}\r\n\
         Content-Type: {}\r\n\
         Content-Length: {}\r\n\
         {allow}Connection: close\r\n\
         Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = |request: &Request| match request.path.as_str() {
            "/" => Answer::new("text/plain", format!("here: {}", request.query)),
            _ => Answer::refusal(404, "not here"),
        };
        start(listener, Arc::new(answering)).unwrap();
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        let address = served();
        for (request, expected) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET /?a=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80\r\nX: y\r\n\r\nbody", "200 OK"),
            ("GET /nothing HTTP/1.0\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
            ("GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", "421"),
            ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", "400"),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            ("GET http://x/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
            ("GET / HTTP/2.0\r\n\r\n", "505"),
            ("GET  / HTTP/1.0\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("GET /\0 HTTP/1.0\r\n\r\n", "400"),
            ("GET /\u{e9} HTTP/1.0\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{request:?}: {answer}");
        }
        let answer = ask(address, b"GET /?a=1 HTTP/1.0\r\n\r\n");
        assert!(answer.ends_with("\r\n\r\nhere: a=1"), "{answer}");
        let answer = ask(address, b"HEAD / HTTP/1.0\r\n\r\n");
        assert!(
            answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        let long = format!("GET / HTTP/1.0\r\nX: {}\r\n\r\n", "y".repeat(HEAD_MAX * 4));
        assert!(ask(address, long.as_bytes()).starts_with("HTTP/1.1 431"));
        // The end of the headers, cut anywhere.
        for at in 1..17 {
            let (first, second) = b"GET / HTTP/1.0\r\n\r\n".split_at(at);
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(first).unwrap();
            rt::time::sleep(Duration::from_millis(5));
            stream.write_all(second).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        }
    }

    /// Whatever comes, there is an answer or an end, and the next one is served.
    #[test]
    fn noise_does_no_harm() {
        let address = served();
        let mut random = rt::random::Rng::new(11);
        for _ in 0..300 {
            let mut bytes = b"GET /?x HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n".to_vec();
            for _ in 0..1 + random.index(6) {
                let at = random.index(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{bytes:?}");
        }
        assert!(ask(address, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn those_who_say_nothing_are_let_go() {
        let address = served();
        let start = rt::time::now();
        let silent: Vec<_> =
            (0..CONNECTIONS_MAX * 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        // There are places for half of them, and they have these until their time is over.
        let answer = ask(address, b"GET / HTTP/1.0\r\n\r\n");
        assert!(answer.is_empty() || start.elapsed() >= PATIENCE, "{answer}");
        // One that trickles gains nothing by it.
        let mut slow = &silent[0];
        let start = rt::time::now();
        while start.elapsed() < PATIENCE + Duration::from_secs(3) {
            if ask(address, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200") {
                return;
            }
            drop(slow.write_all(b"G"));
            rt::time::sleep(Duration::from_millis(100));
        }
        panic!("they keep their places");
    }

    /// Seen red: it kept its place for 16 seconds.
    #[test]
    fn one_who_goes_on_talking_is_let_go() {
        let address = served();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let start = rt::time::now();
        // Who is let go of while he talks is told so at the next word.
        while stream.write_all(b"x").is_ok() && start.elapsed() < PATIENCE {
            rt::time::sleep(Duration::from_millis(400));
        }
        assert!(start.elapsed() < PATIENCE, "it keeps its place");
    }

    #[test]
    fn a_port_alone_is_the_loopback_s() {
        for (word, expected) in [
            ("9100", Some("127.0.0.1:9100")),
            (":9100", Some("127.0.0.1:9100")),
            ("localhost:1", Some("127.0.0.1:1")),
            ("0.0.0.0:80", Some("0.0.0.0:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("", None),
            ("host:80", None),
            ("99999", None),
            ("127.0.0.1", None),
        ] {
            let found = address(word).ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{word}");
        }
    }
}
