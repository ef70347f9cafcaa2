//! Gangs that are damaged, or lead to themselves: each block of them is read a few times, not once for each way to it.

use std::collections::BTreeMap;

use device::sim::SimSet;
use device::{Device, WriteDevice};
use format::blkptr::BlkProps;
use format::config::{TopConfig, VdevConfig, VdevKind};
use format::gang::GANG_MEMBERS;
use format::label::DATA_AT;
use rt::sync::atomic::{AtomicUsize, Ordering};
use vdev::Found;
use zerocopy::IntoBytes;

use super::*;

const TXG: u64 = 7;
const SPACE: u64 = 4 << 20;

/// A disk that counts what is read of it.
struct Counted(Box<dyn Device>, Arc<AtomicUsize>);

impl Device for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }
}

/// A store on one disk.
struct Rig {
    disks: SimSet,
    store: Store,
    reads: Arc<AtomicUsize>,
}

fn rig() -> Rig {
    let top = TopConfig { ashift: 9, asize: SPACE, ..TopConfig::default() };
    let path = Some(b"/dev/d1".to_vec());
    let disk = VdevConfig { path, top: Some(top), ..VdevConfig::new(VdevKind::File, Some(0), 1) };
    let root = VdevConfig::new(VdevKind::Root, None, 2);
    let root = VdevConfig { children: vec![disk], ..root };
    let (disks, reads) =
        (SimSet::new(1, DATA_AT + SPACE + (512 << 10)), Arc::<AtomicUsize>::default());
    let device = Counted(Box::new(disks.disk(0).reader()), reads.clone());
    let found = Found { device: Arc::new(device), labelled: true };
    let tree = Tree::open(&root, BTreeMap::from([(1, found)])).unwrap();
    let buffers = Arc::new(BufPool::new(0));
    let streams = Streams::new(&Account::new(1 << 20, 0), 0);
    Rig { disks, store: Store::new(Present::new(Arc::new(tree)), buffers, 0, streams), reads }
}

impl Rig {
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.disks.disk(0).write_at(DATA_AT + offset, bytes).unwrap();
    }

    /// A block of these bytes, with a copy at each of these places.
    fn block(&self, bytes: &[u8], places: &[u64]) -> BlkPtr {
        places.iter().for_each(|at| self.write(*at, bytes));
        pointer(bytes, places, false)
    }

    /// A gang of these members, with a header at each of these places.
    fn gang(&self, bytes: &[u8], members: &[BlkPtr], places: &[u64]) -> BlkPtr {
        let mut pointers = [BlkPtr::ZERO; GANG_MEMBERS];
        pointers[..members.len()].copy_from_slice(members);
        let mut header = [0; GANG_SIZE];
        header.copy_from_slice(GangHeader::new(pointers).as_bytes());
        let place = Place::GangHeader { vdev: 0, offset: places[0], txg: TXG };
        embedded::seal(place, &mut header).unwrap();
        places.iter().for_each(|at| self.write(*at, &header));
        pointer(bytes, places, true)
    }

    /// What comes of reading it, with what was wrong and how often the disk was asked.
    fn read(&self, bp: &BlkPtr, size: usize) -> (Result<Vec<u8>>, Trouble, usize) {
        let (mut out, mut trouble) = (vec![0; size], Trouble::default());
        let before = self.reads.load(Ordering::Relaxed);
        let read = self.store.read_copies(bp, &mut out, &mut trouble);
        (read.map(|()| out), trouble, self.reads.load(Ordering::Relaxed) - before)
    }
}

fn pointer(bytes: &[u8], places: &[u64], gang: bool) -> BlkPtr {
    let size = bytes.len() as u64;
    let props = BlkProps {
        lsize: size,
        psize: size,
        compress: Compress::Off,
        checksum: Checksum::Fletcher4,
        kind: ObjectType::NONE,
        level: 0,
    };
    let dva = |offset: &u64| Dva { vdev: 0, offset: *offset, asize: size, gang };
    let dvas: Vec<Dva> = places.iter().map(dva).collect();
    let sum = checksum::compute(Checksum::Fletcher4, bytes, false, &[0; 32]).unwrap();
    BlkPtr::new(props, &dvas, TXG, 0, sum)
}

/// Seen red: 3^16 reads of the header.
#[test]
fn a_gang_in_itself_is_given_up_soon() {
    let rig = rig();
    let (bytes, places) = ([5; 1024], [0, 4096, 8192]);
    let itself = pointer(&bytes, &places, true);
    let gang = rig.gang(&bytes, &[itself], &places);
    let (read, _, reads) = rig.read(&gang, bytes.len());
    assert!(read.unwrap_err().to_string().contains("nested too deep"));
    assert_eq!(reads, GANG_DEPTH_MAX);
}

#[test]
fn one_good_copy_of_each_header_and_member_is_enough() {
    let rig = rig();
    let bytes: Vec<u8> = (0..2048_u32).map(|i| (i / 7) as u8).collect();
    let parts = [0..512, 512..1024, 1024..2048].map(|part| &bytes[part]);
    let first = rig.block(parts[0], &[64 << 10, 68 << 10]);
    let second = rig.block(parts[1], &[72 << 10, 76 << 10]);
    let inner = rig.gang(&bytes[..1024], &[first, second], &[80 << 10, 84 << 10, 88 << 10]);
    let third = rig.block(parts[2], &[92 << 10, 96 << 10]);
    let gang = rig.gang(&bytes, &[inner, third], &[100 << 10, 104 << 10, 108 << 10]);
    let (read, trouble, reads) = rig.read(&gang, bytes.len());
    assert_eq!((read.unwrap(), trouble, reads), (bytes.clone(), Trouble::default(), 5));
    // One after the other is lost, and each time somebody hears of it.
    for at in [64, 76, 80, 84, 92, 100, 104] {
        rig.write(at << 10, &[0x5a; 512]);
        let (read, trouble, _) = rig.read(&gang, bytes.len());
        assert_eq!(read.unwrap(), bytes, "{at}");
        assert!(!trouble.counted.is_empty(), "{at}");
    }
    rig.write(68 << 10, &[0x5a; 512]);
    let (read, trouble, reads) = rig.read(&gang, bytes.len());
    assert!(read.is_err() && !trouble.counted.is_empty());
    assert!(reads <= 8, "{reads}");
}
