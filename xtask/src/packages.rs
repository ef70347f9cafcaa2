//! What Debian must provide, and getting it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Packages that belong together.
pub(crate) struct Need {
    /// What cannot be done without them.
    what: &'static str,
    packages: &'static [&'static str],
    /// What can be done all the same.
    without: &'static str,
}

/// OpenZFS's own user-space tools and poolaudit.
pub(crate) const REFEREES: Need = Need {
    what: "the referees zdb and poolaudit",
    packages: &["zfsutils-linux", "python3"],
    without: "`cargo test --workspace --exclude acceptance --exclude testkit` \
              and `cargo xtask tidy` run without them",
};

/// What is run in a mounted file system, and what a user mounts with.
pub(crate) const MOUNTED: Need = Need {
    what: "the tests of the mount",
    packages: &["fuse3", "fio", "rsync", "git", "sqlite3", "mount", "python3", "curl", "systemd"],
    without: "with THUMPER_NO_MOUNT=1 the tests of the mount are left out, and say so",
};

/// What libFuzzer is built with.
pub(crate) const FUZZER: Need = Need {
    what: "the fuzz targets",
    packages: &["g++"],
    without: "`cargo test --workspace` runs without it",
};

/// What unpacks golden pools where no test helper does.
pub(crate) const UNPACK: Need = Need {
    what: "golden pools",
    packages: &["tar", "zstd", "diffutils", "coreutils"],
    without: "`cargo xtask test` runs without them",
};

/// The peers of the bench.
pub(crate) const PEERS: Need = Need {
    what: "the peers of the bench",
    packages: &[
        "gcc",
        "make",
        "libc6-dev",
        "libzfslinux-dev",
        "zfsutils-linux",
        "libisal-dev",
        "liburing-dev",
        "libjemalloc2",
        "python3",
    ],
    without: "`cargo xtask test` and `cargo xtask demo` run without them",
};

/// The kernel's file systems, which `cargo xtask bench ROUNDS all` runs on loop devices.
pub(crate) const KERNEL_PEERS: Need = Need {
    what: "the kernel file systems in the bench",
    packages: &["btrfs-progs", "xfsprogs", "e2fsprogs", "util-linux"],
    without: "`cargo xtask bench` without `all` runs without them",
};

/// XRootD, its clients, and what the plug-in is built with.
pub(crate) const XROOTD: Need = Need {
    what: "the XRootD plug-in and its tests",
    packages: &[
        "cmake",
        "g++",
        "libxrootd-dev",
        "libxrootd-client-dev",
        "libxrootd-server-dev",
        "xrootd-server",
        "xrootd-server-plugins",
        "xrootd-plugins",
        "xrootd-client",
        "python3-xrootd",
        "davix",
        "curl",
        "openssl",
        "iproute2",
        "python3-venv",
        "voms-clients",
        "xrootd-voms-plugins",
        "xrootd-scitokens-plugins",
        "scitokens-cpp",
    ],
    without: "`cargo test --workspace --exclude acceptance` runs without them",
};

/// A browser, and a parser of metrics.
pub(crate) const WATCHERS: Need = Need {
    what: "the tests of the status page and the metrics",
    packages: &["chromium", "chromium-driver", "python3", "python3-prometheus-client"],
    without: "`cargo test --workspace --exclude acceptance` runs without them",
};

/// Makes sure that the packages of `needs` are there, or says which are not and what runs without.
pub(crate) fn ensure(needs: &[&Need]) -> Result<()> {
    let mut missing = Vec::new();
    for need in needs {
        let absent = absent(need.packages)?;
        if !absent.is_empty() {
            println!("{} need: {}", need.what, absent.join(" "));
        }
        missing.extend(absent.into_iter().filter(|p| !missing.contains(p)).collect::<Vec<_>>());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let without: Vec<&str> = needs.iter().map(|need| need.without).collect();
    let list = missing.join(" ");
    if !is_root() {
        bail!(
            "not root, and these Debian packages are missing: {list}\n\
             (zfsutils-linux and libzfslinux-dev are in contrib)\n{}",
            without.join("\n")
        );
    }
    println!("installing from Debian: {list}");
    install(&missing).with_context(|| {
        format!(
            "these packages are missing and could not be installed: {list}\n{}",
            without.join("\n")
        )
    })
}

/// What reads ROOT's trees; Debian does not have it.
const UPROOT: &[&str] = &["uproot==5.7.7", "fsspec-xrootd==0.5.5"];

/// Makes a python with uproot, in the target directory, if it is not there yet. False: there is none, and it was said why.
pub(crate) fn ensure_uproot() -> bool {
    let into = crate::run::target_dir().join("uproot");
    let python = into.join("bin/python");
    let works = |python: &Path| {
        let mut ask = Command::new(python);
        ask.args(["-c", "import uproot, fsspec_xrootd, XRootD"]).stderr(Stdio::null());
        ask.status().is_ok_and(|status| status.success())
    };
    if works(&python) {
        return true;
    }
    println!("installing with pip, into {}: {}", into.display(), UPROOT.join(" "));
    let mut venv = Command::new("/usr/bin/python3");
    venv.args(["-m", "venv", "--clear"]).arg(&into);
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(UPROOT);
    let made = crate::run::run(&mut venv).and_then(|()| crate::run::run(&mut pip));
    if let Err(error) = made {
        println!("{error:#}\nuproot cannot be had: that it reads a tree is NOT shown");
        return false;
    }
    works(&python)
}

/// Those of `packages` that are not installed.
fn absent(packages: &[&'static str]) -> Result<Vec<&'static str>> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(packages)
        .stderr(Stdio::null())
        .output()
        .with_context(|| {
            format!("this is not Debian; you need what it calls {}", packages.join(" "))
        })?;
    let installed = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_there = |package: &&&str| installed.lines().any(|l| l == format!("installed {package}"));
    Ok(packages.iter().filter(|package| !is_there(package)).copied().collect())
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn install(packages: &[&str]) -> Result<()> {
    enable_contrib(Path::new("/etc/apt"))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q").args(arguments);
        crate::run::run(command.stdout(Stdio::null()))
    };
    apt(&["update"])?;
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

/// Enables Debian's contrib, where OpenZFS is, in whichever form the sources of apt are written.
fn enable_contrib(etc_apt: &Path) -> Result<()> {
    let mut lists = vec![etc_apt.join("sources.list")];
    let below = std::fs::read_dir(etc_apt.join("sources.list.d")).into_iter().flatten();
    lists.extend(below.flatten().map(|entry| entry.path()));
    let mut texts = Vec::new();
    for path in lists {
        if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path, text));
        }
    }
    if texts.iter().any(|(_, text)| text.lines().any(|line| has_component(line, "contrib"))) {
        return Ok(());
    }
    for (path, text) in texts {
        if let Some(changed) = with_contrib(&text) {
            println!("enabling contrib in {}", path.display());
            std::fs::write(&path, changed).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// True if `line` is a source, of either form, with `component`.
fn has_component(line: &str, component: &str) -> bool {
    let is_source = line.starts_with("Components:") || line.starts_with("deb ");
    is_source && line.split_whitespace().any(|word| word == component)
}

/// `text` with contrib beside each main; nothing if there is no main.
fn with_contrib(text: &str) -> Option<String> {
    text.lines().any(|line| has_component(line, "main")).then(|| {
        let widen = |line: &str| {
            if !has_component(line, "main") {
                return format!("{line}\n");
            }
            let words = line.split(' ').map(|w| if w == "main" { "main contrib" } else { w });
            words.collect::<Vec<_>>().join(" ") + "\n"
        };
        text.lines().map(widen).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_sources_are_widened() {
        let old = "# x\ndeb http://mirror/debian bookworm main non-free-firmware\ndeb-src x y z\n";
        let new = "Types: deb\nSuites: bookworm\nComponents: main\n";
        let widened = with_contrib(old).unwrap();
        assert!(widened.contains("bookworm main contrib non-free-firmware\n"), "{widened}");
        assert!(widened.starts_with("# x\n") && widened.ends_with("deb-src x y z\n"), "{widened}");
        assert!(with_contrib(new).unwrap().ends_with("Components: main contrib\n"));
        assert_eq!(with_contrib("# deb x main\n"), None);
        assert!(has_component("Components: main contrib", "contrib"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let absent = absent(&["dpkg", "no-such-package-at-all"]).unwrap();
        assert_eq!(absent, ["no-such-package-at-all"]);
    }
}
