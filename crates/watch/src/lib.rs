//! Being seen: what the server tells those who watch it, as metrics, as a page, and by running their programs.
//!
//! Place: beside the daemon, above the verbs. The one idea: whoever watches gets what is there already, counters,
//! states and events, and can ask for nothing that changes anything; what comes from outside is a line and a few
//! headers, bounded in size, time and number (`docs/decisions/0016-watching.md`).

#[cfg(fuzzing)]
pub mod fuzzing;
mod hooks;
mod http;
mod metrics;
mod status;
mod view;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rt::sync::Arc;
use verbs::{Held, Local};

pub use hooks::{Hooks, Say};
pub use http::address;
pub use view::{Clients, Counting};

use http::{Answer, Request};
use view::View;

/// The page, with its style and its script in it.
const PAGE: &str = include_str!("page.html");

/// A listener that does not answer yet: it can be had, or not, before anything else is done.
#[derive(Debug)]
pub struct Door(TcpListener);

impl Door {
    /// Listens at an address.
    ///
    /// # Errors
    /// Those of the system: the port is taken, the address is not ours.
    pub fn new(address: SocketAddr) -> std::io::Result<Door> {
        TcpListener::bind(address).map(Door)
    }

    /// Where it listens: with the port that the system has chosen, if it was left to it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Shows the pools of `held`, which `engine` knows, and who uses them, from here on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(self, engine: Local, held: Arc<Held>, counting: Counting) -> std::io::Result<()> {
        let view = Arc::new(View::new(engine, held, counting));
        {
            let view = view.clone();
            let body = move || {
                loop {
                    view.note_second();
                    rt::time::sleep(Duration::from_secs(1));
                }
            };
            drop(rt::thread::spawn("seconds", body));
        }
        http::start(self.0, Arc::new(move |request| answer(&view, request)))
    }
}

fn answer(view: &View, request: &Request) -> Answer {
    match &*request.path {
        "/" => Answer::new("text/html; charset=utf-8", PAGE),
        "/metrics" => Answer::new(metrics::KIND, metrics::exposition(view)),
        "/status.json" => {
            let after = request.query.strip_prefix("after=").and_then(|n| n.parse().ok());
            let status = status::status(view, after.unwrap_or(0));
            Answer::new("application/json", status.to_string())
        }
        _ => Answer::refusal(404, "here are /, /metrics and nothing else"),
    }
}
