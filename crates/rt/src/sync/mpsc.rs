//! A bounded channel: many senders, and as many receivers as wanted.
//!
//! The one idea: every queue has an end. A sender waits when the queue is full, so a fast producer
//! is slowed down instead of filling memory; there is no unbounded channel here.

use super::{Arc, Condvar, Mutex};
use crate::time;
use std::collections::VecDeque;
use std::time::Duration;

/// The other side is gone; what was to be sent comes back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiving side of the channel is gone")]
pub struct SendError<T>(pub T);

/// Why nothing could be sent at once.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// The queue is full.
    #[error("the channel is full")]
    Full(T),
    /// Nobody will receive.
    #[error("the receiving side of the channel is gone")]
    Disconnected(T),
}

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// Nothing came in time (or nothing is there, for a caller that does not wait).
    #[error("nothing came in time")]
    Timeout,
    /// The queue is empty and every sender is gone.
    #[error("the sending side of the channel is gone")]
    Disconnected,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    filled: Condvar,
    drained: Condvar,
}

/// The side that sends. Clones send into the same queue.
pub struct Sender<T>(Arc<Shared<T>>);

/// The side that receives. Clones share the queue: each message goes to one of them.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel that holds at most `capacity` messages (at least one).
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State { queue: VecDeque::new(), senders: 1, receivers: 1 }),
        capacity: capacity.max(1),
        filled: Condvar::new(),
        drained: Condvar::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends, waiting for room.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        loop {
            if state.receivers == 0 {
                return Err(SendError(value));
            }
            if state.queue.len() < self.0.capacity {
                state.queue.push_back(value);
                drop(state);
                self.0.filled.notify_one();
                return Ok(());
            }
            state = self.0.drained.wait(state);
        }
    }

    /// Sends if there is room now.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.queue.len() >= self.0.capacity {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Receives, waiting for a message; fails when the queue is empty and every sender is gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(value) = state.queue.pop_front() {
                drop(state);
                self.0.drained.notify_one();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError::Disconnected);
            }
            state = self.0.filled.wait(state);
        }
    }

    /// Receives what is there now.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        self.recv_timeout(Duration::ZERO)
    }

    /// Receives, waiting at most `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        let end = time::now() + timeout;
        loop {
            if let Some(value) = state.queue.pop_front() {
                drop(state);
                self.0.drained.notify_one();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError::Disconnected);
            }
            let left = end.saturating_since(time::now());
            if left.is_zero() {
                return Err(RecvError::Timeout);
            }
            state = self.0.filled.wait_timeout(state, left).0;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.0.state.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.0.filled.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            // Nobody will ask for these: what they own is given back now, outside the lock.
            let orphans = std::mem::take(&mut state.queue);
            drop(state);
            drop(orphans);
            self.0.drained.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn everything_sent_arrives_once_and_in_order() {
        for capacity in [0, 1, 7] {
            let (sender, receiver) = bounded(capacity);
            let senders: Vec<_> = (0..3u32)
                .map(|n| {
                    let sender = sender.clone();
                    thread::spawn(format!("sender {n}"), move || {
                        for item in 0..500u32 {
                            sender.send((n, item)).expect("somebody receives");
                        }
                    })
                })
                .collect();
            drop(sender);
            let mut next = [0; 3];
            while let Ok((n, item)) = receiver.recv() {
                assert_eq!(item, next[n as usize]);
                next[n as usize] += 1;
            }
            assert_eq!(next, [500; 3]);
            senders.into_iter().for_each(thread::JoinHandle::join);
        }
    }

    #[test]
    fn full_empty_late_and_gone() {
        let (sender, receiver) = bounded(1);
        assert_eq!(receiver.try_recv(), Err(RecvError::Timeout));
        sender.send(1).expect("room for one");
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        let limit = Duration::from_millis(10);
        assert_eq!(receiver.recv_timeout(limit), Ok(1));
        let start = time::now();
        assert_eq!(receiver.recv_timeout(limit), Err(RecvError::Timeout));
        assert!(start.elapsed() >= limit);
        sender.send(3).expect("room again");
        drop(sender);
        assert_eq!((receiver.recv(), receiver.recv()), (Ok(3), Err(RecvError::Disconnected)));
        let (sender, receiver) = bounded(1);
        sender.send(4).expect("room for one");
        // A sender that waits for room hears that nobody will make any.
        let waiting = thread::spawn("sender", move || sender.send(5));
        time::sleep(limit);
        drop(receiver);
        assert_eq!(waiting.join(), Err(SendError(5)));
    }
}
