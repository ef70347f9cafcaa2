//! The plug-in as CMake builds it, a real xrootd with it, and the real clients.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use acceptance::{Server, assert_verified, client_library, thumper};
use client::{Client, Options, Subject};
use rt::sync::Arc;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Images, Ran, TempDir, free_port, fresh_images, temp_dir, tool};
use verbs::host::Names;

/// Who is root.
pub(crate) const ROOT: Subject = Subject::ROOT;
/// The user that Debian's package makes for the server; root runs it as him, others as themselves.
const USER: &str = "xrootd";
const PLUGIN: &str = "libXrdThumper-5.so";
const COPIER: &str = "thumper-xrdtpc";
/// Disks of a pool.
const DISKS: usize = 5;
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client may take, in seconds: a hang is a failure.
const CLIENT_SECONDS: &str = "120";

/// Where the plug-in and the copy program are, built on first use.
fn built() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let library = client_library();
        let folder = library.parent().unwrap();
        let into = folder.with_file_name("xrootd").join(folder.file_name().unwrap());
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(testkit::paths::repository().join("xrootd")).arg("-B").arg(&into);
        cmake.arg(format!("-DTHUMPER_CLIENT={}", library.display()));
        drop(Ran::of(&mut cmake).expect_ok());
        drop(Ran::of(Command::new("cmake").arg("--build").arg(&into)).expect_ok());
        into
    };
    BUILT.get_or_init(build).clone()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a file or directory to the user that xrootd runs as.
pub(crate) fn hand_over(path: &Path) {
    if is_root() {
        let uid = Names::Users.number(USER).expect("the package xrootd-server makes it");
        let gid = Names::Groups.number(USER).expect("and its group");
        chown(path, Some(uid as u32), Some(gid as u32)).unwrap();
    }
}

/// A served pool, `tank`, and a directory beside it.
pub(crate) struct Site {
    images: Images,
    aside: TempDir,
    server: Option<Server>,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::sized(256 << 20)
    }

    /// One with disks of so many bytes.
    pub(crate) fn sized(bytes: u64) -> Site {
        let (images, aside) = (fresh_images(DISKS, bytes), temp_dir());
        // The server's user goes through it.
        fs::set_permissions(aside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for file in [PLUGIN, COPIER] {
            fs::copy(built().join(file), aside.path().join(file)).unwrap();
        }
        let mut site = Site { images, aside, server: None };
        site.start();
        let disks = site.images.disks();
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        drop(site.run(&words));
        site
    }

    /// Starts the pool's server, after [`Site::kill`].
    pub(crate) fn start(&mut self) {
        let words: &[&str] = if is_root() { &["-u", USER] } else { &[] };
        self.server = Some(Server::start_with(&self.path("pools"), words));
    }

    /// Kills the pool's server.
    pub(crate) fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Takes the disks away from where they are looked for, or puts them back.
    pub(crate) fn hide_disks(&self, hide: bool) {
        for disk in (0..DISKS).map(|i| self.images.disk(i)) {
            let away = disk.with_extension("away");
            let (from, to) = if hide { (&disk, &away) } else { (&away, &disk) };
            fs::rename(from, to).unwrap();
        }
    }

    /// Kills the pool's server, and starts it anew.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// A path in the directory beside the pool.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.aside.path().join(name)
    }

    /// A file there; its path as a word.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().into()
    }

    /// What `thumper WORDS` says.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        Ran::of(thumper(&self.path("pools")).args(words)).expect_ok().out
    }

    /// Where the pool's server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.server.as_ref().unwrap().socket()
    }

    /// A client of our own.
    pub(crate) fn client(&self, tree: &str) -> Arc<Client> {
        Client::connect(Options::new(self.socket(), tree)).unwrap()
    }

    /// The lines that load the plug-in, as docs/xrootd.md has them; `words` say which tree, and what else.
    pub(crate) fn osslib(&self, words: &str) -> String {
        let dir = self.aside.path().display();
        let socket = self.socket();
        let socket = socket.display();
        let library = format!("{dir}/libXrdThumper.so");
        format!(
            "ofs.osslib +cksio +xattr {library} {words} socket={socket}\n\
             xrootd.fslib ++ {library}\n"
        )
    }

    /// The lines that let a table of people hold, as docs/xrootd.md has them.
    pub(crate) fn authority(&self) -> String {
        let dir = self.aside.path().display();
        format!("ofs.authorize\nofs.authlib {dir}/libXrdThumper.so\n")
    }

    /// The line that lets other servers' files come by root://; `before` goes before the program, `options` before that.
    pub(crate) fn copier(&self, options: &str, before: &str) -> String {
        let dir = self.aside.path().display();
        format!("ofs.tpc autorm {options} pgm {before} {dir}/{COPIER}\n")
    }

    /// Starts xrootd; `lines` are added to what all of them have.
    pub(crate) fn gate(&self, name: &str, lines: &str) -> Gate {
        Gate::start(&self.path(name), lines)
    }

    /// All is closed, and the judges are content.
    pub(crate) fn end(mut self) {
        drop(self.server.take().unwrap().stop());
        tool::zdb_content(self.images.path(), "tank");
        assert_verified(self.images.path(), "tank");
    }
}

/// Starts a program of XRootD's with the configuration in `dir`.
fn spawn(program: &str, dir: &Path, log: &str) -> Child {
    let mut command = Command::new(program);
    if is_root() {
        command.args(["-R", USER]);
    }
    command.arg("-c").arg(dir.join("xrootd.cf")).arg("-l").arg(dir.join("log").join(log));
    // Whom libraries of certificates and tokens believe, where a test has made that.
    for (name, at) in
        [("X509_CERT_DIR", "ca"), ("X509_VOMS_DIR", "vomsdir"), ("XDG_CACHE_HOME", "cache")]
    {
        let at = dir.with_file_name(at);
        if at.exists() {
            command.env(name, at);
        }
    }
    let out = fs::File::create(dir.join("log").join(log).with_extension("out")).unwrap();
    command.current_dir(dir.join("run")).stdout(out.try_clone().unwrap()).stderr(out);
    command.spawn().expect("Debian's package xrootd-server")
}

/// Starts xrootd, twice if it dies of a fault before it has said a word: XRootD 5.5 adds to its environment while the thread of
/// its log looks there for the time zone, and once in some thousand starts that reads what was freed. Nothing of ours is
/// loaded by then.
fn spawn_gate(dir: &Path) -> Child {
    let mut child = spawn("xrootd", dir, "log");
    let (start, log) = (rt::time::now(), dir.join("log/log"));
    let is_silent = || fs::metadata(&log).map_or(true, |log| log.len() == 0);
    while is_silent() && start.elapsed() < PATIENCE {
        if let Some(ended) = child.try_wait().unwrap() {
            let is_fault = ended.signal() == Some(Signal::SEGV.as_raw());
            return if is_fault && is_silent() { spawn("xrootd", dir, "log") } else { child };
        }
        rt::time::sleep(Duration::from_millis(5));
    }
    child
}

/// A running xrootd. Killed when it is dropped.
pub(crate) struct Gate {
    child: Child,
    cmsd: Option<Child>,
    dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) web: u16,
}

impl Gate {
    fn start(dir: &Path, lines: &str) -> Gate {
        let (port, web) = (free_port(), free_port());
        for sub in ["admin", "run", "log"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
            hand_over(&dir.join(sub));
        }
        let at = dir.display();
        let mut text = format!(
            "xrd.port {port}\n\
             if exec xrootd\n\
             xrd.protocol XrdHttp:{web} libXrdHttp.so\n\
             fi\n\
             xrd.network nodnr norpipa\n\
             all.adminpath {at}/admin\n\
             all.pidpath {at}/run\n\
             all.export /\n\
             xrootd.chksum max 2 adler32 crc32c md5\n\
             xrootd.async segsize 256k\n\
             ofs.persist off\n"
        );
        text.write_str(lines).unwrap();
        fs::write(dir.join("xrootd.cf"), text).unwrap();
        let child = spawn_gate(dir);
        let mut gate = Gate { child, cmsd: None, dir: dir.into(), port, web };
        gate.get_ready();
        gate
    }

    /// Its ports take connections before it is ready.
    fn get_ready(&mut self) {
        let start = rt::time::now();
        while !self.ended_its_start("completed") {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && !self.ended_its_start("failed"),
                "{ended:?}: {}{}",
                fs::read_to_string(self.dir.join("log/log.out")).unwrap_or_default(),
                self.log()
            );
            assert!(start.elapsed() < PATIENCE, "xrootd does not get ready: {}", self.log());
            rt::time::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Starts it anew, as it was, after [`Gate::kill`].
    pub(crate) fn start_again(&mut self) {
        fs::rename(self.dir.join("log/log"), self.dir.join("log/log.old")).unwrap();
        self.child = spawn_gate(&self.dir);
        self.get_ready();
    }

    /// Adds the cluster's daemon, with the same configuration.
    pub(crate) fn join_cluster(&mut self) {
        self.cmsd = Some(spawn("cmsd", &self.dir, "cmsd"));
    }

    /// What that one said so far.
    pub(crate) fn cluster_log(&self) -> String {
        fs::read_to_string(self.dir.join("log/cmsd")).unwrap_or_default()
    }

    /// What it has told its copy programs, and they have not taken.
    pub(crate) fn tickets(&self) -> usize {
        fs::read_dir(self.dir.join("admin/.ofs/.tpcproxy")).unwrap().count()
    }

    fn ended_its_start(&self, how: &str) -> bool {
        let end = format!("initialization {how}.");
        self.log().lines().any(|line| line.starts_with("------ xrootd ") && line.ends_with(&end))
    }

    /// What it said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log/log")).unwrap_or_default()
    }

    /// It must refuse to start; what it said.
    pub(crate) fn refuses(site: &Site, name: &str, lines: &str) -> String {
        let dir = site.path(name);
        let start = || Gate::start(&dir, lines);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)).is_err());
        fs::read_to_string(dir.join("log/log")).unwrap_or_default()
    }

    /// Is it the process that was started, still?
    pub(crate) fn is_up(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// A file's address for root://.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("root://localhost:{}/{path}", self.port)
    }

    /// The same, as whoever copies to it must give it: the source knows hosts by their numbers (`nodnr`).
    pub(crate) fn number(&self, path: &str) -> String {
        self.url(path).replace("localhost", "127.0.0.1")
    }

    /// A file's address for HTTP.
    pub(crate) fn http(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.web)
    }

    /// `xrdfs` on it.
    pub(crate) fn xrdfs(&self, words: &[&str]) -> Ran {
        let server = format!("root://localhost:{}", self.port);
        tool("xrdfs", &[&[server.as_str()], words].concat(), &[])
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for child in [Some(&mut self.child), self.cmsd.as_mut()].into_iter().flatten() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Runs a client, in an environment that leaves nothing to the user's settings.
pub(crate) fn tool(program: &str, words: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new("timeout");
    command.arg(CLIENT_SECONDS).arg(program).args(words).stdin(Stdio::null());
    command.env("LC_ALL", "C").env("TZ", "UTC").envs(environment.iter().copied());
    Ran::of(&mut command)
}

/// Waits until something has come to be that servers settle by themselves.
#[track_caller]
pub(crate) fn until(what: &str, done: impl Fn() -> bool, log: impl Fn() -> String) {
    let start = rt::time::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}\n{}", log());
        rt::time::sleep(Duration::from_millis(100));
    }
}

/// `xrdcp`, which must do it.
#[track_caller]
pub(crate) fn xrdcp(words: &[&str]) -> String {
    tool("xrdcp", &[&["--silent"], words].concat(), &[]).expect_ok().out
}

/// `curl`; the status, and what came.
#[track_caller]
pub(crate) fn curl(site: &Site, words: &[&str]) -> (String, Vec<u8>) {
    let to = site.path("curl.body");
    drop(fs::remove_file(&to));
    let common = ["--silent", "--show-error", "--path-as-is", "-w", "%{http_code}", "-o"];
    let ran = tool("curl", &[&common[..], &[to.to_str().unwrap()], words].concat(), &[]);
    // Some answers of XRootD's have a body without end, which is none.
    (ran.out, fs::read(&to).unwrap_or_default())
}
