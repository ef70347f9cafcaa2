//! For the fuzz targets alone (`--cfg fuzzing`): a server without a socket, a log and timers, to whose door the
//! targets bring their connections themselves.

use std::os::unix::net::UnixStream;

use rt::sync::Arc;
use verbs::{Held, Local};

use crate::data::Sessions;
use crate::doors::Doors;
use crate::log::Form;
use crate::peer::Peer;
use crate::serve::Run;

/// A server.
pub struct Server(Doors);

impl Server {
    /// For the pools of `held`, which `engine` knows.
    pub fn new(engine: Local, held: Arc<Held>, run: Arc<Run>) -> Server {
        let sessions = Sessions::new(held, Vec::new());
        Server(Doors::new(engine, run, Form::default(), sessions))
    }

    /// Serves a connection to its end.
    ///
    /// # Errors
    /// As the log would have it.
    pub fn converse(&self, stream: &UnixStream) -> std::io::Result<()> {
        self.0.take_and_answer(stream, Peer::of(stream)?)
    }

    /// Commands that run, and connections of clients.
    pub fn busy(&self) -> (u64, u64) {
        let clients = self.0.clients();
        (clients.commands, clients.connections)
    }
}
