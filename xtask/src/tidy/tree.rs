//! The files that tidy looks at: those of the repository, or a few made up by a test.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One file.
pub(crate) struct Tracked {
    pub(crate) bytes: u64,
    /// Its text, if it is text.
    pub(crate) text: Option<String>,
}

/// Files by their path below the top.
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, Tracked>,
}

impl Tree {
    /// What git tracks in `top`, and what it would track after `git add`.
    pub(crate) fn of_repository(top: &Path) -> Result<Tree> {
        let output = Command::new("git")
            .current_dir(top)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("git is needed to list the tracked files")?;
        ensure!(output.status.success(), "git ls-files: {}", output.status);
        let mut files = BTreeMap::new();
        for name in String::from_utf8(output.stdout)?.split_terminator('\0') {
            let path = top.join(name);
            if path.is_symlink() || !path.is_file() {
                continue; // deleted, and not yet committed
            }
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            let tracked =
                Tracked { bytes: bytes.len() as u64, text: String::from_utf8(bytes).ok() };
            files.insert(name.to_string(), tracked);
        }
        Ok(Tree { files })
    }

    /// Files with the given texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let tracked = |text: &str| Tracked { bytes: text.len() as u64, text: Some(text.into()) };
        Tree { files: files.iter().map(|(p, t)| ((*p).to_string(), tracked(t))).collect() }
    }

    /// Paths and texts of the text files whose name ends in `end`.
    pub(crate) fn texts<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let text =
            |(path, file): (&'a String, &'a Tracked)| Some((path.as_str(), file.text.as_deref()?));
        self.files.iter().filter_map(text).filter(move |(path, _)| path.ends_with(end))
    }

    /// True if `path` is a file of the tree, or a directory with files in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&below))
    }
}
