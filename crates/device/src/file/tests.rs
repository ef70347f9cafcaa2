use super::*;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

fn image(size: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("d00");
    fs::File::create(&path).and_then(|f| f.set_len(size)).expect("an image");
    (dir, path)
}

#[test]
fn what_was_written_is_read() {
    let (_dir, path) = image(1 << 20);
    let disk = WriteFile::open(&path).expect("opens");
    assert_eq!((disk.size(), disk.sector_size()), (1 << 20, 512));
    disk.write_at(4096, b"one").expect("writes");
    let bufs = [IoSlice::new(b"two"), IoSlice::new(b""), IoSlice::new(b"three")];
    disk.write_vectored_at(4099, &bufs).expect("writes");
    disk.flush().expect("flushes");
    let reader = ReadFile::open(&path).expect("opens beside the writer");
    let mut all = [0; 11];
    reader.read_at(4096, &mut all).expect("reads");
    assert_eq!(&all, b"onetwothree");
    let (mut a, mut b, mut none) = ([0; 4], [0; 7], [0; 0]);
    let mut bufs = [IoSliceMut::new(&mut none), IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    reader.read_vectored_at(4096, &mut bufs).expect("reads");
    assert_eq!((&a, &b), (b"onet", b"wothree"));
}

#[test]
fn more_buffers_than_one_call_takes() {
    let (_dir, path) = image(1 << 20);
    let disk = WriteFile::open(&path).expect("opens");
    let bytes: Vec<u8> = (0..30_000u32).map(|n| (n % 251) as u8).collect();
    let bufs: Vec<_> = bytes.chunks(10).map(IoSlice::new).collect();
    disk.write_vectored_at(7, &bufs).expect("writes");
    let mut back = vec![0; bytes.len()];
    let mut bufs: Vec<_> = back.chunks_mut(11).map(IoSliceMut::new).collect();
    disk.read_vectored_at(7, &mut bufs).expect("reads");
    assert!(back == bytes);
}

#[test]
fn one_writer_at_a_time() {
    let (_dir, path) = image(1 << 20);
    let first = WriteFile::open(&path).expect("opens");
    let second = WriteFile::open(&path).err().expect("refused");
    assert_eq!(second, DeviceError::Busy { device: path.display().to_string() });
    // As a program that is about to be started has it.
    let copy = rustix::io::dup(&first.0.fd).expect("is copied");
    drop(first);
    drop(WriteFile::open(&path).expect("free again"));
    drop(copy);
}

#[test]
fn never_beyond_the_end() {
    let (_dir, path) = image(8192);
    let disk = WriteFile::open(&path).expect("opens");
    let mut buf = [0; 4096];
    disk.read_at(4096, &mut buf).expect("the last page is there");
    for offset in [4097, 8192, u64::MAX] {
        assert!(matches!(disk.read_at(offset, &mut buf), Err(DeviceError::Range { .. })));
        assert!(matches!(disk.write_at(offset, &buf), Err(DeviceError::Range { .. })));
        let bufs = [IoSlice::new(&buf)];
        assert!(matches!(disk.write_vectored_at(offset, &bufs), Err(DeviceError::Range { .. })));
    }
    assert_eq!(fs::metadata(&path).expect("is there").len(), 8192);
    // Made shorter under us: an error, not zeros and no endless loop.
    fs::File::options().write(true).open(&path).and_then(|f| f.set_len(4096)).expect("cut");
    let error = disk.read_at(4096, &mut buf).expect_err("nothing there");
    assert_eq!(error.errno(), Errno::IO);
    assert_eq!(
        error.to_string(),
        format!("{}: read of 4096 bytes at 4096: Input/output error (os error 5)", path.display())
    );
}

#[test]
fn what_is_no_disk_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let missing = ReadFile::open(dir.path().join("none")).err().expect("refused");
    assert_eq!(missing.errno(), Errno::NOENT);
    for path in [dir.path(), Path::new("/dev/null")] {
        assert!(matches!(ReadFile::open(path), Err(DeviceError::Kind { .. })));
        assert!(matches!(WriteFile::open(path), Err(DeviceError::Kind { .. })));
    }
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0)
        .expect("pipe");
    assert!(matches!(ReadFile::open(&pipe), Err(DeviceError::Kind { .. })));
}

/// A disk that is an image, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None` where there are none to be had.
    fn on(image: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(made.stdout).ok().filter(|_| made.status.success())?;
        Some(Loop(name.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// What has changed on a disk behind the kernel's back is found by who asks the disk.
#[test]
fn what_a_disk_has_is_not_what_was_read_before() {
    let (_dir, path) = image(8 << 20);
    let Some(disk) = Loop::on(&path) else { return };
    let (name, mut all) = (disk.0.clone(), vec![0; 8 << 20]);
    let writer = WriteFile::open(&name).expect("opens");
    writer.write_at(0, &vec![1; 8 << 20]).expect("writes");
    writer.flush().expect("flushes");
    let reader = ReadFile::open(&name).expect("opens");
    let below = fs::File::options().write(true).open(&path).expect("is there");
    let devices: [&dyn Device; 2] = [&writer, &reader];
    for (byte, device) in (2..).zip(devices) {
        // Pages, a part of one, and the end of one with the beginning of the next.
        for (offset, size) in [(1 << 20, 128 << 10), (512, 512), (4096 * 5 - 512, 1024)] {
            device.read_at(0, &mut all).expect("reads");
            let other = vec![byte; size];
            below.write_all_at(&other, offset as u64).expect("writes");
            let mut bytes = vec![0; size];
            let (one, two) = bytes.split_at_mut(200);
            let mut bufs = [IoSliceMut::new(one), IoSliceMut::new(two)];
            device.read_uncached(offset as u64, &mut bufs).expect("reads");
            assert!(bytes == other, "{size} bytes at {offset}");
        }
        assert!(device.read_uncached(8 << 20, &mut [IoSliceMut::new(&mut [0])]).is_err());
    }
    // The disk is free before its device goes.
    drop((writer, reader));
    drop(disk);
}
