//! A real browser, Debian's Chromium, driven through its chromedriver (WebDriver: JSON over HTTP).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{TempDir, free_port, temp_dir};

use crate::site::until;

/// What a server answers to a request: status and body.
pub(crate) fn http(
    port: u16,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {}\r\n\
         Content-Type: application/json\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let (mut bytes, mut part) = (Vec::new(), [0; 65536]);
    let (mut head, mut length) = (0, usize::MAX);
    // Some keep the connection open all the same.
    while head == 0 || bytes.len() - head < length {
        let got = stream.read(&mut part)?;
        if got == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..got]);
        if head == 0
            && let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n")
        {
            head = end + 4;
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let found = text.lines().find_map(|l| l.strip_prefix("content-length:"));
            length = found.and_then(|n| n.trim().parse().ok()).unwrap_or(usize::MAX);
        }
    }
    let text = String::from_utf8_lossy(&bytes[head..]).into_owned();
    let status = String::from_utf8_lossy(&bytes).split(' ').nth(1).and_then(|s| s.parse().ok());
    Ok((status.unwrap_or(0), text))
}

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start(dark: bool) -> Browser {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("chromedriver: {error}; it is in Debian's chromium-driver")
            });
        let profile = temp_dir();
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        until("chromedriver listens", Duration::from_secs(60), || {
            http(port, "GET", "/status", "").is_ok_and(|(status, _)| status == 200)
        });
        let mut arguments = vec![
            "--headless=new".to_string(),
            "--no-sandbox".into(),
            "--disable-gpu".into(),
            "--disable-quic".into(),
            "--disable-dev-shm-usage".into(),
            "--no-first-run".into(),
            "--disable-background-networking".into(),
            "--disable-component-update".into(),
            "--disable-sync".into(),
            "--hide-scrollbars".into(),
            format!("--user-data-dir={}", browser._profile.path().display()),
        ];
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0".into());
            arguments.push("--force-dark-mode".into());
        }
        let options = json!({ "args": arguments });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let answer = browser.call("POST", "", &wanted);
        browser.session = answer["sessionId"].as_str().unwrap().to_string();
        browser
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let slash = if self.session.is_empty() { "" } else { "/" };
        let path = format!("/session{slash}{}{path}", self.session);
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let (status, text) = http(self.port, method, &path, &body).unwrap();
        assert_eq!(status, 200, "{method} {path}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["value"].clone()
    }

    /// Makes its window so large, in pixels, and opens a page.
    pub(crate) fn open(&self, url: &str, (width, height): (u32, u32)) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        drop(self.call("POST", "/url", &json!({ "url": url })));
    }

    /// A command to the browser itself.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) {
        let body = json!({ "cmd": command, "params": parameters });
        drop(self.call("POST", "/goog/cdp/execute", &body));
    }

    /// What a piece of script in the page returns.
    #[track_caller]
    pub(crate) fn script(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Messages of the page that went to the browser's console as warnings and errors.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let all = log.as_array().unwrap().iter();
        all.map(|entry| entry["message"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Takes a picture of what the window shows.
    pub(crate) fn picture(&self, to: &Path) {
        let picture = self.call("GET", "/screenshot", &Value::Null);
        std::fs::write(to, base64(picture.as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session, and the driver by hand.
        drop(http(self.port, "DELETE", &format!("/session/{}", self.session), ""));
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

/// The bytes that a text in base 64 stands for.
fn base64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut have) = (Vec::new(), 0u32, 0);
    for digit in text.bytes().filter_map(|c| digits.iter().position(|d| *d == c)) {
        (bits, have) = (bits << 6 | digit as u32, have + 6);
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    out
}
