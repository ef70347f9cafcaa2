//! `zpool iostat`: what pools and their devices do.
//!
//! The one idea: the engine counts since a pool was opened; each report is the difference of two readings, the first
//! that to nothing. A pool that was opened anew in between, since no server holds it, has done nothing for anybody.

use std::ffi::OsString;

use verbs::layout::Class;
use verbs::meters::Meters;
use verbs::pools::{PoolReport, Status, Vdev};

use super::iostat_table::{self as table, Columns, Row};
use super::list::{print_stamp, stamp};
use super::vdevs::{self, Naming};
use super::{interval_but, reports};
use crate::door::{Door, Ran, Stop, bad_letter};
use crate::getopt::{Opt, sort};

/// Which figures are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// A row each.
    #[default]
    Rows,
    /// A table each of how long I/Os took (`-w`).
    Waits,
    /// A table each of how large they were (`-r`).
    Sizes,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) form: Form,
    pub(crate) latencies: bool,
    pub(crate) queues: bool,
    pub(crate) verbose: bool,
    pub(crate) scripted: bool,
    pub(crate) exact: bool,
    pub(crate) naming: Naming,
    /// The first report is of what happens from now on.
    omit_first: bool,
    stamp: Option<char>,
    json: Option<crate::json::Style>,
}

impl Options {
    fn of(opts: &[Opt]) -> Result<Options, Stop> {
        let (mut options, mut waits, mut sizes) = (Options::default(), false, false);
        for opt in opts {
            match opt {
                Opt::Flag('w') => waits = true,
                Opt::Flag('r') => sizes = true,
                Opt::Flag('l') => options.latencies = true,
                Opt::Flag('q') => options.queues = true,
                Opt::Flag('v') => options.verbose = true,
                Opt::Flag('H') => options.scripted = true,
                Opt::Flag('p') => options.exact = true,
                Opt::Flag('y') => options.omit_first = true,
                // The heading comes once in any case.
                Opt::Flag('n') => {}
                Opt::Flag('g') => options.naming.guids = true,
                Opt::Flag('L') => options.naming.follow = true,
                Opt::Flag('P') => options.naming.full = true,
                Opt::Flag('j') | Opt::Long(_) => options.json = Some(crate::json::style(opts)),
                Opt::Value('T', word) => options.stamp = Some(stamp(word)?),
                Opt::Flag('c') => {
                    return Err(Stop::Said("columns of scripts are not there yet".into(), 1));
                }
                other => return Err(bad_letter(other)),
            }
        }
        if (waits || sizes) && (options.latencies || options.queues) {
            return Err(Stop::Usage("[-r|-w] isn't allowed with [-c|-l|-q]".into()));
        }
        options.form = match (waits, sizes) {
            (true, true) => {
                let message = "Only one of [-r|-w] can be passed at a time";
                return Err(Stop::Usage(message.into()));
            }
            (true, false) => Form::Waits,
            (false, true) => Form::Sizes,
            (false, false) => Form::Rows,
        };
        Ok(options)
    }
}

/// What is shown.
enum Chosen {
    /// Pools of these names; none: all.
    Pools(Vec<String>),
    /// Vdevs of these names, in the pool of this name or in any.
    Vdevs(Option<String>, Vec<String>),
}

/// Has a vdev this name? Devices alone are looked for, as OpenZFS does it.
fn is_called(vdev: &Vdev, word: &str, naming: Naming) -> bool {
    let plain = Naming::default();
    vdev.children.is_empty()
        && (vdevs::name(vdev, naming) == word.as_bytes()
            || vdevs::name(vdev, plain) == word.as_bytes()
            || vdev.guid.to_string() == word
            || vdev.path.as_ref().is_some_and(|path| path.as_os_str() == word))
}

/// A vdev and all below it.
fn below(vdev: &Vdev) -> Vec<&Vdev> {
    let mut list = vec![vdev];
    vdev.children.iter().for_each(|child| list.extend(below(child)));
    list
}

fn has_vdev(pool: &PoolReport, word: &str, naming: Naming) -> bool {
    let mut all = pool.tree.children.iter().chain(&pool.cache).flat_map(below);
    all.any(|vdev| is_called(vdev, word, naming))
}

fn choose(pools: &[PoolReport], words: Vec<String>, naming: Naming) -> Result<Chosen, Stop> {
    let pool = |word: &String| pools.iter().find(|pool| pool.name == *word);
    if words.iter().all(|word| pool(word).is_some()) {
        return Ok(Chosen::Pools(words));
    }
    if words.iter().all(|word| pools.iter().any(|pool| has_vdev(pool, word, naming))) {
        return Ok(Chosen::Vdevs(None, words));
    }
    let Some((pool_word, rest)) =
        words.split_first().and_then(|(first, rest)| Some((pool(first)?, rest)))
    else {
        return Err(Stop::Said("Unable to parse pools/vdevs list.\n".into(), 1));
    };
    if rest.iter().all(|word| has_vdev(pool_word, word, naming)) {
        return Ok(Chosen::Vdevs(Some(pool_word.name.clone()), rest.to_vec()));
    }
    let mut message = format!(
        "Expected either a list of pools, or list of vdevs in \"{}\", but got:\n",
        pool_word.name
    );
    for word in rest {
        let what = match (pool(word), has_vdev(pool_word, word, naming)) {
            (Some(_), _) => "pool",
            (None, true) => "vdev in this pool",
            (None, false) => "unknown",
        };
        message += &format!("\t{word} ({what})\n");
    }
    Err(Stop::Usage(message))
}

/// `zpool iostat`.
pub(crate) fn iostat(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "cgHjLlnPpqrT:vwyd:", &["json", "json-int"]);
    let (own, opts): (Vec<_>, Vec<_>) =
        words.opts.iter().cloned().partition(|opt| matches!(opt, Opt::Value('d', _)));
    door.places.extend(own.into_iter().filter_map(|opt| match opt {
        Opt::Value(_, dir) => Some(dir.into()),
        _ => None,
    }));
    let options = Options::of(&opts)?;
    let mut names = crate::door::names(&words);
    // What is no pool's name may be a device's in any.
    let pools = match names.is_empty() {
        true => Vec::new(),
        false => reports(door, Status::default())?.0,
    };
    let naming = options.naming;
    // With -g a number may be a device's.
    let is_device =
        |word: &str| naming.guids && pools.iter().any(|pool| has_vdev(pool, word, naming));
    let every = interval_but(&mut names, is_device)?;
    let chosen = match names.is_empty() {
        true => Chosen::Pools(Vec::new()),
        false => choose(&pools, names, naming)?,
    };
    let mut left = every.and_then(|(_, count)| count);
    let (mut before, mut first): (Vec<PoolReport>, bool) = (Vec::new(), true);
    if let (true, Some((interval, _))) = (options.omit_first, every) {
        before = read(door, &chosen)?.0;
        door.wait(interval)?;
    }
    loop {
        let (pools, status) = read(door, &chosen)?;
        let status = match pools.is_empty() {
            true => {
                door.complain("no pools available")?;
                1
            }
            false => {
                if options.omit_first && every.is_none() {
                    before.clone_from(&pools);
                }
                let head = first || options.verbose;
                show(door, &pools, &before, &chosen, &options, head)?;
                first = false;
                status
            }
        };
        left = left.map(|count| count.saturating_sub(1));
        match every {
            Some((interval, _)) if left != Some(0) => {
                before = pools;
                door.wait(interval)?;
            }
            Some(_) => return Ok(0),
            None => return Ok(status),
        }
    }
}

fn read(door: &mut Door<'_>, chosen: &Chosen) -> Result<(Vec<PoolReport>, u8), Stop> {
    let names = match chosen {
        Chosen::Pools(names) => names.clone(),
        Chosen::Vdevs(Some(pool), _) => vec![pool.clone()],
        Chosen::Vdevs(None, _) => Vec::new(),
    };
    let (pools, errors) = reports(door, Status { names, ..Status::default() })?;
    let status = door.complain_all(&errors)?;
    Ok((pools, status))
}

/// What a vdev did between two readings.
fn done(vdev: &Vdev, before: Option<&Vdev>) -> Meters {
    let before = before.map_or_else(Meters::default, |before| (*before.meters).clone());
    vdev.meters.since(&before)
}

/// The same vdev in another reading.
fn same<'a>(tree: &'a Vdev, vdev: &Vdev) -> Option<&'a Vdev> {
    if tree.guid == vdev.guid && tree.kind == vdev.kind {
        return Some(tree);
    }
    tree.children.iter().find_map(|child| same(child, vdev))
}

/// One pool between two readings.
struct Span<'a> {
    pool: &'a PoolReport,
    before: Option<&'a PoolReport>,
    seconds: f64,
}

impl<'a> Span<'a> {
    fn of(pool: &'a PoolReport, all_before: &'a [PoolReport]) -> Span<'a> {
        let before = all_before.iter().find(|before| before.guid == pool.guid);
        match before.filter(|before| before.opened == pool.opened) {
            Some(before) => {
                let seconds = pool.open_for.saturating_sub(before.open_for).as_secs_f64();
                Span { pool, before: Some(before), seconds }
            }
            // It was opened for this reading: nobody else has used it.
            None if before.is_some() => Span { pool, before: Some(pool), seconds: 1.0 },
            None => Span { pool, before: None, seconds: pool.open_for.as_secs_f64() },
        }
    }

    fn row(&self, vdev: &Vdev, name: Vec<u8>, depth: usize) -> Row {
        let before = self.before.and_then(|before| {
            let cache = || before.cache.iter().find_map(|tree| same(tree, vdev));
            same(&before.tree, vdev).or_else(cache)
        });
        let space = (vdev.stats.space > 0).then_some((vdev.stats.allocated, vdev.stats.space));
        Row { name, depth, space, meters: done(vdev, before), seconds: self.seconds }
    }

    /// The pool's own row.
    fn whole(&self) -> Row {
        let mut row = self.row(&self.pool.tree, self.pool.name.clone().into_bytes(), 0);
        row.space = Some(self.pool.space());
        row
    }

    fn add(&self, vdev: &Vdev, depth: usize, naming: Naming, rows: &mut Vec<Line>) {
        rows.push(Line::Row(Box::new(self.row(vdev, vdevs::name(vdev, naming), depth))));
        vdev.children.iter().for_each(|child| self.add(child, depth + 2, naming, rows));
    }
}

/// A line of a report, or what stands for one.
pub(crate) enum Line {
    /// A vdev.
    Row(Box<Row>),
    /// The head of a section of a pool.
    Section(&'static str),
    /// The line below a pool.
    Rule,
}

/// A pool's vdevs in its sections, which have names but for the first.
fn sections(pool: &PoolReport) -> Vec<(&'static str, Vec<&Vdev>)> {
    let of_class = |class| vdevs::of_class(&pool.tree, class).collect::<Vec<_>>();
    let mut sections = vec![("", of_class(Class::Normal))];
    sections.extend(vdevs::SECTIONS.map(|(class, name)| (name, of_class(class))));
    sections.push(("cache", pool.cache.iter().collect()));
    sections.retain(|(_, vdevs)| !vdevs.is_empty());
    sections
}

/// The lines of a report.
fn lines(spans: &[Span<'_>], chosen: &Chosen, options: &Options) -> Vec<Line> {
    let (mut lines, naming) = (Vec::new(), options.naming);
    for span in spans {
        if let Chosen::Pools(_) = chosen {
            lines.push(Line::Row(Box::new(span.whole())));
            if !options.verbose {
                continue;
            }
        }
        for (name, vdevs) in sections(span.pool) {
            match chosen {
                Chosen::Pools(_) => {
                    lines.extend((!name.is_empty()).then_some(Line::Section(name)));
                    vdevs.iter().for_each(|vdev| span.add(vdev, 2, naming, &mut lines));
                }
                Chosen::Vdevs(_, wanted) => {
                    // OpenZFS leaves a line where a section begins.
                    lines.extend((!name.is_empty()).then_some(Line::Section("")));
                    let all = vdevs.into_iter().flat_map(below);
                    let is_wanted =
                        |vdev: &&Vdev| wanted.iter().any(|word| is_called(vdev, word, naming));
                    for vdev in all.filter(is_wanted) {
                        let row = span.row(vdev, vdevs::name(vdev, naming), 0);
                        lines.push(Line::Row(Box::new(row)));
                    }
                }
            }
        }
        if options.verbose && matches!(chosen, Chosen::Pools(_)) {
            lines.push(Line::Rule);
        }
    }
    if matches!(chosen, Chosen::Vdevs(..)) || (spans.len() > 1 && !options.verbose) {
        lines.push(Line::Rule);
    }
    lines
}

fn show(
    door: &mut Door<'_>,
    pools: &[PoolReport],
    before: &[PoolReport],
    chosen: &Chosen,
    options: &Options,
    head: bool,
) -> Result<(), Stop> {
    let spans: Vec<Span<'_>> = pools.iter().map(|pool| Span::of(pool, before)).collect();
    let lines = lines(&spans, chosen, options);
    print_stamp(door, options.stamp)?;
    if let Some(style) = options.json {
        let rows = lines.iter().filter_map(|line| match line {
            Line::Row(row) => Some(&**row),
            _ => None,
        });
        let text = table::json(rows, options, style);
        return door.print(text);
    }
    let whole = options.verbose || matches!(chosen, Chosen::Vdevs(..));
    let width = pools.iter().map(|pool| match whole {
        true => vdevs::width(pool.name.as_bytes(), &pool.tree, &[&pool.cache], options.naming),
        false => pool.name.len(),
    });
    let of = if matches!(chosen, Chosen::Vdevs(..)) { "vdev" } else { "pool" };
    let columns = Columns::new(options, of, width.fold(10, usize::max));
    let mut out = Vec::new();
    match options.form {
        Form::Rows => columns.rows(&mut out, &lines, head && !options.scripted),
        Form::Waits | Form::Sizes => columns.tables(&mut out, &lines),
    }
    door.print(out)
}
