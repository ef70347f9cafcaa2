use super::*;

#[test]
fn aligned_and_zero() {
    for len in [0, 1, 4095, 4096, 4097, 1 << 20, 3 << 20] {
        let buf = Buf::zeroed(len);
        assert_eq!(buf.len(), len);
        assert!(buf.iter().all(|&b| b == 0));
        assert!(len == 0 || buf.as_ptr().align_offset(ALIGN) == 0);
    }
}

#[test]
fn owns_its_bytes() {
    let mut buf = Buf::from_slice(b"thumper");
    let copy = buf.clone();
    buf[0] = b'T';
    assert_eq!(&copy[..], b"thumper");
    let moved = std::thread::scope(|s| {
        #[allow(clippy::disallowed_methods)]
        s.spawn(move || buf).join().expect("no panic")
    });
    assert_eq!(&moved[..], b"Thumper");
}
