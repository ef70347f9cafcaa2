//! What the kernel is asked for: a mount with the flags that properties mean.
//!
//! The one idea: whoever can makes the mount himself. A session that has made it unmounts the *directory* when it ends; of
//! one that was unmounted lazily that may be long afterwards, and another file system is mounted there by then.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use fs::MountProps;
use fuser::{Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::unistd::{getegid, geteuid};

use crate::door::Door;

/// Where the kernel is spoken to.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// The type by which mounts of ours are known.
pub(crate) const SUBTYPE: &str = "thumper";

/// What the kernel sees to by itself, of the properties of a file system.
pub(crate) fn flags(props: &MountProps, read_only: bool) -> MsFlags {
    let is_root = geteuid().is_root();
    let flags = [
        (MsFlags::MS_RDONLY, read_only || props.readonly),
        (MsFlags::MS_NOEXEC, !props.exec),
        (MsFlags::MS_NOSUID, !(props.setuid && is_root)),
        (MsFlags::MS_NODEV, !(props.devices && is_root)),
    ];
    flags.into_iter().filter_map(|(flag, set)| set.then_some(flag)).collect()
}

/// Mounts what is called `name` on a directory.
pub(crate) fn attach(
    door: Door,
    (name, dir): (&str, &Path),
    flags: MsFlags,
    threads: usize,
) -> io::Result<Session<Door>> {
    // Others see what root mounts, as far as permissions let them; what a user mounts only he.
    let acl = if geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    let mut config = Config::default();
    config.acl = acl;
    config.n_threads = Some(threads);
    config.clone_fd = true;
    let device = File::options().read(true).write(true).open(DEVICE)?;
    match by_ourselves(&device, (name, dir), flags) {
        Ok(()) => Session::from_fd(door, device.into(), acl, config).inspect_err(|_| {
            let _ = nix::mount::umount2(dir, nix::mount::MntFlags::MNT_DETACH);
        }),
        // There is a program for those who may not.
        Err(Errno::EPERM) => {
            let either = |flag, one, other| if flags.contains(flag) { one } else { other };
            config.mount_options = vec![
                MountOption::FSName(name.into()),
                MountOption::CUSTOM(format!("subtype={SUBTYPE}")),
                MountOption::DefaultPermissions,
                either(MsFlags::MS_RDONLY, MountOption::RO, MountOption::RW),
                either(MsFlags::MS_NOEXEC, MountOption::NoExec, MountOption::Exec),
                either(MsFlags::MS_NOSUID, MountOption::NoSuid, MountOption::Suid),
                either(MsFlags::MS_NODEV, MountOption::NoDev, MountOption::Dev),
            ];
            Session::new(door, dir, &config)
        }
        Err(error) => Err(error.into()),
    }
}

fn by_ourselves(device: &File, (name, dir): (&str, &Path), flags: MsFlags) -> nix::Result<()> {
    let mode = nix::sys::stat::stat(dir)?.st_mode;
    let (fd, uid, gid) = (device.as_raw_fd(), geteuid(), getegid());
    let mut data = format!("fd={fd},rootmode={mode:o},user_id={uid},group_id={gid}");
    data += &format!(",default_permissions,subtype={SUBTYPE}");
    if uid.is_root() {
        data += ",allow_other";
    }
    nix::mount::mount(Some(name), dir, Some("fuse"), flags, Some(data.as_str()))
}
