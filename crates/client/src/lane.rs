//! One connection of a client: a request goes out, its answer comes back.
//!
//! The one idea: whoever is told that it broke is told how far the server can have come with what was asked.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use wire::{
    Answer, BAY_LEAST, HEADER, Head, Hello, Inbox, Look, PIPE_LEAST, SEND_BUFFER, Way, decode,
    greeting,
};

use crate::beside::{Beside, Welcome};
use crate::crowd::Crowd;
use wire::trays::Trays;

/// Answers that are left on one connection for later, at most: the socket holds them all.
const OWED_MAX: usize = 64;

/// One connection.
pub(crate) struct Lane {
    stream: UnixStream,
    inbox: Inbox,
    look: Look,
    /// How many are in use beside it.
    pub(crate) crowd: Crowd,
    /// Its pipes and trays, if the server gave any.
    beside: Option<Beside>,
    /// Came with them, until the client has it.
    pub(crate) shelf: Option<OwnedFd>,
    /// The server gave some, and not all of them came.
    pub(crate) lacks_files: bool,
    /// What was said whose answers nobody waits for, and which were not taken yet.
    owed: VecDeque<Vec<u8>>,
    /// The session that it is of.
    pub(crate) epoch: u64,
}

/// A message that went out in part.
struct Cut {
    sent: usize,
    error: std::io::Error,
}

/// How a call on a connection failed.
pub(crate) enum Broken {
    /// The server has not heard what it was to do.
    Unsent(std::io::Error),
    /// It may have done it, or some of it.
    Unanswered(std::io::Error),
    /// What came back makes no sense.
    Senseless(String),
}

impl Lane {
    /// A new connection that nobody has greeted.
    pub(crate) fn to(socket: &Path, epoch: u64) -> std::io::Result<Lane> {
        let stream = UnixStream::connect(socket)?;
        // Where the system has less to give, it goes on with that.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        Ok(Lane {
            stream,
            inbox: Inbox::default(),
            look: Look::default(),
            crowd: Crowd::default(),
            beside: None,
            shelf: None,
            lacks_files: false,
            owed: VecDeque::new(),
            epoch,
        })
    }

    /// Says who we are, and waits so long for the welcome.
    pub(crate) fn greet(&mut self, hello: &Hello, patience: Duration) -> std::io::Result<Answer> {
        self.stream.set_read_timeout(Some(patience))?;
        let invalid = |why: wire::FrameError| std::io::Error::other(why.to_string());
        let greeting = greeting(hello).map_err(invalid)?;
        self.send(&[&greeting]).map_err(|cut| cut.error)?;
        let mut welcome = Welcome::from(&self.stream);
        let answer = answer(&mut welcome, &mut self.inbox);
        self.shelf = welcome.shelf();
        (self.beside, self.lacks_files) = match welcome.beside() {
            Ok(beside) => (beside, false),
            Err(_) => (None, true),
        };
        // What is asked from now on takes as long as it takes.
        self.stream.set_read_timeout(None)?;
        match answer {
            Ok((_, answer)) => Ok(answer),
            Err(Broken::Unsent(error) | Broken::Unanswered(error)) => Err(error),
            Err(Broken::Senseless(why)) => Err(std::io::Error::other(why)),
        }
    }

    /// Asks, and waits for the answer, whose bulk bytes go to `to`; how many of those there were.
    pub(crate) fn call(
        &mut self,
        frame: &[u8],
        bulk: &[u8],
        to: &mut [u8],
    ) -> Result<(Answer, usize), Broken> {
        self.begin(frame, bulk)?;
        self.end(to)
    }

    /// Asks, and has the answer come, for [`Lane::end`], which is next. The bulk bytes stay as they are until then.
    pub(crate) fn begin(&mut self, frame: &[u8], bulk: &[u8]) -> Result<(), Broken> {
        // Nothing of this was said yet.
        self.take_owed_that_came().map_err(|broken| match broken {
            Broken::Unanswered(error) => Broken::Unsent(error),
            broken => broken,
        })?;
        // Whose answer is owed comes first, and over the socket.
        let looks_now = self.crowd.is_few() && self.owed.is_empty() && self.look.is_likely();
        self.trays().filter(|_| looks_now).inspect(|trays| trays.look());
        self.ask(frame, bulk).map_err(|broken| self.unless_unheard(broken))
    }

    /// Waits for the answer to what was begun, whose bulk bytes go to `to`; how many of those there were.
    pub(crate) fn end(&mut self, to: &mut [u8]) -> Result<(Answer, usize), Broken> {
        let answered = self.answered(to).map_err(|broken| self.unless_unheard(broken))?;
        match self.inbox.is_empty() {
            true => Ok(answered),
            false => Err(Broken::Senseless("the server said more than was asked".into())),
        }
    }

    /// Where it lies where it was laid nobody has heard it.
    fn unless_unheard(&self, broken: Broken) -> Broken {
        match broken {
            Broken::Unanswered(error) if self.trays().is_some_and(Trays::take_back) => {
                Broken::Unsent(error)
            }
            broken => broken,
        }
    }

    fn answered(&mut self, to: &mut [u8]) -> Result<(Answer, usize), Broken> {
        self.take_owed()?;
        if self.crowd.is_few() && self.inbox.is_empty() {
            let trays = self.beside.as_ref().map(|beside| &beside.trays);
            let cores = self.crowd.cores(to.len());
            let found = self.look.over(&self.stream, trays, &mut self.inbox, cores);
            if found.is_none() {
                let answered = self.answer(to);
                self.look.came();
                return answered;
            }
        }
        self.answer(to)
    }

    fn trays(&self) -> Option<&Trays> {
        self.beside.as_ref().map(|beside| &beside.trays)
    }

    fn ask(&self, frame: &[u8], bulk: &[u8]) -> Result<(), Broken> {
        // What is to be done is in the frame: a server that has all of it may begin before the bytes have come.
        let broken = |sent, error| match sent < frame.len() {
            true => Broken::Unsent(error),
            false => Broken::Unanswered(error),
        };
        let say =
            |pieces: &[&[u8]]| self.lay_or_send(pieces).map_err(|cut| broken(cut.sent, cut.error));
        let (Some(beside), Some((_, part))) = (&self.beside, frame.split_first_chunk::<HEADER>())
        else {
            return say(&[frame, bulk]);
        };
        let head = |way| Head { bulk: bulk.len(), part: part.len(), way }.bytes();
        if bulk.len() >= PIPE_LEAST {
            // What there is room for is there when the server comes for it.
            let done = beside.lend(bulk).map_err(Broken::Unsent)?;
            say(&[&head(Way::Pipe), part])?;
            return beside.lend_all(&self.stream, &bulk[done..]).map_err(Broken::Unanswered);
        }
        // Its memory is there for few.
        match self.crowd.is_few() && bulk.len() >= BAY_LEAST && beside.trays.fill(&[bulk]) {
            true => say(&[&head(Way::Bay), part]),
            false => say(&[frame, bulk]),
        }
    }

    /// Asks, and leaves the answer to who comes next.
    pub(crate) fn tell(&mut self, frame: Vec<u8>) -> Result<(), Broken> {
        if self.owed.len() == OWED_MAX
            && let Err(broken) = self.take_owed()
        {
            // With the others, for who is told next.
            self.owed.push_back(frame);
            return Err(broken);
        }
        // What lies on a tray can be overtaken by what is sent next.
        let sent = self.send(&[&frame]).map_err(|cut| Broken::Unsent(cut.error));
        self.owed.push_back(frame);
        sent
    }

    /// Takes the answers that nobody waited for.
    fn take_owed(&mut self) -> Result<(), Broken> {
        while !self.owed.is_empty() {
            drop(self.answer(&mut [])?);
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Takes those of them that are there: what is asked next needs not go over the socket then.
    fn take_owed_that_came(&mut self) -> Result<(), Broken> {
        while !self.owed.is_empty()
            && (!self.inbox.is_empty() || self.inbox.fill_now(&self.stream).is_some_and(|n| n > 0))
        {
            drop(self.answer(&mut [])?);
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Was all that was told heard?
    pub(crate) fn is_heard(&self) -> bool {
        self.owed.is_empty()
    }

    /// What was told, and maybe not heard.
    pub(crate) fn into_untold(self) -> VecDeque<Vec<u8>> {
        self.owed
    }

    /// Lays pieces, one behind the other, where the server looks, or sends them. It takes what was laid down first, so all
    /// that was sent before must have been answered.
    fn lay_or_send(&self, pieces: &[&[u8]]) -> Result<(), Cut> {
        match self.owed.is_empty() && self.trays().is_some_and(|trays| trays.put(pieces)) {
            true => Ok(()),
            false => self.send(pieces),
        }
    }

    /// Sends pieces, one behind the other. If the server has gone, that is an error and no signal: a program that does not
    /// handle SIGPIPE would be ended by it.
    fn send(&self, pieces: &[&[u8]]) -> Result<(), Cut> {
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let (mut sent, mut rest) = (0, &mut slices[..]);
        while sent < all {
            let mut beside = SendAncillaryBuffer::default();
            match sendmsg(&self.stream, rest, &mut beside, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(Cut { sent, error: ErrorKind::WriteZero.into() }),
                Ok(count) => {
                    sent += count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Cut { sent, error: error.into() }),
            }
        }
        Ok(())
    }

    fn answer(&mut self, to: &mut [u8]) -> Result<(Answer, usize), Broken> {
        let (head, answer) = answer(&mut self.stream, &mut self.inbox)?;
        let to = to.get_mut(..head.bulk).ok_or_else(|| {
            let bulk = head.bulk;
            Broken::Senseless(format!("the server sent {bulk} bytes, more than were asked for"))
        })?;
        let read = match (head.way, &self.beside) {
            (Way::Behind, _) => self.inbox.take(&mut self.stream, to),
            (Way::Pipe, Some(beside)) => beside.read(&self.stream, to),
            (Way::Bay, Some(beside)) => beside.trays.empty(0, to),
            (_, None) => Err(std::io::Error::other("bytes beside what has nothing beside it")),
        };
        read.map_err(Broken::Unanswered)?;
        Ok((answer, head.bulk))
    }
}

/// Reads an answer, but for its bulk bytes.
fn answer(stream: &mut impl std::io::Read, inbox: &mut Inbox) -> Result<(Head, Answer), Broken> {
    let mut head = [0; HEADER];
    inbox.take(stream, &mut head).map_err(Broken::Unanswered)?;
    let head = Head::read(head).map_err(|why| Broken::Senseless(why.to_string()))?;
    let mut message = vec![0; head.part];
    inbox.take(stream, &mut message).map_err(Broken::Unanswered)?;
    let answer = decode(&message).map_err(|why| Broken::Senseless(why.to_string()))?;
    Ok((head, answer))
}
