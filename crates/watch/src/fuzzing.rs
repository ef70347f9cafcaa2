//! For the fuzz targets alone (`--cfg fuzzing`): what is read from a connection, and what is answered, without one.

use rt::sync::Arc;
use verbs::{Held, Local};

use crate::view::{Clients, View};
use crate::{answer, http};

/// Answers as a listener on the loopback does, of the pools of `held`.
pub struct Answering(Box<http::Answering>);

impl Answering {
    /// For the pools of `held`, which `engine` knows.
    pub fn new(engine: Local, held: Arc<Held>) -> Answering {
        let view = View::new(engine, held, Arc::new(Clients::default));
        Answering(Box::new(move |request| answer(&view, request)))
    }

    /// What is answered to a request that comes in these pieces; `None`: it has no end.
    pub fn answer<'p>(&self, mut pieces: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        let mut read = |part: &mut [u8], _| {
            let piece = pieces.next().unwrap_or_default();
            part[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        };
        http::respond(&mut read, true, &*self.0).ok()
    }
}
