//! A server, `thumper serve`, with its own list of pools.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rt::sync::{Arc, Mutex};
use rt::thread::JoinHandle;
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to come, or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    state: PathBuf,
    /// What it has said.
    said: Arc<Mutex<String>>,
    /// Hears that to its end: who is not heard stands still.
    log: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one for the list of pools at `state`, which commands with that list then find.
    ///
    /// # Panics
    /// If it does not come to listen.
    #[must_use]
    pub fn start(state: &Path) -> Server {
        Server::start_with(state, &[])
    }

    /// The same, with more words on its command line.
    ///
    /// # Panics
    /// If it does not come to listen.
    #[must_use]
    pub fn start_with(state: &Path, words: &[&str]) -> Server {
        Server::of(crate::thumper(state), state, words)
    }

    /// The same, by a command that has no words yet.
    pub(crate) fn of(mut command: Command, state: &Path, words: &[&str]) -> Server {
        let mut child = command.arg("serve").args(words).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said: Arc<Mutex<String>> = Arc::default();
        let heard = said.clone();
        let log = rt::thread::spawn("log", move || {
            lines.for_each(|line| *heard.lock() += &(line.unwrap() + "\n"));
        });
        let mut server = Server { child, state: state.into(), said, log: Some(log) };
        let start = rt::time::now();
        while UnixStream::connect(server.socket()).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {}", server.log());
            assert!(start.elapsed() < PATIENCE, "the server does not listen");
            rt::time::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let mut path = self.state.clone().into_os_string();
        path.push(".socket");
        path.into()
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it stand still by SIGSTOP, and waits until it does: the signal finds one thread, and that one the others, while who is
    /// at work goes on.
    ///
    /// # Panics
    /// If it does not.
    pub fn freeze(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        let start = rt::time::now();
        while !self.is_frozen() {
            assert!(start.elapsed() < PATIENCE, "the server goes on");
            rt::time::sleep(Duration::from_millis(1));
        }
    }

    /// Does each of its threads stand still?
    fn is_frozen(&self) -> bool {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        threads.all(|thread| {
            // One that has ended does nothing any more. Of others the state comes after the name, which may have anything in it.
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
        })
    }

    /// Sends it SIGTERM.
    ///
    /// # Panics
    /// If it has ended.
    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Ends it by SIGTERM; what it said.
    ///
    /// # Panics
    /// If it does not end, or not well.
    #[must_use]
    pub fn stop(self) -> String {
        self.interrupt();
        let (status, log) = self.ended();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Waits for its end; how it ended, and what it said.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn ended(mut self) -> (ExitStatus, String) {
        let start = rt::time::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, self.log());
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end");
            rt::time::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it by SIGKILL.
    pub fn kill(self) {}

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        self.said.lock().clone()
    }

    fn log(&mut self) -> String {
        self.log.take().unwrap().join();
        self.said()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
