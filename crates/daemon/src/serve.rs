//! The life of the server: it takes its pools, listens, and closes them at the end.
//!
//! The one idea: what a command has acknowledged is on disk when it ends, so the server's end, however sudden,
//! costs nothing acknowledged; the timer here is for those that promise nothing, as files written without a sync.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use verbs::{Ending, Engine, Held, Local, lockfile};
use watch::{Door, Hooks};

use crate::coming::Coming;
use crate::data::Sessions;
use crate::doors::{self, Doors};
use crate::idle;
use crate::log::{self, Form};
use crate::place;

/// How often what has changed is put on disk, as in OpenZFS.
const TXG_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked whether something has happened to a pool.
const LOOK: Duration = Duration::from_secs(1);
/// Files, sockets among them, that the server may have open; the system may allow less.
const FILES_MAX: u64 = 1 << 16;
/// How long the end waits for commands that run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long commands have to say that a pool was let go of.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the server is to do.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The pools; none: all that are remembered.
    pub pools: Vec<String>,
    /// Where it listens.
    pub socket: PathBuf,
    /// How it talks of itself.
    pub log: Form,
    /// File systems are mounted where their properties say.
    pub mount: bool,
    /// Users, besides root and the server's own, whose programs may move files, for whomever they name. They command
    /// nothing.
    pub movers: Vec<u32>,
    /// Where the programs are that are run on events.
    pub hooks: Option<PathBuf>,
    /// Where metrics and the status page are to be had.
    pub page: Option<SocketAddr>,
    /// The most memory that it takes, in bytes; `None`: a quarter of what the machine or its control group has.
    pub memory: Option<u64>,
}

/// Runs a command line: its words, the time zone (`TZ`) of whoever typed it, who executes, and the outputs. The
/// exit status.
pub type Run = dyn Fn(&[OsString], &OsStr, &mut dyn Engine, &mut dyn Write, &mut dyn Write) -> u8
    + Send
    + Sync;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another one listens there.
    #[error(
        "a server is running already: it listens at '{}'\nstop it first, or give this one \
         another socket ({})", .0.display(), place::VARIABLE
    )]
    Running(PathBuf),
    /// It cannot listen.
    #[error("cannot listen at '{}': {}", .0.display(), .1)]
    Listen(PathBuf, std::io::Error),
    /// The programs to be run on events are not to be had.
    #[error("cannot run programs in '{}' on events: {}", .0.display(), .1)]
    Hooks(PathBuf, std::io::Error),
    /// The metrics and the page cannot be shown.
    #[error("cannot listen at {0} for metrics: {1}")]
    Page(SocketAddr, std::io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// A pool that was asked for by name is not to be had.
    #[error(transparent)]
    Pool(#[from] verbs::Error),
}

/// Serves pools until SIGTERM, SIGINT or, unless that is ignored, SIGHUP. `engine` knows the remembered pools; `run`
/// runs the commands that are forwarded. True: every pool was closed.
///
/// # Errors
/// It did not come to serving.
pub fn serve(engine: &Local, options: &Options, run: Arc<Run>) -> Result<bool, ServeError> {
    let log = options.log;
    verbs::on_suspended(move |line| log.say(line));
    let ends = [SIGTERM, SIGINT, SIGHUP].into_iter();
    let ends = ends.filter(|signal| *signal != SIGHUP || !rt::signals::is_ignored(SIGHUP));
    let mut signals = Signals::new(ends).map_err(ServeError::Signals)?;
    let _lock = take_place(&options.socket)?;
    let hooks = options
        .hooks
        .as_deref()
        .map(|dir| Hooks::new(dir).map_err(|error| ServeError::Hooks(dir.into(), error)));
    let hooks = hooks.transpose()?;
    let door = options.page.map(|at| {
        Door::new(at).map_err(|error| ServeError::Page(at, error)).map(|door| (at, door))
    });
    let door = door.transpose()?;
    // The last that is bound, so that who can reach the socket can reach the page too.
    let listener = listen(&options.socket)?;
    let held = Arc::new(if options.mount { Held::mounting() } else { Held::default() });
    if let Some(hooks) = hooks {
        hooks.start(&held, Arc::new(move |line| log.say(line)));
    }
    rt::mem::process::keep_little();
    allow_files();
    let cap = options.memory.unwrap_or_else(verbs::memory::default_cap_bytes);
    let engine = engine.clone().with_memory(cap).holding(held.clone());
    idle::watch(engine.memory());
    let mut ended = false;
    take(&engine, &held, options, || {
        // Who wants it to end before it has begun is heard below.
        ended = ended || signals.pending().next().is_some();
        ended
    })?;
    let sessions = Sessions::new(held.clone(), options.movers.clone());
    let doors = Arc::new(Doors::new(engine, run, log, sessions));
    if let Some((at, door)) = door {
        let shown = door.address().unwrap_or(at);
        let counting = {
            let doors = doors.clone();
            Arc::new(move || doors.clients())
        };
        let opened = door.open(doors.engine().clone(), held.clone(), counting);
        opened.map_err(|error| ServeError::Page(at, error))?;
        log.say(format!("metrics and the status page are at http://{shown}/"));
    }
    {
        let doors = doors.clone();
        drop(rt::thread::spawn("accept", move || doors::accept(&listener, &doors)));
    }
    {
        let held = Arc::downgrade(&held);
        let timer = move || {
            loop {
                rt::time::sleep(TXG_TIMEOUT);
                let Some(held) = held.upgrade() else { return };
                held.sync(move |name, error| log.say(format!("'{name}': {error}")));
            }
        };
        drop(rt::thread::spawn("txg-timer", timer));
    }
    {
        let held = Arc::downgrade(&held);
        let lookout = move || {
            loop {
                rt::time::sleep(LOOK);
                let Some(held) = held.upgrade() else { return };
                held.look();
            }
        };
        drop(rt::thread::spawn("lookout", lookout));
    }
    log.say(format!("listens at '{}'", options.socket.display()));
    notify("READY=1");
    if !ended {
        signals.forever().next();
    }
    notify("STOPPING=1");
    // Whoever comes now is his own again.
    drop(clear(&options.socket));
    held.end();
    let hurried = Arc::new(AtomicBool::new(false));
    hurry(signals, &held, &hurried);
    let wait_for_commands = |waits: &dyn Fn(Duration) -> bool| {
        let start = rt::time::now();
        while doors.commands() > 0 && waits(start.elapsed()) {
            rt::time::sleep(Duration::from_millis(10));
        }
    };
    wait_for_commands(&|waited| waited < PATIENCE && !hurried.load(Ordering::Acquire));
    let failed = held.close_telling(doors.engine().state(), |name, ending| match ending {
        Ending::Waits(reason) => log.say(format!(
            "pool '{name}' waits for its devices: {reason}\nanother signal lets go of it"
        )),
        Ending::Closed => log.say(format!("pool '{name}' is closed")),
        Ending::LetGo(error) => log.say(format!("pool '{name}' was let go: {error}")),
    });
    if !failed.is_empty() {
        // Commands that waited for those say why they did it in vain.
        wait_for_commands(&|waited| waited < LAST_WORDS);
    }
    log::finish();
    Ok(failed.is_empty())
}

/// From the second signal on no pool waits for its devices; the third one ends the process.
fn hurry(mut signals: Signals, held: &Arc<Held>, hurried: &Arc<AtomicBool>) {
    let (held, hurried) = (held.clone(), hurried.clone());
    let body = move || {
        let mut signals = signals.forever();
        signals.next();
        hurried.store(true, Ordering::Release);
        held.let_go();
        if let Some(signal) = signals.next() {
            drop(emulate_default_handler(signal));
        }
    };
    // Without a thread it waits for its disks, as long as it takes.
    drop(rt::thread::try_spawn("signals", body));
}

/// Takes the lock beside the socket, which says that its server is alive, and makes the directory of both.
fn take_place(socket: &Path) -> Result<File, ServeError> {
    let fail = |error| ServeError::Listen(socket.into(), error);
    if let Some(dir) = socket.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(fail)?;
    }
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let listens = || UnixStream::connect(socket).is_ok();
    let lock = lockfile::try_take(Path::new(&name), listens).map_err(fail)?;
    lock.ok_or_else(|| ServeError::Running(socket.into()))
}

/// Binds the socket, of which the lock is taken, over what a server that was killed left of its own.
fn listen(socket: &Path) -> Result<UnixListener, ServeError> {
    let fail = |error| ServeError::Listen(socket.into(), error);
    clear(socket).map_err(fail)?;
    let listener = UnixListener::bind(socket).map_err(fail)?;
    // Whoever connects is asked for by the kernel (`peer`).
    std::fs::set_permissions(socket, Permissions::from_mode(0o666)).map_err(fail)?;
    Ok(listener)
}

/// Removes the socket, if there is one. Whatever else has its name is somebody's, and stays.
fn clear(socket: &Path) -> std::io::Result<()> {
    match socket.symlink_metadata() {
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(socket),
        Ok(_) => Err(rustix::io::Errno::EXIST.into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has the system allow as many files as it can: each connection is one, and there must be some left for disks.
fn allow_files() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.map_or(FILES_MAX, |most| most.min(FILES_MAX));
    if now.current.is_some_and(|current| current < wanted) {
        // With fewer it serves fewer.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..now });
    }
}

/// Opens the pools, and mounts what is in them.
fn take(
    engine: &Local,
    held: &Arc<Held>,
    options: &Options,
    ends: impl FnMut() -> bool,
) -> Result<(), ServeError> {
    let named = !options.pools.is_empty();
    let names = match named {
        true => options.pools.clone(),
        false => engine.state().load()?.pools.into_iter().map(|known| known.name).collect(),
    };
    let mut coming = Coming::begin(engine, held, options.log, &names);
    if let Err(error) = coming.wait(named, ends) {
        held.close(engine.state());
        return Err(error.into());
    }
    coming.follow();
    Ok(())
}

/// Tells systemd, if it has started us.
fn notify(what: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || -> std::io::Result<usize> {
        let socket = UnixDatagram::unbound()?;
        match path.to_string_lossy().strip_prefix('@') {
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.connect_addr(&address)?;
                socket.send(what.as_bytes())
            }
            None => socket.send_to(what.as_bytes(), &path),
        }
    };
    // It goes on without hearing from us, or gives us up by itself.
    drop(send());
}
