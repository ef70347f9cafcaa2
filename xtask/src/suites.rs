//! The verbs that test: what they run, in which order, and what they say at the end.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::fuzz;
use crate::packages;
use crate::run::{Steps, cargo, run, run_side_by_side, run_tests};

/// What also runs under the simulator's scheduler: crates, and the tests of the whole that are made for it.
const SIMULATED: &[&[&str]] =
    &[&["-p", "rt", "-p", "device", "--features", "sim"], WHOLE_SIMULATED];

const WHOLE_SIMULATED: &[&str] = &["-p", "interleavings", "--features", "sim"];

/// How long each fuzz target runs in `cargo xtask test`, in seconds.
const FUZZ_SECONDS: u32 = 3;

/// Disk that the build and the tests take, where nothing is built yet.
const DISK_GB: u64 = 12;

/// A disk that fills up in the middle of a build shows as errors of the linker: better said before.
fn say_if_cramped() {
    let df = Command::new("df").args(["--output=avail", "-B1000000000"]).arg(crate::top()).output();
    let said = df.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    if let Some(free) = said.lines().last().and_then(|line| line.trim().parse::<u64>().ok())
        && free < DISK_GB
    {
        println!("{free} GB of disk are free; where nothing is built yet {DISK_GB} are needed");
    }
}

/// `cargo xtask test`.
pub(crate) fn test(kernel: bool) -> Result<()> {
    say_if_cramped();
    packages::ensure(&[
        &packages::REFEREES,
        &packages::FUZZER,
        &packages::MOUNTED,
        &packages::XROOTD,
        &packages::WATCHERS,
    ])?;
    if kernel {
        build_vm()?;
    } else {
        println!("--no-kernel: what the OpenZFS kernel says of our pools is NOT shown");
    }
    let mount = std::path::Path::new("/dev/fuse").exists();
    if !mount {
        println!("/dev/fuse is not there (`modprobe fuse`): the mount is NOT shown");
    }
    let uproot = packages::ensure_uproot();
    let mut steps = Steps::new();
    steps.step("format", |_| run(cargo().args(["fmt", "--all", "--check"])));
    steps.step("tidy", |_| tidy());
    steps.step("clippy", |_| {
        let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--locked"];
        run(cargo().args(lints).args(["--", "-D", "warnings"]))
    });
    steps.step("documents", |_| {
        let doc = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
        // private items are documented too, so links to them lead somewhere
        let flags = "-D warnings -A rustdoc::private_intra_doc_links";
        run(cargo().args(doc).arg("--locked").env("RUSTDOCFLAGS", flags))
    });
    steps.step("tests", |tally| {
        let mut command = cargo();
        command.args(["test", "--workspace", "--locked"]);
        if !kernel {
            command.env("THUMPER_NO_KERNEL", "1");
        }
        if !mount {
            command.env("THUMPER_NO_MOUNT", "1");
        }
        if !uproot {
            command.env("THUMPER_NO_UPROOT", "1");
        }
        run_side_by_side(&mut command, tally, build_ahead)?;
        run_tests(cargo().args(["test", "--workspace", "--locked", "--doc", "--quiet"]), tally)
    });
    steps.step("simulated", |tally| {
        SIMULATED.iter().try_for_each(|what| run_tests(&mut simulated(what), tally))
    });
    steps.step("fuzz", |_| fuzz::fuzz(None, FUZZ_SECONDS));
    let left_out = [
        (kernel, "what the OpenZFS kernel says (--no-kernel)"),
        (mount, "the mount (no /dev/fuse)"),
        (uproot, "uproot (not to be had)"),
    ];
    let left_out: Vec<&str> =
        left_out.iter().filter(|(shown, _)| !shown).map(|(_, what)| *what).collect();
    steps.close(&left_out.join("; "))
}

/// Tests that know the simulator, built for it.
fn simulated(what: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast"]).args(what);
    command
}

/// Builds what later steps run, while tests wait for VMs and clocks. What does not build says so in its own step.
fn build_ahead() {
    let quietly = |command: &mut Command| {
        drop(command.stdout(Stdio::null()).stderr(Stdio::null()).status());
    };
    SIMULATED.iter().for_each(|what| quietly(simulated(what).arg("--no-run")));
    if let Ok((mut command, _)) = fuzz::building(FUZZ_SECONDS) {
        quietly(&mut command);
    }
}

/// Builds the VM with the OpenZFS kernel module if it is not there yet.
fn build_vm() -> Result<()> {
    let zfsvm = crate::top().join("tools/zfsvm");
    run(Command::new(zfsvm).arg("--build")).context(
        "the VM with the OpenZFS kernel cannot be built; `cargo xtask test --no-kernel` \
         does without, and then does not show what the kernel says of our pools",
    )
}

/// `cargo xtask tidy`.
pub(crate) fn tidy() -> Result<()> {
    let found = crate::tidy::check(&crate::top())?;
    for finding in &found {
        println!("{finding}");
    }
    if !found.is_empty() {
        bail!("{} against the rules (xtask/src/tidy/rules.rs)", found.len());
    }
    fuzz::check_packages()
}

/// `cargo xtask interop`: the referees' tests again, with the long rounds that they keep for it.
pub(crate) fn interop() -> Result<()> {
    packages::ensure(&[
        &packages::REFEREES,
        &packages::MOUNTED,
        &packages::XROOTD,
        &packages::WATCHERS,
    ])?;
    build_vm()?;
    let uproot = packages::ensure_uproot();
    let mut steps = Steps::new();
    steps.step("interop", |tally| {
        let mut command = cargo();
        command.args(["test", "--release", "--locked", "-p", "acceptance", "-p", "interleavings"]);
        if !uproot {
            command.env("THUMPER_NO_UPROOT", "1");
        }
        run_side_by_side(command.env("THUMPER_ROUNDS", "long"), tally, || {})
    });
    steps.step("simulated", |tally| {
        let mut command = simulated(WHOLE_SIMULATED);
        run_tests(command.arg("--release").env("THUMPER_ROUNDS", "long"), tally)
    });
    steps.close(if uproot { "" } else { "uproot (not to be had)" })
}
