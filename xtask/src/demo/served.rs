//! The second part of the story: the pool is served, XRootD stands on it, and two disks go under load.
//!
//! Debian's own XRootD and its clients do all the copying; curl fetches over TLS.

use std::fs::{self, File, OpenOptions, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Stage, noise};
use crate::run::{cargo, read, run, target_dir};

/// Disks of the pool, and bytes of each.
const DISKS: usize = 10;
const DISK_BYTES: u64 = 512 << 20;
/// Uploads that are under way when the disks go, and bytes of each.
const UPLOADS: usize = 8;
const UPLOAD_BYTES: u64 = 96 << 20;
/// How long a server may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user that Debian's package makes for XRootD; root runs it as him.
const USER: &str = "xrootd";

/// A program in the background. Ended when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM: the server syncs and closes its pool.
        drop(Command::new("kill").arg(self.0.id().to_string()).status());
        drop(self.0.wait());
    }
}

/// Where XRootD's user can go: not every checkout is below a directory that he may enter.
struct Open(PathBuf);

impl Open {
    fn new() -> Result<Open> {
        let dir = std::env::temp_dir().join(format!("thumper-demo-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
        Ok(Open(dir))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(super) fn tell(stage: &Stage) -> Result<()> {
    let open = Open::new()?;
    let is_root = read(Command::new("id").arg("-u"))?.trim() == "0";
    println!("\n8. A second pool is served, and its file systems are mounted where they say.\n");
    let plugin = plugin()?;
    fs::copy(plugin, open.path("libXrdThumper-5.so"))?;
    let disks: Vec<PathBuf> = (0..DISKS).map(|i| stage.path(&format!("disks/s{i:02}"))).collect();
    for disk in &disks {
        File::create(disk)?.set_len(DISK_BYTES)?;
    }
    let server = serve(stage, &open, is_root)?;
    let mount = stage.path("mounted");
    let mut words = vec!["zpool".into(), "create".into(), "-m".into()];
    words.push(mount.clone().into_os_string());
    words.extend(["site".into(), "raidz2".into()]);
    words.extend(disks.iter().map(|disk| disk.clone().into_os_string()));
    stage.thumper(&words)?;
    stage.thumper(&["zfs", "create", "site/events"])?;
    stage.thumper(&["zfs", "mount"])?;
    if is_root {
        run(Command::new("chown").arg(USER).arg(mount.join("events")))?;
    }

    println!("\n9. XRootD stands on it: ROOT files go in by root:// and come out by https.\n");
    let gate = Gate::start(&open, &stage.dir, is_root)?;
    let files = root_files(&stage.path("files"))?;
    ensure!(!files.is_empty(), "there are no ROOT files to be stored");
    for file in &files {
        let name = file.file_name().context("a file has a name")?.to_string_lossy();
        let to = format!("root://localhost:{}//events/{name}", gate.port);
        stage.run(Path::new("xrdcp"), &["--silent", "--cksum", "adler32", text(file)?, &to])?;
        let back = stage.path("fetched").join(&*name);
        fs::create_dir_all(stage.path("fetched"))?;
        let from = format!("https://localhost:{}/events/{name}", gate.web);
        let cert = gate.cert.display().to_string();
        let words =
            ["--silent", "--show-error", "--fail", "--cacert", &cert, "-o", text(&back)?, &from];
        stage.run(Path::new("curl"), &words)?;
        stage.run(Path::new("cmp"), &[file, &back])?;
        stage.run(Path::new("cmp"), &[file, &mount.join("events").join(&*name)])?;
    }
    println!("({} files, the same by root://, https and the mount)", files.len());

    println!("\n10. Two disks die while {UPLOADS} transfers run, and every transfer completes.\n");
    let sources: Result<Vec<PathBuf>> = (0..UPLOADS)
        .map(|i| {
            let path = stage.path(&format!("source{i}"));
            File::create(&path)?;
            noise(&path, UPLOAD_BYTES)?;
            Ok(path)
        })
        .collect();
    let sources = sources?;
    let began = Instant::now();
    let mut uploads = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let to = format!("root://localhost:{}//events/upload{i}", gate.port);
        println!("$ xrdcp {} {to} &", source.display());
        let words = ["--silent", "--cksum", "adler32", text(source)?, &to];
        uploads.push(Command::new("xrdcp").args(words).spawn().context("xrdcp")?);
    }
    std::thread::sleep(Duration::from_millis(700));
    for disk in &disks[3..5] {
        println!("$ truncate -s 0 {}", disk.display());
        OpenOptions::new().write(true).open(disk)?.set_len(0)?;
    }
    for upload in &mut uploads {
        ensure!(upload.wait()?.success(), "a transfer failed");
    }
    let megabytes = UPLOADS as u64 * UPLOAD_BYTES / 1_000_000;
    println!("(all complete: {megabytes} MB in {:.1} s)\n", began.elapsed().as_secs_f64());
    for (i, source) in sources.iter().enumerate() {
        let back = stage.path(&format!("back{i}"));
        let from = format!("root://localhost:{}//events/upload{i}", gate.port);
        let words = ["--silent", &from, text(&back)?];
        stage.run(Path::new("xrdcp"), &words)?;
        stage.run(Path::new("cmp"), &[source, &back])?;
    }
    for file in &files {
        let name = file.file_name().context("a file has a name")?;
        stage.run(Path::new("cmp"), &[file, &mount.join("events").join(name)])?;
    }
    println!("(every byte the same)\n");
    println!("$ thumper zpool status site");
    let status = read(stage.known(Command::new(&stage.thumper).args(["zpool", "status", "site"])))?;
    print!("{status}");
    ensure!(status.contains("DEGRADED"), "two disks are gone, and the status does not say so");
    stage.thumper(&["zpool", "iostat", "-v", "site"])?;
    drop(gate);
    drop(server);
    ensure!(!mount.join("events").exists(), "the mounts end with the server");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}

/// The ROOT files below a directory.
fn root_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut todo, mut found) = (vec![dir.to_path_buf()], Vec::new());
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() && entry.path().extension().is_some_and(|e| e == "root") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.file_name() == b.file_name());
    Ok(found)
}

/// Builds the plug-in; where it is.
fn plugin() -> Result<PathBuf> {
    println!("Building the plug-in for XRootD ...");
    run(cargo().args(["build", "--quiet", "--locked", "-p", "client"]))?;
    let into = target_dir().join("xrootd/debug");
    let library = target_dir().join("debug/libclient.a");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(crate::top().join("xrootd")).arg("-B").arg(&into);
    read(cmake.arg(format!("-DTHUMPER_CLIENT={}", library.display())))?;
    read(Command::new("cmake").arg("--build").arg(&into))?;
    Ok(into.join("libXrdThumper-5.so"))
}

fn serve(stage: &Stage, open: &Open, is_root: bool) -> Result<Running> {
    let socket = open.path("socket");
    let mut words = vec!["serve", "--mount"];
    if is_root {
        words.extend(["-u", USER]);
    }
    println!("$ thumper {} &", words.join(" "));
    let mut command = Command::new(&stage.thumper);
    command.current_dir(&stage.dir).args(words).stderr(File::create(stage.path("server.log"))?);
    let server = Running(stage.known(&mut command).spawn()?);
    let start = Instant::now();
    while !socket.exists() {
        ensure!(start.elapsed() < PATIENCE, "the server does not come: see server.log");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

/// A running xrootd with the plug-in.
struct Gate {
    port: u16,
    web: u16,
    cert: PathBuf,
    _running: Running,
}

impl Gate {
    fn start(open: &Open, stage: &Path, is_root: bool) -> Result<Gate> {
        let (port, web) = (free_port()?, free_port()?);
        let cert = certificate(open)?;
        for dir in ["admin", "run", "log"] {
            fs::create_dir(open.path(dir))?;
        }
        let at = open.0.display();
        let config = format!(
            "xrd.port {port}\n\
             xrd.protocol XrdHttp:{web} libXrdHttp.so\n\
             xrd.tls {at}/cert.pem {at}/key.pem\n\
             xrd.tlsca certdir {at}/ca\n\
             xrd.network nodnr norpipa\n\
             all.adminpath {at}/admin\n\
             all.pidpath {at}/run\n\
             all.export /\n\
             xrootd.chksum max 2 adler32 crc32c md5\n\
             ofs.persist off\n\
             ofs.osslib +cksio +xattr {at}/libXrdThumper.so pool=site socket={at}/socket\n"
        );
        fs::write(open.path("xrootd.cf"), config)?;
        let mut command = Command::new("xrootd");
        if is_root {
            let all = ["admin", "run", "log", "key.pem", "cert.pem"].map(|name| open.path(name));
            run(Command::new("chown").arg(USER).args(all))?;
            command.args(["-R", USER]);
        }
        println!("$ xrootd -c xrootd.cf &      # ofs.osslib libXrdThumper.so pool=site");
        command.arg("-c").arg(open.path("xrootd.cf")).arg("-l").arg(open.path("log/log"));
        command.current_dir(open.path("run")).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running(command.spawn().context("xrootd")?);
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(open.path("log/log")).unwrap_or_default();
            if log.contains("initialization completed.") && log.contains("------ xrootd") {
                break;
            }
            if log.contains("initialization failed") || start.elapsed() > PATIENCE {
                fs::write(stage.join("xrootd.log"), &log)?;
                bail!("xrootd does not come: see xrootd.log");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Gate { port, web, cert, _running: running })
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A certificate for this host, of our own.
fn certificate(open: &Open) -> Result<PathBuf> {
    let cert = open.path("cert.pem");
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
    ]);
    openssl.arg("-keyout").arg(open.path("key.pem")).arg("-out").arg(&cert);
    run(openssl.stderr(Stdio::null()))?;
    fs::create_dir(open.path("ca"))?;
    fs::copy(&cert, open.path("ca/cert.pem"))?;
    run(Command::new("openssl").arg("rehash").arg(open.path("ca")).stderr(Stdio::null()))?;
    Ok(cert)
}
