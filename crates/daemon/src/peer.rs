//! Who is at the other end of a connection, and what he may ask for.
//!
//! The one idea: the kernel says who he is, so the socket's permissions decide nothing.

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0: of a process that cannot be seen from here, as from within a container.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Peer {
    /// Asks the kernel.
    pub(crate) fn of(socket: impl AsFd) -> std::io::Result<Peer> {
        let who = getsockopt(&socket, PeerCredentials)?;
        Ok(Peer { pid: who.pid(), uid: who.uid(), gid: who.gid() })
    }

    /// May he do all that this process may? Root, and whoever runs the server.
    pub(crate) fn commands(self) -> bool {
        self.commands_one_of(geteuid().as_raw())
    }

    fn commands_one_of(self, uid: u32) -> bool {
        self.uid == 0 || self.uid == uid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_servers_user_command_it() {
        let peer = |uid| Peer { pid: 1, uid, gid: 5 };
        assert!(peer(0).commands_one_of(1000) && peer(1000).commands_one_of(1000));
        assert!(!peer(1001).commands_one_of(1000) && !peer(1000).commands_one_of(0));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let seen = Peer::of(&one).unwrap();
        assert_eq!(seen.pid, std::process::id() as i32);
        assert!(seen.commands());
    }
}
