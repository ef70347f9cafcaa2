//! The options of ozbench, with its defaults.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use pool::Joined;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Write,
    Read,
    Small,
    Free,
    Scrub,
    Resilver,
    Mixed,
    Pieces,
    Grow,
    Path,
    Passthrough,
    Copy,
}

/// The options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) verb: Verb,
    pub(crate) dir: PathBuf,
    pub(crate) layout: String,
    /// Bytes of an image.
    pub(crate) size: u64,
    pub(crate) sparse: bool,
    pub(crate) ashift: u32,
    pub(crate) objects: usize,
    pub(crate) object_bytes: u64,
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
    pub(crate) record: u64,
    pub(crate) data: String,
    pub(crate) compress: String,
    pub(crate) checksum: String,
    pub(crate) threads: usize,
    pub(crate) warm: usize,
    pub(crate) hide: usize,
    pub(crate) verify: bool,
    /// Disks that take the time of spinning ones.
    pub(crate) spinning: bool,
    /// Where to write what the spinning disks were asked for.
    pub(crate) trace: Option<PathBuf>,
    /// What is to grow, or to be done.
    pub(crate) what: String,
    /// How much of it.
    pub(crate) count: usize,
    /// Leave the images.
    pub(crate) keep: bool,
    /// Of `path`: through what; of a library, `dir` is the server's socket.
    pub(crate) door: String,
    /// The tree that a library opens.
    pub(crate) tree: String,
    /// Where a passthrough is mounted.
    pub(crate) on: PathBuf,
}

/// `128K` and the like, in bytes.
fn bytes(text: &str) -> Result<u64> {
    let (digits, shift) = match text.trim_end_matches(['B', 'i']).char_indices().last() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().with_context(|| format!("not a size: {text}"))?;
    Ok(number << shift)
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
        const USAGE: &str = "usage: thumper-bench create|write|read|small|free|scrub|resilver|mixed|pieces|grow|\
            path|passthrough|copy --dir DIR [--on DIR] [--door engine|library|directory] [--tree POOL] \
            [--layout raidz2:10] [--size BYTES] [--ashift 12] [--sparse] [--objects N] \
            [--files N] [--record 128K] [--data random|root|zero] [--compress off|lz4] \
            [--checksum fletcher4|sha256] [--threads T] [--warm N] [--hide K] [--verify] [--spinning] \
            [--trace FILE] [--what WORK] [--count N] [--keep]";
        let verb = match words.next().as_deref() {
            Some("create") => Verb::Create,
            Some("write") => Verb::Write,
            Some("read") => Verb::Read,
            Some("small") => Verb::Small,
            Some("free") => Verb::Free,
            Some("scrub") => Verb::Scrub,
            Some("resilver") => Verb::Resilver,
            Some("mixed") => Verb::Mixed,
            Some("pieces") => Verb::Pieces,
            Some("grow") => Verb::Grow,
            Some("path") => Verb::Path,
            Some("passthrough") => Verb::Passthrough,
            Some("copy") => Verb::Copy,
            _ => bail!("{USAGE}"),
        };
        let mut options = Options {
            verb,
            dir: PathBuf::from("."),
            layout: "raidz2:10".into(),
            size: 384 << 20,
            sparse: false,
            ashift: 12,
            objects: 8,
            object_bytes: 128 << 20,
            files: 20_000,
            file_bytes: 32 << 10,
            record: 128 << 10,
            data: "random".into(),
            compress: "off".into(),
            checksum: "fletcher4".into(),
            threads: 2,
            warm: 0,
            hide: 0,
            verify: false,
            spinning: false,
            trace: None,
            what: "list".into(),
            count: 1000,
            keep: false,
            door: "engine".into(),
            tree: "tank".into(),
            on: PathBuf::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--dir" => options.dir = value()?.into(),
                "--layout" => options.layout = value()?,
                "--size" => {
                    let size = bytes(&value()?)?;
                    match verb {
                        Verb::Small => options.file_bytes = size,
                        Verb::Create => options.size = size,
                        _ => options.object_bytes = size,
                    }
                }
                "--sparse" => options.sparse = true,
                "--ashift" => options.ashift = value()?.parse()?,
                "--objects" => options.objects = value()?.parse()?,
                "--files" => options.files = value()?.parse()?,
                "--record" => options.record = bytes(&value()?)?,
                "--data" => options.data = value()?,
                "--compress" => options.compress = value()?,
                "--checksum" => options.checksum = value()?,
                "--threads" => options.threads = value()?.parse()?,
                "--warm" => options.warm = value()?.parse()?,
                "--hide" => options.hide = value()?.parse()?,
                "--verify" => options.verify = true,
                "--spinning" => options.spinning = true,
                "--trace" => options.trace = Some(value()?.into()),
                "--what" => options.what = value()?,
                "--count" => options.count = value()?.parse()?,
                "--keep" => options.keep = true,
                "--door" => options.door = value()?,
                "--tree" => options.tree = value()?,
                "--on" => options.on = value()?.into(),
                other => bail!("unknown option {other}\n{USAGE}"),
            }
        }
        Ok(options)
    }

    /// The top-level vdevs of the layout: how they are joined, and of how many disks.
    pub(crate) fn tops(&self) -> Result<Vec<(Joined, usize)>> {
        let top = |word: &str| -> Result<(Joined, usize)> {
            let (kind, count) = word.split_once(':').unwrap_or((word, "1"));
            let joined = match kind {
                "disk" => Joined::Single,
                "mirror" => Joined::Mirror,
                "raidz" | "raidz1" => Joined::Raidz(1),
                "raidz2" => Joined::Raidz(2),
                "raidz3" => Joined::Raidz(3),
                _ => bail!("unknown layout '{word}'"),
            };
            Ok((joined, count.parse()?))
        };
        self.layout.split(',').map(top).collect()
    }

    /// The number of the compression, as properties store it.
    pub(crate) fn compression(&self) -> Result<u64> {
        Ok(match self.compress.as_str() {
            "off" => 2,
            "lz4" => 15,
            other => bail!("unknown compression '{other}'"),
        })
    }

    /// The number of the checksum, as properties store it.
    pub(crate) fn checksum_number(&self) -> Result<u64> {
        Ok(match self.checksum.as_str() {
            "fletcher4" => 7,
            "sha256" => 8,
            other => bail!("unknown checksum '{other}'"),
        })
    }
}
