//! What `sharenfs` and `sharesmb` can say. Nothing is shared here: a pool that is imported elsewhere may be.

/// Options of an NFS export that OpenZFS takes on Linux, with or without a value.
const NFS: [&[u8]; 34] = [
    b"all_squash",
    b"anon",
    b"anongid",
    b"anonuid",
    b"async",
    b"auth_nlm",
    b"crossmnt",
    b"fsid",
    b"fsuid",
    b"hide",
    b"insecure",
    b"insecure_locks",
    b"mountpoint",
    b"mp",
    b"no_acl",
    b"no_all_squash",
    b"no_auth_nlm",
    b"no_root_squash",
    b"no_subtree_check",
    b"no_wdelay",
    b"nohide",
    b"nosub",
    b"refer",
    b"replicas",
    b"ro",
    b"root_mapping",
    b"root_squash",
    b"rw",
    b"sec",
    b"secure",
    b"secure_locks",
    b"subtree_check",
    b"sync",
    b"wdelay",
];

fn is_switch(value: &[u8]) -> bool {
    matches!(value, b"on" | b"off")
}

/// True for `on`, `off`, and options with commas between them, of which some may be empty.
pub(super) fn is_nfs(value: &[u8]) -> bool {
    let known = |option: &[u8]| {
        let name = option.split(|byte| *byte == b'=').next().unwrap_or_default();
        option.is_empty() || NFS.contains(&name)
    };
    is_switch(value) || value.split(|byte| *byte == b',').all(known)
}

/// True for `on` and `off`: on Linux there are no options.
pub(super) fn is_smb(value: &[u8]) -> bool {
    is_switch(value)
}
