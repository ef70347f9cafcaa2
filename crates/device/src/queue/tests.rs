use super::*;
use crate::sim::{Fault, Kind, On, SimDisk, SimSet};
use rt::sync::atomic::AtomicBool;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

fn quick(threads: usize) -> Options {
    Options { deadline: Duration::from_millis(100), ..Options::threads(threads) }
}

fn shared(bytes: &[u8]) -> Vec<WriteBuf> {
    vec![Arc::new(bytes.to_vec())]
}

/// Both back ends give the same, one thing at a time and in batches.
#[test]
fn what_was_written_is_read() {
    for options in [Options::inline(), Options::threads(1), Options::threads(3)] {
        let queue = LeafQueue::new(SimDisk::new(MIB), options, pool());
        queue.write_at(10, b"alone").expect("writes");
        let batch = Batch::new();
        for n in 0..20u8 {
            let bufs = [shared(&[n; 100]), shared(&[n + 100; 412])].concat();
            let place = queue.write(&batch, Class::Write, 4096 + u64::from(n) * 512, bufs);
            assert_eq!(place, usize::from(n));
        }
        assert!(batch.wait().iter().all(|o| o.result.is_ok()));
        WriteDevice::flush(&queue).expect("flushes");
        let batch = Batch::new();
        for n in 0..20u64 {
            queue.read(&batch, Class::SyncRead, 4096 + n * 512, queue.shared.pool.get(512));
        }
        for (n, outcome) in batch.wait().into_iter().enumerate() {
            let buf = outcome.buf.expect("a buffer");
            assert!(buf[..100].iter().all(|&b| b == n as u8));
            assert!(buf[100..].iter().all(|&b| b == n as u8 + 100));
        }
        let mut buf = [0; 5];
        queue.read_at(10, &mut buf).expect("reads");
        assert_eq!((&buf, queue.size(), queue.name()), (b"alone", MIB, "d00"));
        assert_idle(&queue);
        assert_eq!(queue.device().counts().flushes, 1);
    }
}

/// Nothing waits and nothing is under way; an outcome may be there a moment before its thread says so.
fn assert_idle(queue: &LeafQueue<SimDisk>) {
    for _ in 0..1000 {
        if queue.state() == QueueState::default() {
            return;
        }
        time::sleep(Duration::from_millis(5));
    }
    assert_eq!(queue.state(), QueueState::default());
}

#[test]
fn a_queue_serves_a_handle_on_any_device() {
    let any: Arc<dyn WriteDevice> = Arc::new(SimDisk::new(MIB));
    let queue = LeafQueue::new(any, Options::threads(1), pool());
    queue.write_at(7, b"any").expect("writes");
    let mut buf = [0; 3];
    queue.read_at(7, &mut buf).expect("reads");
    assert_eq!(&buf, b"any");
}

#[test]
fn errors_come_with_their_own_io() {
    for options in [Options::inline(), Options::threads(2)] {
        let queue = LeafQueue::new(SimDisk::new(MIB), options, pool());
        queue.device().inject(Fault::new(Kind::Error(Errno::IO), On::Reads).within(512..1024));
        let batch = Batch::new();
        for n in 0..3 {
            queue.read(&batch, Class::SyncRead, n * 512, queue.shared.pool.get(512));
        }
        queue.read(&batch, Class::SyncRead, MIB, queue.shared.pool.get(1));
        let ok: Vec<bool> = batch.wait().iter().map(|o| o.result.is_ok()).collect();
        assert_eq!(ok, [true, false, true, false]);
    }
}

#[test]
fn several_disks_and_one_wait() {
    let set = SimSet::new(3, MIB);
    set.disks().iter().for_each(|d| {
        d.inject(Fault::new(Kind::Slow(Duration::from_millis(40)), On::Reads));
    });
    let queues: Vec<_> =
        set.disks().into_iter().map(|d| LeafQueue::new(d, Options::threads(1), pool())).collect();
    let batch = Batch::new();
    let start = time::now();
    for queue in &queues {
        queue.read(&batch, Class::SyncRead, 0, queue.shared.pool.get(512));
    }
    assert!(start.elapsed() < Duration::from_millis(40), "submitting does not wait");
    assert_eq!(batch.wait().len(), 3);
    let took = start.elapsed();
    assert!(
        took < Duration::from_millis(110),
        "at the same time, not one after the other: {took:?}"
    );
}

#[test]
fn a_hung_disk_is_given_up_and_nobody_else_waits() {
    let set = SimSet::new(2, MIB);
    let pool = pool();
    let queues = [0, 1].map(|n| LeafQueue::new(set.disk(n), quick(1), pool.clone()));
    let fault = set.disk(0).inject(Fault::new(Kind::Hang, On::Reads));
    let batch = Batch::new();
    queues[0].read(&batch, Class::SyncRead, 0, pool.get(4096));
    queues[0].read(&batch, Class::SyncRead, 8192, pool.get(4096));
    queues[1].read(&batch, Class::SyncRead, 0, pool.get(4096));
    let start = time::now();
    let outcomes = batch.wait();
    assert!(start.elapsed() < Duration::from_secs(10));
    for lost in &outcomes[..2] {
        assert!(matches!(lost.result, Err(DeviceError::Hung { waited_ms: 100.., .. })), "{lost:?}");
        assert!(lost.buf.is_none(), "the buffer is the lost I/O's");
    }
    assert!(outcomes[2].result.is_ok(), "the other disk");
    assert_eq!(queues[0].state(), QueueState { waiting: 0, active: 1, lost: 1, given_up: 2 });
    drop(outcomes);
    assert_eq!(pool.state().idle_bytes, 2 * 4096, "all but the buffer that the disk may write to");

    set.disk(0).lift(fault);
    while queues[0].state().active + queues[0].state().waiting > 0 {
        time::sleep(Duration::from_millis(1));
    }
    assert_eq!(queues[0].state(), QueueState { given_up: 2, ..QueueState::default() });
    assert_eq!(pool.state().idle_bytes, 3 * 4096, "the lost buffers came back at last");
    assert_eq!(set.disk(0).counts().reads, 1, "what was given up in the queue was never done");
    queues[0].read_at(0, &mut [0; 512]).expect("it serves again");
}

#[test]
fn a_lost_write_never_lands_on_a_newer_one() {
    let disk = SimDisk::new(MIB);
    let queue = LeafQueue::new(disk.clone(), quick(2), pool());
    let fault = disk.inject(Fault::new(Kind::Hang, On::Writes).times(1));
    let error = queue.write_at(0, &[1; 512]).expect_err("it hangs");
    assert_eq!(error.errno(), Errno::TIMEDOUT);
    // The second thread is free and the disk would answer; but then the first write could land
    // after this one.
    assert!(queue.write_at(0, &[2; 512]).is_err());
    assert!(WriteDevice::flush(&queue).is_err(), "nor is anything said to be stable");
    queue.read_at(0, &mut [0; 512]).expect("reads do no harm");
    disk.lift(fault);
    while queue.state().lost > 0 {
        time::sleep(Duration::from_millis(1));
    }
    queue.write_at(0, &[3; 512]).expect("over");
    WriteDevice::flush(&queue).expect("over");
    let mut buf = [0; 1];
    queue.read_at(0, &mut buf).expect("reads");
    assert_eq!(buf, [3]);
}

#[test]
fn the_queue_has_an_end() {
    let disk = SimDisk::new(MIB);
    let options = Options { waiting_max: 2, ..quick(1) };
    let queue = LeafQueue::new(disk.clone(), options, pool());
    let fault = disk.inject(Fault::new(Kind::Hang, On::Reads));
    let batch = Batch::new();
    for n in 0..5 {
        queue.read(&batch, Class::SyncRead, n * 512, queue.shared.pool.get(512));
        assert!(queue.state().waiting <= 2);
    }
    assert!(batch.wait().iter().all(|o| o.result.is_err()));
    disk.lift(fault);
}

#[test]
fn room_is_noticed_at_once() {
    let options = Options { waiting_max: 1, ..Options::threads(1) };
    let queue = LeafQueue::new(SimDisk::new(MIB), options, pool());
    let start = time::now();
    let batch = Batch::new();
    for n in 0..50 {
        queue.read(&batch, Class::SyncRead, n * 512, queue.shared.pool.get(512));
    }
    assert!(batch.wait().iter().all(|o| o.result.is_ok()));
    assert!(start.elapsed() < options.deadline / 3, "nobody sat out a deadline");
}

#[test]
fn dropping_a_queue_lets_go_of_the_device() {
    let disk = SimDisk::new(MIB);
    let held = Arc::new(disk.clone());
    struct Held(Arc<SimDisk>);
    impl Device for Held {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn sector_size(&self) -> u32 {
            512
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, buf)
        }
    }
    drop(LeafQueue::new(Held(held.clone()), quick(3), pool()));
    assert_eq!(Arc::strong_count(&held), 1, "so that its lock is free for the next open");
    // With a thread lost in the device it cannot, but does not wait for it either.
    let queue = LeafQueue::new(Held(held.clone()), quick(2), pool());
    let fault = disk.inject(Fault::new(Kind::Hang, On::Reads));
    assert!(queue.read_at(0, &mut [0; 1]).is_err());
    drop(queue);
    assert_eq!(Arc::strong_count(&held), 2);
    disk.lift(fault);
    while Arc::strong_count(&held) > 1 {
        time::sleep(Duration::from_millis(1));
    }
}

/// A disk that is slow at first, so that what is submitted meanwhile waits together.
fn busy_disk() -> (LeafQueue<SimDisk>, Batch) {
    let queue = LeafQueue::new(SimDisk::new(4 * MIB), Options::threads(1), pool());
    let slow = Kind::Slow(Duration::from_millis(200));
    queue.device().inject(Fault::new(slow, On::Reads).times(1));
    let first = Batch::new();
    queue.read(&first, Class::SyncRead, 3 * MIB, queue.shared.pool.get(512));
    while queue.state().active == 0 {
        time::sleep(Duration::from_millis(1));
    }
    (queue, first)
}

#[test]
fn what_follows_each_other_and_waits_is_one_io() {
    let (queue, first) = busy_disk();
    for n in 0..16u8 {
        queue.device().overwrite(u64::from(n) * 4096, &[n; 4096]);
    }
    let batch = Batch::new();
    for n in [3, 1, 0, 2, 8, 9, 12] {
        queue.read(&batch, Class::Read, n * 4096, queue.shared.pool.get(4096));
    }
    assert!(first.wait()[0].result.is_ok());
    for (outcome, n) in batch.wait().into_iter().zip([3, 1, 0, 2, 8, 9, 12]) {
        assert!(outcome.result.is_ok() && outcome.buf.expect("a buffer").iter().all(|b| *b == n));
    }
    assert_eq!(queue.device().counts().reads, 1 + 3, "0 to 3, 8 and 9, 12");
}

/// What a batch that nobody waits for had in the queue is not done, and its memory is given back.
#[test]
fn a_batch_that_is_dropped_is_forgotten() {
    let account = rt::Account::new(MIB, 0);
    let (queue, first) = busy_disk();
    let grant = account.try_grant(rt::mem::Class::Normal, 8192).expect("there is room");
    let batch = Batch::with_memory(grant);
    for n in 0..2 {
        queue.read(&batch, Class::Read, n * 8192, queue.shared.pool.get(4096));
    }
    assert_eq!(account.used(), 8192);
    drop(batch);
    assert_eq!(account.used(), 8192, "as long as the I/Os hold their buffers");
    drop(first.wait());
    assert_idle(&queue);
    assert_eq!((account.used(), queue.device().counts().reads), (0, 1));
}

/// Reads that are submitted together and follow each other are one for the disk, although threads are idle.
#[test]
fn what_is_submitted_together_is_one_for_the_disk() {
    const PART: usize = 64 << 10;
    let queue = LeafQueue::new(SimDisk::new(8 * MIB), Options::threads(3), pool());
    let image: Vec<u8> = (0..8 * MIB).map(|at| (at >> 16) as u8).collect();
    queue.write_at(0, &image).expect("writes");
    for _ in 0..50 {
        let before = queue.device().counts().reads;
        // Two runs: the second is far from the first.
        let places = (0..8u64).map(|n| n * PART as u64);
        let reads: Vec<(u64, usize)> =
            places.clone().chain(places.map(|at| at + 4 * MIB)).map(|at| (at, PART)).collect();
        let batch = Batch::new();
        let places = queue.start_reads(&batch, Class::Read, &reads);
        assert_eq!(places, (0..16).collect::<Vec<_>>());
        for (outcome, (at, _)) in batch.wait().into_iter().zip(&reads) {
            let buf = outcome.buf.expect("a buffer");
            assert!(buf.len() == PART && buf.iter().all(|byte| *byte == (at >> 16) as u8));
        }
        assert_eq!(queue.device().counts().reads - before, 2);
    }
}

/// More reads at once than the queue holds: each comes, or is refused when the disk hangs.
#[test]
fn more_than_the_queue_holds_is_read_in_turn() {
    let options = Options { waiting_max: 4, ..quick(2) };
    let queue = LeafQueue::new(SimDisk::new(MIB), options, pool());
    let reads: Vec<(u64, usize)> = (0..64).map(|n| (n * 8192, 4096)).collect();
    let batch = Batch::new();
    assert_eq!(queue.start_reads(&batch, Class::Read, &reads).len(), 64);
    assert!(batch.wait().iter().all(|outcome| outcome.result.is_ok()));
    queue.device().inject(Fault::new(Kind::Hang, On::Reads));
    let batch = Batch::new();
    queue.start_reads(&batch, Class::Read, &reads);
    assert!(batch.wait().iter().all(|outcome| outcome.result.is_err()));
    queue.device().heal();
}

/// A read gets its buffer when its turn has come.
#[test]
fn what_waits_takes_no_memory() {
    const PART: usize = 64 << 10;
    let pool = pool();
    drop(pool.get(PART));
    let before = pool.state();
    assert!(before.idle_bytes >= PART);
    let queue = LeafQueue::new(SimDisk::new(MIB), Options::threads(1), pool.clone());
    let fault = queue.device().inject(Fault::new(Kind::Hang, On::Reads));
    let batch = Batch::new();
    queue.start_reads(&batch, Class::Read, &[(0, PART), (4 * PART as u64, PART)]);
    // The first is at the disk with the buffer that was there; the second is never done.
    assert!((0..1000).any(|_| {
        time::sleep(Duration::from_millis(1));
        queue.state().active == 1
    }));
    drop(batch);
    queue.device().lift(fault);
    assert_idle(&queue);
    assert_eq!(pool.state(), before);
}

/// What went well is counted with its bytes, once however it was asked for; what failed is not.
#[test]
fn what_was_done_is_counted() {
    for options in [Options::inline(), Options::threads(2)] {
        let queue = LeafQueue::new(SimDisk::new(MIB), options, pool());
        let waits = options.threads > 0;
        queue.write_at(0, &[1; 4096]).expect("writes");
        let halves = [IoSlice::new(&[2; 512]), IoSlice::new(&[3; 1024])];
        queue.write_for(Class::Write, 4096, &halves).expect("writes");
        WriteDevice::flush(&queue).expect("flushes");
        queue.read_at(0, &mut [0; 512]).expect("reads");
        let batch = Batch::new();
        queue.start_reads(&batch, Class::Scan, &[(64 << 10, 8192)]);
        assert!(batch.wait()[0].result.is_ok());
        queue.write_for(Class::Scan, 64 << 10, &[IoSlice::new(&[4; 2048])]).expect("mends");
        let fault = queue.device().inject(Fault::new(Kind::Error(Errno::IO), On::All));
        assert!(queue.read_at(0, &mut [0; 512]).is_err() && queue.write_at(0, &[1; 512]).is_err());
        queue.device().lift(fault);
        let meters = queue.meters().expect("a queue counts");
        assert_eq!((meters.reads(), meters.writes()), ((2, 512 + 8192), (3, 4096 + 1536 + 2048)));
        let class = |class| meters.class(class).count();
        assert_eq!((class(Class::SyncRead), class(Class::Scan)), (1, 2));
        assert_eq!((class(Class::SyncWrite), class(Class::Write)), (1, 1));
        let sum = |times: &crate::meter::Times| times.iter().sum::<u64>();
        assert_eq!((sum(&meters.disk_reads), sum(&meters.total_reads)), (2, 2));
        assert_eq!((sum(&meters.disk_writes), sum(&meters.disk_flushes)), (3, 1));
        assert_eq!(sum(&meters.class(Class::SyncWrite).queued), u64::from(waits));
    }
}

/// Several that are done as one count as one, which waited as long as the first of them.
#[test]
fn what_waits_and_what_is_put_together_is_counted_so() {
    let (queue, first) = busy_disk();
    let batch = Batch::new();
    queue.start_reads(&batch, Class::Read, &[(0, 4096), (4096, 4096), (MIB, 512)]);
    let before = queue.meters().expect("a queue counts");
    assert_eq!(before.class(Class::SyncRead).active, 1);
    assert_eq!((before.class(Class::Read).waiting, before.reads()), (3, (0, 0)));
    assert!(first.wait()[0].result.is_ok() && batch.wait().iter().all(|o| o.result.is_ok()));
    let meters = queue.meters().expect("a queue counts");
    let ahead = meters.class(Class::Read);
    assert_eq!((ahead.joined[13], ahead.alone[9]), (1, 1));
    assert_eq!(meters.reads(), (3, 512 + 8192 + 512));
    // The disk took 200 ms for the first, and the others waited for that.
    assert_eq!(meters.disk_reads[27..].iter().sum::<u64>(), 1);
    assert_eq!(ahead.queued[26..].iter().sum::<u64>(), 2);
    assert_eq!(meters.total_reads[26..].iter().sum::<u64>(), 3);
}

/// A disk whose flush tells one error once, and whose first caller is long on his way back with it.
struct TellsOnce {
    disk: SimDisk,
    told: AtomicBool,
}

impl Device for TellsOnce {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn sector_size(&self) -> u32 {
        512
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.disk.read_at(offset, buf)
    }
}

impl WriteDevice for TellsOnce {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.disk.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<()> {
        if self.told.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        time::sleep(Duration::from_millis(50));
        let (device, operation, errno) = (self.name().to_owned(), Operation::Flush, Errno::IO);
        Err(DeviceError::Io { device, operation, offset: 0, size: 0, errno })
    }
}

#[test]
fn a_flush_that_failed_is_counted_before_a_later_one_ends() {
    let device = TellsOnce { disk: SimDisk::new(MIB), told: AtomicBool::new(false) };
    let queue = LeafQueue::new(device, Options::threads(2), pool());
    let failures = Arc::<AtomicU64>::default();
    let (first, second) = (Batch::new(), Batch::new());
    queue.flush(&first, &failures);
    while !queue.device().told.load(Ordering::Acquire) {
        time::sleep(Duration::from_millis(1));
    }
    queue.flush(&second, &failures);
    assert!(second.wait()[0].result.is_ok(), "the error was told once");
    assert_eq!(failures.load(Ordering::Acquire), 1, "and is known to whoever flushed after it");
    assert!(first.wait()[0].result.is_err());
}

/// Where every thread is lost in the disk, who asks for more is told at once, and need not wait for what a thread would
/// have to do.
#[test]
fn a_disk_that_holds_all_threads_is_not_waited_for() {
    let disk = SimDisk::new(MIB);
    let queue = LeafQueue::new(disk.clone(), quick(1), pool());
    let fault = disk.inject(Fault::new(Kind::Hang, On::Reads));
    assert!(queue.read_at(0, &mut [0; 512]).is_err());
    let start = time::now();
    for n in 0..20 {
        assert!(queue.write_at(n * 512, &[1; 512]).is_err());
    }
    assert!(WriteDevice::flush(&queue).is_err() && queue.read_at(0, &mut [0; 512]).is_err());
    assert!(start.elapsed() < queue.shared.options.deadline, "{:?}", start.elapsed());
    disk.lift(fault);
    while queue.state().active > 0 {
        time::sleep(Duration::from_millis(1));
    }
    queue.write_at(0, &[1; 512]).expect("it serves again");
}

/// However many I/Os are lost in it: they may have gone to the disk as one.
#[test]
fn a_thread_that_is_lost_leaves_the_others_at_work() {
    let queue = LeafQueue::new(SimDisk::new(MIB), quick(2), pool());
    let fault = queue.device().inject(Fault::new(Kind::Hang, On::Reads).times(1));
    let batch = Batch::new();
    queue.start_reads(&batch, Class::SyncRead, &[(0, 512), (512, 512), (1024, 512)]);
    assert!(batch.wait().iter().all(|outcome| outcome.result.is_err()));
    assert_eq!((queue.state().active, queue.state().lost), (1, 3));
    queue.read_at(4096, &mut [0; 512]).expect("the other thread reads");
    queue.write_at(4096, &[1; 512]).expect("and writes");
    queue.device().lift(fault);
}

#[test]
fn what_is_given_up_in_the_queue_gives_its_bytes_back() {
    let (queue, bytes) =
        (LeafQueue::new(SimDisk::new(MIB), quick(1), pool()), Arc::new(vec![1; 512]));
    let fault = queue.device().inject(Fault::new(Kind::Hang, On::Reads));
    let reading = Batch::new();
    queue.read(&reading, Class::SyncRead, 0, queue.shared.pool.get(512));
    let writing = Batch::new();
    for n in 0..20 {
        queue.write(&writing, Class::Write, n * 512, vec![bytes.clone()]);
    }
    assert!(writing.wait().iter().all(|outcome| outcome.result.is_err()));
    assert_eq!((queue.state().waiting, Arc::strong_count(&bytes)), (0, 1));
    assert!(reading.wait()[0].result.is_err());
    queue.device().lift(fault);
}

/// A queue that is full of what nobody waits for has room.
#[test]
fn what_was_dropped_in_the_queue_makes_room() {
    let queue = LeafQueue::new(
        SimDisk::new(MIB),
        Options { waiting_max: 4, deadline: Duration::from_secs(2), ..Options::threads(1) },
        pool(),
    );
    let fault = queue.device().inject(Fault::new(Kind::Hang, On::Reads));
    let (first, dropped, last) = (Batch::new(), Batch::new(), Batch::new());
    queue.start_reads(&first, Class::SyncRead, &[(0, 512)]);
    while queue.state().active == 0 {
        time::sleep(Duration::from_millis(1));
    }
    queue.start_reads(&dropped, Class::Read, &[(8192, 512), (16384, 512), (0, 512), (4096, 512)]);
    drop(dropped);
    let start = time::now();
    queue.start_reads(&last, Class::SyncRead, &[(0, 512)]);
    assert!(start.elapsed() < queue.shared.options.deadline / 2, "{:?}", start.elapsed());
    queue.device().lift(fault);
    assert!(last.wait()[0].result.is_ok() && first.wait()[0].result.is_ok());
}

/// A disk that counts its reads: of what anybody remembers, and of what it has.
struct Asked {
    disk: SimDisk,
    plain: AtomicU64,
    uncached: AtomicU64,
}

impl Device for Asked {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn sector_size(&self) -> u32 {
        512
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.plain.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, buf)
    }
    fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.uncached.fetch_add(1, Ordering::Relaxed);
        self.disk.read_vectored_at(offset, bufs)
    }
}

#[test]
fn a_scan_reads_what_the_disk_has() {
    for options in [Options::inline(), Options::threads(2)] {
        let (plain, uncached) = Default::default();
        let device = Asked { disk: SimDisk::new(MIB), plain, uncached };
        let queue = LeafQueue::new(Arc::new(device), options, pool());
        let asked = || {
            let device = queue.device();
            (device.plain.load(Ordering::Relaxed), device.uncached.load(Ordering::Relaxed))
        };
        let read = |class| {
            let batch = Batch::new();
            queue.start_reads(&batch, class, &[(0, 4096)]);
            assert!(batch.wait()[0].result.is_ok());
        };
        read(Class::SyncRead);
        read(Class::Read);
        assert_eq!(asked(), (2, 0));
        read(Class::Scan);
        queue.read_uncached(512, &mut [IoSliceMut::new(&mut [0; 512])]).expect("reads");
        assert_eq!(asked(), (2, 2));
        assert_eq!(queue.meters().expect("a queue counts").class(Class::Scan).count(), 2);
    }
}
