//! Who watches a served pool: events, programs that are run on them, mail, metrics, and the
//! page in a browser.

#![allow(clippy::unwrap_used)]

mod browser;
mod events;
mod judged;
mod page;
mod site;
mod stuck;
mod troubles;
