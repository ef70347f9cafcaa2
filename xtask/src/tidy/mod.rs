//! `tidy`: rules that a reviewer should not have to remember. Also a test of this crate, so that
//! `cargo test` alone holds the code to them.

mod code;
mod rules;
mod source;
mod storeys;
mod text;
mod tree;

use std::path::Path;

use anyhow::Result;

/// Something against the rules.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Line from 1; 0 if it is about the whole file.
    line: usize,
    what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

fn finding(path: &str, line: usize, what: impl Into<String>) -> Finding {
    Finding { path: path.to_string(), line, what: what.into() }
}

/// Findings as lines, sorted.
#[cfg(test)]
fn show(mut findings: Vec<Finding>) -> Vec<String> {
    findings.sort();
    findings.iter().map(ToString::to_string).collect()
}

/// Everything in the repository at `top` that is against the rules.
pub(crate) fn check(top: &Path) -> Result<Vec<Finding>> {
    let tree = tree::Tree::of_repository(top)?;
    let mut found = storeys::check(&storeys::Graph::of_repository(top)?);
    found.extend(source::check(&tree));
    found.extend(source::check_tables(&tree));
    found.extend(source::check_untested(&tree));
    found.extend(text::check_words(&tree));
    found.extend(text::check_sizes(&tree));
    found.extend(text::check_markdown(&tree));
    found.extend(text::check_architecture(&tree));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let found = super::check(&crate::top()).unwrap();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
