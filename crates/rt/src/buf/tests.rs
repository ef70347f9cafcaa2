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

#[test]
fn what_lies_idle_is_leased_and_given_back() {
    use crate::mem::{Account, Class, Holder};
    const MIB: usize = 1 << 20;
    let _alone = crate::mem::process::tests::alone();
    let account = Account::new(64 << 20, 0);
    let pool = BufPool::of(&account);
    let leased = || account.of(Holder::Buffers).held();
    // More than may lie idle of the account.
    let many = || (0..384).map(|_| pool.get(128 << 10)).collect::<Vec<_>>();
    let bufs = many();
    assert_eq!(leased(), 0, "none is idle");
    drop(bufs);
    assert_eq!((pool.state().idle_bytes, leased()), (32 * MIB, 32 << 20));
    let bufs = many();
    assert!(pool.state().idle_bytes == 0 && leased() <= 8 << 20, "{}", leased());
    drop(bufs);
    // Somebody needs all but a little.
    let others = account.take(60 << 20);
    assert!(account.used() <= 64 << 20, "{}", account.used());
    assert!(pool.state().idle_bytes <= 4 * MIB, "{:?}", pool.state());
    drop(many());
    assert!(pool.state().idle_bytes <= 8 * MIB && account.used() <= 72 << 20);
    drop(others);
    drop(many());
    assert_eq!(leased(), 32 << 20);
    account.rest();
    assert_eq!((pool.state().idle_bytes, account.used()), (0, 0));
    // Nothing is counted of a buffer in use.
    let one = pool.get(128 << 10);
    assert!(account.try_grant(Class::Normal, 64 << 20).is_some());
    drop(one);
}
