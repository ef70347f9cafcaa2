//! Recorded transcripts, and an engine that says what a test tells it to.
#![allow(dead_code, reason = "each test uses a part")]

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use verbs::{Engine, Error, Result, branches, datasets, dump, events, files, judge, pools};

/// The directory that scenarios ran in when they were recorded.
pub(crate) const STAGE: &str = "/tmp/t-0000000";

/// One command of a transcript with what OpenZFS answered.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The command as typed.
    pub(crate) command: String,
    /// Its standard output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
    /// Its exit status.
    pub(crate) status: i32,
}

/// What a scenario does before and between its commands.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A preparation.
    Prepare(String),
    /// A command whose answer is recorded.
    Case(Case),
}

/// The cases of a transcript.
pub(crate) fn cases(name: &str) -> Vec<Case> {
    let path = format!("{}/tests/transcripts/{name}.transcript", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let Some(mark) = line.chars().next() else { continue };
        let rest = line.get(2..).unwrap_or("");
        if mark == '$' {
            let (out, err) = (String::new(), String::new());
            cases.push(Case { command: rest.into(), out, err, status: 0 });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        let into = match mark {
            '|' => &mut case.out,
            '!' => &mut case.err,
            '=' => {
                case.status = rest.parse().expect(line);
                continue;
            }
            _ => continue,
        };
        match rest.strip_suffix('\\') {
            Some(unfinished) => *into += unfinished,
            None => *into += &format!("{rest}\n"),
        }
    }
    assert!(!cases.is_empty(), "{path} has no commands");
    cases
}

/// The words of a command, as the shell splits it.
pub(crate) fn words(command: &str) -> Vec<OsString> {
    let script = format!("words() {{ printf '%s\\0' \"$@\"; }}; words {command}");
    let run = Command::new("bash").args(["-c", &script]).env("D", STAGE).output().expect("bash");
    assert!(run.status.success(), "{command}: {run:?}");
    let mut words: Vec<_> =
        run.stdout.split(|c| *c == 0).map(|w| OsString::from_vec(w.to_vec())).collect();
    words.pop();
    words
}

/// What our program answers: standard output, standard error, status.
pub(crate) fn run(engine: &mut dyn Engine, words: &[OsString]) -> (String, String, i32) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = cli::run(words, engine, &mut out, &mut err);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the test's names are UTF-8");
    (text(out), text(err), i32::from(status))
}

/// An engine that reports what it was given, and does whatever it is asked to do.
#[derive(Default)]
pub(crate) struct Told {
    /// Pools that there are.
    pub(crate) pools: Vec<pools::PoolReport>,
    /// Pools that could be imported.
    pub(crate) found: Vec<pools::FoundPool>,
    /// Data sets that there are.
    pub(crate) datasets: Vec<datasets::DatasetReport>,
    /// Histories that there are.
    pub(crate) histories: Vec<pools::HistoryReport>,
    /// Accounts that there are.
    pub(crate) space: Vec<datasets::SpaceRow>,
    /// Memory of the server, if there is one.
    pub(crate) memory: Option<verbs::memory::Report>,
    /// What is mounted, and where.
    pub(crate) mounted: Vec<(String, std::path::PathBuf)>,
    /// What was asked for, in words.
    pub(crate) asked: Vec<String>,
    /// How often it was told to wait on.
    pub(crate) waited: u32,
}

/// When what is waited for is done.
pub(crate) const WAITED_MAX: u32 = 100;

/// An output whose reader has gone.
pub(crate) struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

impl Told {
    fn ask<T: Default>(&mut self, request: impl std::fmt::Debug) -> Result<T> {
        self.asked.push(format!("{request:?}"));
        Ok(T::default())
    }
}

impl Engine for Told {
    fn rescue(&mut self, rescue: verbs::rescue::Rescue) {
        self.asked.push(format!("{rescue:?}"));
    }

    fn rescue_scan(
        &mut self,
        places: &[std::path::PathBuf],
        _: Option<&std::path::Path>,
        _: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<verbs::rescue::Remains>> {
        self.ask(places)
    }

    fn pool_create(&mut self, request: &pools::Create) -> Result<Vec<String>> {
        self.ask(request)
    }

    fn pool_destroy(&mut self, request: &pools::Destroy) -> Result<()> {
        self.ask(request)
    }

    fn mounted(&mut self) -> Result<Vec<(String, std::path::PathBuf)>> {
        self.asked.push("mounted".into());
        Ok(self.mounted.clone())
    }

    fn attach(&mut self, request: &verbs::mounts::Attach) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn detach(&mut self, request: &verbs::mounts::Detach) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn pool_scan(
        &mut self,
        request: &pools::ScanRequest,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<()> {
        self.ask::<()>(request)?;
        while request.wait && self.waited < WAITED_MAX && progress(&pools::Scan::default()) {
            self.waited += 1;
        }
        Ok(())
    }

    fn pool_export(&mut self, request: &pools::Export) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn pool_disk(
        &mut self,
        request: &verbs::disks::Change,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<Vec<String>> {
        while request.wait && self.waited < WAITED_MAX && progress(&pools::Scan::default()) {
            self.waited += 1;
        }
        self.ask(request)
    }

    fn pool_add(&mut self, request: &verbs::disks::Add) -> Result<Option<verbs::disks::Before>> {
        self.ask(request)
    }

    fn pool_labelclear(&mut self, request: &verbs::disks::Labelclear) -> Result<()> {
        self.ask(request)
    }

    fn pool_clear(&mut self, request: &pools::Clear) -> Result<()> {
        self.ask(request)
    }

    fn pool_import(&mut self, request: &pools::Import) -> Result<pools::Imported> {
        self.ask(request)
    }

    fn pool_find(&mut self, _: &pools::Find) -> Result<Vec<pools::FoundPool>> {
        Ok(self.found.clone())
    }

    fn pool_status(&mut self, request: &pools::Status) -> Result<Vec<Result<pools::PoolReport>>> {
        let wanted =
            |p: &&pools::PoolReport| request.names.is_empty() || request.names.contains(&p.name);
        let mut reports: Vec<_> = self.pools.iter().filter(wanted).cloned().map(Ok).collect();
        for name in &request.names {
            if !self.pools.iter().any(|pool| pool.name == *name) {
                reports.push(Err(Error::open(name, verbs::Why::NoPool)));
            }
        }
        Ok(reports)
    }

    fn pool_set(&mut self, request: &pools::Set) -> Result<Vec<String>> {
        self.ask(request)
    }

    fn pool_history(&mut self, _: &pools::History) -> Result<Vec<Result<pools::HistoryReport>>> {
        Ok(self.histories.iter().cloned().map(Ok).collect())
    }

    fn pool_events(
        &mut self,
        query: &events::Query,
        _: &mut dyn FnMut(events::Heard<'_>) -> bool,
    ) -> Result<()> {
        self.ask(query)
    }

    fn pool_events_clear(&mut self) -> Result<usize> {
        self.ask("clear")
    }

    fn memory(&mut self) -> Option<verbs::memory::Report> {
        self.memory.clone()
    }

    fn dataset_create(&mut self, request: &datasets::Create) -> Result<Vec<String>> {
        self.ask(request)
    }

    fn dataset_destroy(&mut self, request: &datasets::Destroy) -> Result<datasets::Destroyed> {
        self.ask(request)
    }

    fn dataset_query(&mut self, request: &datasets::Query) -> Result<datasets::QueryReport> {
        self.asked.push(format!("{request:?}"));
        let wanted = |d: &&datasets::DatasetReport| {
            request.kinds.contains(d.kind)
                && (request.names.is_empty() || request.names.contains(&d.name))
        };
        let datasets = self.datasets.iter().filter(wanted).cloned().collect();
        Ok(datasets::QueryReport { datasets, errors: Vec::new() })
    }

    fn dataset_diff(
        &mut self,
        request: &datasets::Diff,
        _: &mut dyn FnMut(verbs::diff::Told) -> bool,
    ) -> Result<()> {
        self.ask(request)
    }

    fn dataset_branch(&mut self, request: &branches::Branch) -> Result<()> {
        self.ask(request)
    }

    fn dataset_holds(&mut self, request: &branches::Hold) -> Result<branches::Holds> {
        self.ask(request)
    }

    fn dataset_set(&mut self, request: &datasets::Set) -> Result<datasets::SetReport> {
        self.ask(request)
    }

    fn dataset_inherit(&mut self, request: &datasets::Inherit) -> Result<datasets::SetReport> {
        self.ask(request)
    }

    fn dataset_space(&mut self, request: &datasets::Space) -> Result<Vec<datasets::SpaceRow>> {
        self.asked.push(format!("{request:?}"));
        let wanted = |row: &&datasets::SpaceRow| request.owners.contains(&row.owner);
        Ok(self.space.iter().filter(wanted).cloned().collect())
    }

    fn list(
        &mut self,
        request: &files::List,
        _: &mut dyn FnMut(files::Listed),
    ) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn cat(&mut self, request: &files::Cat, _: &mut dyn Write) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn get(&mut self, request: &files::Get) -> Result<(files::Copied, Vec<Error>)> {
        self.ask(request)
    }

    fn put(&mut self, request: &files::Put) -> Result<(files::Copied, Vec<Error>)> {
        self.ask(request)
    }

    fn mkdir(&mut self, request: &files::Mkdir) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn rename(&mut self, request: &files::Move) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn remove(&mut self, request: &files::Remove) -> Result<Vec<Error>> {
        self.ask(request)
    }

    fn mount(
        &mut self,
        request: &verbs::mounts::Mount,
        tell: &mut dyn FnMut(verbs::mounts::News),
    ) -> Result<()> {
        let (dataset, dir) = (request.dataset.clone(), request.dir.clone());
        tell(verbs::mounts::News::Mounted { dataset, dir });
        self.ask(request)
    }

    fn unmount(&mut self, request: &verbs::mounts::Unmount) -> Result<()> {
        self.ask(request)
    }

    fn verify(
        &mut self,
        request: &judge::Verify,
        _: &mut dyn FnMut(judge::Progress) -> bool,
    ) -> Result<judge::VerifyReport> {
        self.asked.push(format!("{request:?}"));
        Err(Error::open(&request.name, verbs::Why::NoPool))
    }

    fn dump(
        &mut self,
        request: &dump::Dump,
        _: &mut dyn FnMut(dump::Fact) -> bool,
    ) -> Result<dump::Dumped> {
        self.ask(request)
    }
}
