//! Ports for servers that tests start.
//!
//! The one idea: a port that was free a moment ago must be free when its server comes for it; so none of those that the system
//! gives to connections, which come and go by the thousand beside a test.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Rng;

/// Below those that Linux gives out by itself (`net.ipv4.ip_local_port_range`: from 32768 on).
const PORTS: std::ops::Range<u16> = 10_000..32_768;

/// A TCP port of the loopback that nobody listens at.
///
/// # Panics
/// There is none.
#[must_use]
pub fn free_port() -> u16 {
    // Tests that run beside this one, in this process and in others, look elsewhere.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    let mut rng = Rng::of(std::process::id().into(), asked);
    let span = u64::from(PORTS.end - PORTS.start);
    let mut next = || PORTS.start + (rng.word() % span) as u16;
    (0..1000)
        .map(|_| next())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a thousand ports were tried, and all are taken")
}
