//! `cargo xtask demo`: the whole story on image files, in the reader's terminal.
//!
//! Everything is done by the program as anybody would call it, and looked at from outside: zdb
//! judges the pool, diff and sha256sum judge the files.

mod served;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::packages;
use crate::run::{cargo, read, run, target_dir};

/// Size of each of the eleven images, in bytes.
const DISK_BYTES: u64 = 256 << 20;

/// The stage: a directory under cargo's, and the program.
struct Stage {
    dir: PathBuf,
    thumper: PathBuf,
}

/// Where the server listens.
fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("thumper-demo-{}/socket", std::process::id()))
}

impl Stage {
    fn new() -> Result<Stage> {
        let dir = target_dir().join("demo");
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        fs::create_dir_all(dir.join("disks"))?;
        Ok(Stage { dir, thumper: target_dir().join("debug/thumper") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn disk(&self, i: usize) -> PathBuf {
        self.dir.join(format!("disks/d{i:02}"))
    }

    /// Runs `program` in the stage's directory and shows it as one would type it.
    fn run<S: AsRef<OsStr>>(&self, program: &Path, words: &[S]) -> Result<()> {
        let name = program.file_name().unwrap_or(program.as_os_str());
        let shown: Vec<_> = words.iter().map(|w| w.as_ref().to_string_lossy()).collect();
        println!("$ {} {}", name.to_string_lossy(), shown.join(" "));
        let mut command = Command::new(program);
        run(self.known(command.current_dir(&self.dir).args(words)))
    }

    /// The same with the list of pools, and the server, of this stage.
    fn known<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("THUMPER_STATE", self.path("state")).env("THUMPER_SOCKET", socket())
    }

    fn thumper<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<()> {
        self.run(&self.thumper, words)
    }
}

pub(crate) fn demo() -> Result<()> {
    packages::ensure(&[&packages::REFEREES, &packages::UNPACK, &packages::XROOTD])?;
    let began = Instant::now();
    println!("\nBuilding thumper ...");
    run(cargo().args(["build", "--quiet", "--locked", "-p", "cli"]))?;
    let stage = Stage::new()?;
    make(&stage)?;
    fill(&stage)?;
    hurt(&stage)?;
    mend(&stage)?;
    foreign(&stage)?;
    match Path::new("/dev/fuse").exists() {
        true => served::tell(&stage)?,
        false => println!("\nNOT SHOWN: the served pool (no /dev/fuse: `modprobe fuse`)"),
    }
    println!(
        "\nAll of it held. ({:.0} s; what was made is in {})",
        began.elapsed().as_secs_f64(),
        stage.dir.display()
    );
    Ok(())
}

fn make(stage: &Stage) -> Result<()> {
    println!("\n1. Eleven image files become a pool that survives the loss of any two.\n");
    for i in 0..11 {
        File::create(stage.disk(i))?.set_len(DISK_BYTES)?;
    }
    let mut words = vec!["zpool".into(), "create".into(), "demo".into(), "raidz2".into()];
    words.extend((0..11).map(|i| stage.disk(i).into_os_string()));
    let began = Instant::now();
    stage.thumper(&words)?;
    println!("(made in {:.1} s)", began.elapsed().as_secs_f64());
    stage.thumper(&["zfs", "create", "-o", "compression=lz4", "demo/events"])
}

fn fill(stage: &Stage) -> Result<()> {
    println!(
        "\n2. ROOT files come out of a pool that the OpenZFS kernel wrote, and go into ours.\n"
    );
    let kernels = unpack(stage, "rz2")?;
    fs::create_dir(stage.path("files"))?;
    for part in ["gridstorage01", "gridstorage02", "gridstorage03"] {
        let from = format!("rz2/srv/{part}:/");
        let to = stage.path("files").join(part);
        stage.thumper(&[
            "get".as_ref(),
            "-d".as_ref(),
            kernels.as_os_str(),
            "-r".as_ref(),
            from.as_ref(),
            to.as_os_str(),
        ])?;
    }
    stage.thumper(&["put", "-r", "files", "demo/events:/"])?;
    stage.thumper(&["ls", "-l", "-r", "demo/events:/"])?;
    println!("\n3. OpenZFS's own checker reads every block of it.\n");
    checked(stage)
}

/// Exports the pool, and has zdb read all of it.
fn checked(stage: &Stage) -> Result<()> {
    stage.thumper(&["zpool", "export", "demo"])?;
    let zdb = PathBuf::from("/usr/sbin/zdb");
    let said = read(
        Command::new(&zdb).arg("-e").arg("-p").arg(stage.path("disks")).args(["-bccs", "demo"]),
    )
    .context("zdb is not content")?;
    println!("$ zdb -e -p disks -bccs demo");
    for line in said.lines().filter(|line| line.contains("No leaks") || line.contains("bp count")) {
        println!("{line}");
    }
    ensure!(said.contains("No leaks"), "zdb found a leak:\n{said}");
    Ok(())
}

fn hurt(stage: &Stage) -> Result<()> {
    println!("\n4. One disk is deleted, another is overwritten with noise.\n");
    fs::remove_file(stage.disk(3))?;
    println!("$ rm {}", stage.disk(3).display());
    noise(&stage.disk(7), DISK_BYTES)?;
    println!("$ head -c {DISK_BYTES} /dev/urandom > {}", stage.disk(7).display());
    println!("\n5. Every file comes back, bit for bit.\n");
    stage.thumper(&["zpool", "import", "-d", "disks", "demo"])?;
    stage.thumper(&["zpool", "status", "demo"])?;
    stage.thumper(&["get", "-r", "demo/events:/files", "back"])?;
    stage.run(Path::new("diff"), &["-r", "--no-dereference", "files", "back"])?;
    println!("(no difference)");
    Ok(())
}

fn mend(stage: &Stage) -> Result<()> {
    println!("\n6. Both are replaced, and a scrub finds nothing left to mend.\n");
    for (old, new) in [(3, 11), (7, 12)] {
        File::create(stage.disk(new))?.set_len(DISK_BYTES)?;
        let (old, new) = (stage.disk(old).into_os_string(), stage.disk(new).into_os_string());
        stage.thumper(&["zpool".into(), "replace".into(), "demo".into(), old, new])?;
    }
    stage.thumper(&["zpool", "scrub", "demo"])?;
    println!("$ thumper zpool status demo");
    let status = read(stage.known(Command::new(&stage.thumper).args(["zpool", "status", "demo"])))?;
    print!("{status}");
    ensure!(status.contains("scrub repaired 0B") && status.contains("state: ONLINE"), "{status}");
    stage.thumper(&["verify", "demo"])?;
    checked(stage)
}

fn foreign(stage: &Stage) -> Result<()> {
    println!(
        "\n7. A pool that the OpenZFS kernel wrote, hurt the same way, gives its files back too.\n"
    );
    let kernels = unpack(stage, "hurt")?;
    stage.thumper(&[
        "get".as_ref(),
        "-d".as_ref(),
        kernels.as_os_str(),
        "-r".as_ref(),
        "hurt/data:/".as_ref(),
        "saved".as_ref(),
    ])?;
    let expected = truth("hurt", "hurt/data")?;
    for (path, sum) in &expected {
        let file = stage.path("saved").join(path);
        let said = read(Command::new("sha256sum").arg("--").arg(&file))?;
        ensure!(said.contains(sum.as_str()), "{path}: its sha256 should be {sum}: {said}");
    }
    ensure!(!expected.is_empty(), "the truth about hurt/data names no file");
    println!("{} files have the sha256 that the kernel saw", expected.len());
    Ok(())
}

/// Unpacks a golden pool.
fn unpack(stage: &Stage, name: &str) -> Result<PathBuf> {
    let dir = stage.path(name);
    fs::create_dir(&dir)?;
    let archive = crate::top().join(format!("tests/golden/{name}.tar.zst"));
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--zstd").arg("--sparse").arg("--directory").arg(&dir);
    run(tar.arg("--file").arg(archive))?;
    Ok(dir)
}

/// The files of a data set and their sha256, as the kernel saw them.
fn truth(name: &str, dataset: &str) -> Result<BTreeMap<String, String>> {
    let packed = crate::top().join(format!("tests/golden/{name}.json.zst"));
    let text = read(Command::new("zstd").args(["-dcq", "--"]).arg(&packed))?;
    let json: Value = serde_json::from_str(&text).with_context(|| packed.display().to_string())?;
    let entries = json["files"][dataset]["entries"].as_array();
    let entries = entries.with_context(|| format!("no {dataset} in {}", packed.display()))?;
    let text = |entry: &Value, key: &str| entry[key].as_str().map(str::to_string);
    Ok(entries.iter().filter_map(|e| Some((text(e, "path")?, text(e, "sha256")?))).collect())
}

/// Overwrites a file with noise from end to end.
fn noise(path: &Path, bytes: u64) -> Result<()> {
    let mut random = File::open("/dev/urandom")?.take(bytes);
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    std::io::copy(&mut random, &mut file)?;
    file.flush()?;
    Ok(())
}
