//! The disk as arithmetic: from a list of I/Os to when each ends.
//!
//! The one idea: the state is where the head is, since when it is free, and what lies in the
//! buffer; the platter's angle follows from the time alone.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a disk is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Bytes from the outermost to the innermost track. Make it the size of the device to spread
    /// a small image over the whole stroke.
    pub capacity: u64,
    /// Time of a revolution.
    pub rotation: Duration,
    /// Seek to the next track.
    pub seek_min: Duration,
    /// Seek over a third of the stroke: what makers call the average.
    pub seek_average: Duration,
    /// Seek over the whole stroke.
    pub seek_max: Duration,
    /// Bytes a second on the outermost track.
    pub rate_outer: u64,
    /// Bytes a second on the innermost track.
    pub rate_inner: u64,
    /// What a command costs before anything moves.
    pub overhead: Duration,
    /// Bytes a second between the computer and the disk's buffer.
    pub interface_rate: u64,
    /// Bytes that the disk reads ahead.
    pub read_ahead: u64,
    /// Bytes that the write cache holds; 0 when it is off.
    pub write_cache: u64,
}

impl Parameters {
    /// A disk of 2 TB at 7200 revolutions a minute, as sold in the 2010s for arrays.
    pub fn disk_2tb_7200() -> Parameters {
        Parameters {
            capacity: 2_000_398_934_016,
            rotation: Duration::from_nanos(60_000_000_000 / 7200),
            seek_min: Duration::from_micros(700),
            seek_average: Duration::from_micros(8_500),
            seek_max: Duration::from_micros(17_000),
            rate_outer: 160_000_000,
            rate_inner: 75_000_000,
            overhead: Duration::from_micros(80),
            interface_rate: 500_000_000,
            read_ahead: 2 << 20,
            write_cache: 32 << 20,
        }
    }

    /// The same disk, its stroke spread over `capacity` bytes.
    pub fn spread_over(self, capacity: u64) -> Parameters {
        Parameters { capacity, ..self }
    }

    /// How far in `offset` lies: 0 outermost, 1 innermost.
    fn depth(&self, offset: u64) -> f64 {
        (offset as f64 / self.capacity.max(1) as f64).min(1.0)
    }

    fn rate(&self, offset: u64) -> f64 {
        let (outer, inner) = (self.rate_outer as f64, self.rate_inner as f64);
        outer - (outer - inner) * self.depth(offset)
    }

    /// Time to move the head over `distance` of the stroke (0 to 1): the square root of it for
    /// short ways (the arm speeds up and brakes), a line for long ones (it coasts).
    fn seek(&self, distance: f64) -> Duration {
        const AVERAGE: f64 = 1.0 / 3.0;
        if distance <= 0.0 {
            return Duration::ZERO;
        }
        let (min, average) = (self.seek_min.as_secs_f64(), self.seek_average.as_secs_f64());
        let seconds = if distance < AVERAGE {
            min + (average - min) * (distance / AVERAGE).sqrt()
        } else {
            let max = self.seek_max.as_secs_f64();
            average + (max - average) * (distance - AVERAGE) / (1.0 - AVERAGE)
        };
        Duration::from_secs_f64(seconds)
    }
}

fn transfer(size: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(size as f64 / rate.max(1.0))
}

/// A disk and where it stands. Whoever asks, asks in the order of time.
pub struct Model {
    parameters: Parameters,
    /// Since when the mechanics are idle.
    free: Duration,
    /// The byte under the head when it became idle.
    head: u64,
    /// Whether the disk reads ahead from there.
    reads_ahead: bool,
    /// Written and not yet on the platter: where, and how much.
    cache: BTreeMap<u64, u64>,
    cached: u64,
    busy: Duration,
}

impl Model {
    /// A disk that has done nothing yet.
    pub fn new(parameters: Parameters) -> Model {
        Model {
            parameters,
            free: Duration::ZERO,
            head: 0,
            reads_ahead: false,
            cache: BTreeMap::new(),
            cached: 0,
            busy: Duration::ZERO,
        }
    }

    /// How long its mechanics moved, or its platter passed bytes.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// When the mechanics, asked at `start`, have been over `size` bytes at `offset`.
    fn visit(&self, start: Duration, offset: u64, size: u64) -> Duration {
        let p = &self.parameters;
        let media = transfer(size, p.rate(offset));
        if start == self.free
            && let Some(gap) = offset.checked_sub(self.head)
            && gap as f64 <= p.rate(offset) * p.rotation.as_secs_f64()
        {
            // It was known before the head had ended: the platter carries it there, over what lies between, if that is
            // less than a turn.
            return start + transfer(gap, p.rate(offset)) + media;
        }
        let distance = (p.depth(offset) - p.depth(self.head)).abs();
        let arrived = start + p.seek(distance);
        // The angle at which the bytes lie, and the one at which the platter is then.
        let rotation = p.rotation.as_secs_f64();
        let track = p.rate(offset) * rotation;
        let target = (offset as f64 / track).fract();
        let angle = (arrived.as_secs_f64() / rotation).fract();
        let turn = (target - angle).rem_euclid(1.0);
        arrived + Duration::from_secs_f64(turn * rotation) + media
    }

    fn go(&mut self, start: Duration, offset: u64, size: u64) -> Duration {
        let end = self.visit(start, offset, size);
        self.busy += end - start;
        self.free = end;
        self.head = offset + size;
        end
    }

    /// When a read that is asked for at `now` has ended.
    pub fn read(&mut self, now: Duration, offset: u64, size: u64) -> Duration {
        let p = self.parameters;
        let to_host = p.overhead + transfer(size, p.interface_rate as f64);
        // The disk reads on behind what it was asked for, and over a gap that its buffer holds.
        let gap = offset.checked_sub(self.head).filter(|gap| *gap <= p.read_ahead / 2);
        if let Some(gap) = gap.filter(|_| self.reads_ahead && p.read_ahead > 0) {
            let (size, from) = (size + gap, self.head);
            // A command that was there before the one in front of it had ended: nothing is missed.
            if now < self.free {
                let start = self.free;
                return self.go(start, from, size) + to_host;
            }
            // What the disk has read ahead since its last read, as long as nothing else moved it.
            let ahead = ((now - self.free).as_secs_f64() * p.rate(from)) as u64;
            if self.cache.is_empty() {
                if size <= ahead.min(p.read_ahead) {
                    // It is in the buffer already, and the disk goes on reading behind it.
                    self.free += transfer(size, p.rate(from));
                    self.head = offset + size - gap;
                    return now + to_host;
                }
                // The rest of it is still passing under the head.
                if ahead <= p.read_ahead {
                    let start = self.free;
                    return self.go(start, from, size).max(now) + to_host;
                }
            }
        }
        self.write_back_until(now);
        let start = self.free.max(now) + p.overhead;
        let end = self.go(start, offset, size);
        self.reads_ahead = true;
        end + to_host - p.overhead
    }

    /// When a write that is asked for at `now` has ended: in its cache, if it has one.
    pub fn write(&mut self, now: Duration, offset: u64, size: u64) -> Duration {
        let p = self.parameters;
        self.write_back_until(now);
        let to_disk = p.overhead + transfer(size, p.interface_rate as f64);
        if p.write_cache == 0 || size > p.write_cache {
            let start = self.free.max(now) + to_disk;
            self.reads_ahead = false;
            return self.go(start, offset, size);
        }
        let mut start = now;
        while self.cached + size > p.write_cache {
            let from = self.free.max(start);
            start = self.write_back_one(from).unwrap_or(from);
        }
        self.remember(offset, size);
        if self.free < now {
            self.free = now;
        }
        start + to_disk
    }

    /// When everything that was written is on the platter.
    pub fn flush(&mut self, now: Duration) -> Duration {
        self.write_back_until(now);
        let mut end = self.free.max(now) + self.parameters.overhead;
        while let Some(next) = self.write_back_one(end) {
            end = next;
        }
        end
    }

    /// Puts a write into the cache, joined with what it touches.
    fn remember(&mut self, offset: u64, size: u64) {
        let (mut start, mut end) = (offset, offset + size);
        let touched: Vec<u64> = self
            .cache
            .range(..=end)
            .rev()
            .take_while(|&(&at, &len)| at + len >= start)
            .map(|(&at, _)| at)
            .collect();
        for at in touched {
            let len = self.cache.remove(&at).unwrap_or(0);
            self.cached -= len;
            start = start.min(at);
            end = end.max(at + len);
        }
        self.cache.insert(start, end - start);
        self.cached += end - start;
    }

    /// Writes the next cached extent, in the order of offsets from the head on, then round.
    fn write_back_one(&mut self, start: Duration) -> Option<Duration> {
        let next = self.cache.range(self.head..).next().or_else(|| self.cache.iter().next());
        let (&offset, &size) = next?;
        self.cache.remove(&offset);
        self.cached -= size;
        self.reads_ahead = false;
        Some(self.go(start, offset, size))
    }

    /// What the disk wrote back by itself while it was idle.
    fn write_back_until(&mut self, now: Duration) {
        while self.free < now && self.write_back_one(self.free).is_some() {}
    }
}
