//! Who uses whom, as cargo knows it, against the table of who may (INV-7).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::rules;
use super::{Finding, finding};

/// What a crate of the workspace depends on.
#[derive(Default)]
pub(crate) struct Uses {
    /// In all it ships.
    pub(crate) normal: BTreeSet<String>,
    /// In its tests only.
    pub(crate) tests: BTreeSet<String>,
}

/// Each crate of the workspace with its dependencies, and how many crates from outside the engine
/// pulls in altogether.
pub(crate) struct Graph {
    pub(crate) members: BTreeMap<String, Uses>,
    pub(crate) engine_foreign: BTreeSet<String>,
}

impl Graph {
    /// Asks cargo.
    pub(crate) fn of_repository(top: &Path) -> Result<Graph> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(top)
            .args(["metadata", "--format-version", "1", "--locked"])
            .output()
            .context("cargo metadata")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata: {error}");
        let json: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        Ok(Graph::of_metadata(&json))
    }

    fn of_metadata(json: &Value) -> Graph {
        let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let string = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let inside: BTreeSet<String> =
            array(&json["workspace_members"]).iter().map(string).collect();
        let mut members = BTreeMap::new();
        let mut names = BTreeMap::new();
        for package in array(&json["packages"]) {
            let (id, name) = (string(&package["id"]), string(&package["name"]));
            names.insert(id.clone(), name.clone());
            if !inside.contains(&id) {
                continue;
            }
            let mut uses = Uses::default();
            for dependency in array(&package["dependencies"]) {
                let list = match dependency["kind"].as_str() {
                    Some("dev") => &mut uses.tests,
                    _ => &mut uses.normal,
                };
                list.insert(string(&dependency["name"]));
            }
            members.insert(name, uses);
        }
        Graph { engine_foreign: engine_foreign(json, &names, &inside), members }
    }
}

/// The crates from outside that the engine reaches in production.
fn engine_foreign(
    json: &Value,
    names: &BTreeMap<String, String>,
    inside: &BTreeSet<String>,
) -> BTreeSet<String> {
    let nodes = json["resolve"]["nodes"].as_array().cloned().unwrap_or_default();
    let by_id: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_engine = |id: &&str| names.get(*id).is_some_and(|n| rules::ENGINE.contains(&n.as_str()));
    let mut todo: Vec<&str> =
        by_id.keys().copied().filter(|id| inside.contains(*id)).filter(is_engine).collect();
    let mut seen: BTreeSet<&str> = todo.iter().copied().collect();
    while let Some(id) = todo.pop() {
        let Some(dependencies) = by_id.get(id).and_then(|node| node["deps"].as_array()) else {
            continue;
        };
        for dependency in dependencies {
            let kinds = dependency["dep_kinds"].as_array().cloned().unwrap_or_default();
            // tests, builds and other systems do not ship; the simulator is a feature that nobody asks for by default
            let ships = kinds.iter().any(|kind| {
                let target = kind["target"].as_str().unwrap_or("");
                kind["kind"].is_null() && !target.contains("windows")
            });
            // what a door brings is the door's: the mount is one, though a verb opens it
            let is_door = |id: &str| inside.contains(id) && !is_engine(&id);
            let found = dependency["pkg"].as_str().filter(|id| ships && !is_door(id));
            if let Some(id) = found.filter(|id| seen.insert(id)) {
                todo.push(id);
            }
        }
    }
    let foreign = seen.into_iter().filter(|id| !inside.contains(*id));
    foreign.filter_map(|id| names.get(id).cloned()).collect()
}

pub(crate) fn check(graph: &Graph) -> Vec<Finding> {
    const TABLE: &str = "xtask/src/tidy/rules.rs";
    let mut found = Vec::new();
    let known: BTreeSet<&str> = rules::STOREYS.iter().map(|s| s.name).collect();
    for (name, uses) in &graph.members {
        let place = format!("crates/{name}");
        let Some(storey) = rules::STOREYS.iter().find(|s| s.name == name.as_str()) else {
            found.push(finding(&place, 0, format!("not in the table of storeys, {TABLE}")));
            continue;
        };
        for used in uses.normal.iter().filter(|used| known.contains(used.as_str())) {
            if !storey.uses.contains(&used.as_str()) {
                found.push(finding(&place, 0, format!("may not use {used} (INV-7, {TABLE})")));
            }
        }
        for used in uses.tests.iter().filter(|used| known.contains(used.as_str())) {
            let used = used.as_str();
            if !storey.stands_on(used) && !storey.tests_use.contains(&used) {
                let what = format!("its tests may not use {used} (INV-7, {TABLE})");
                found.push(finding(&place, 0, what));
            }
        }
        let engine = rules::ENGINE.contains(&name.as_str());
        for (banned, why) in rules::FOREIGN_BANNED {
            if engine && uses.normal.contains(*banned) {
                found.push(finding(&place, 0, format!("may not use {banned}: {why}")));
            }
        }
    }
    for storey in rules::STOREYS.iter().filter(|s| !graph.members.contains_key(s.name)) {
        found.push(finding(TABLE, 0, format!("{} is no crate of the workspace", storey.name)));
    }
    let count = graph.engine_foreign.len();
    if count > rules::FOREIGN_MAX {
        let max = rules::FOREIGN_MAX;
        let what = format!("the engine pulls in {count} crates from outside, at most {max}");
        found.push(finding("Cargo.toml", 0, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    fn graph(planted: &[(&str, &[&str], &[&str])]) -> Graph {
        let mut members: BTreeMap<String, Uses> =
            rules::STOREYS.iter().map(|s| (s.name.to_string(), Uses::default())).collect();
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_string()).collect();
        for (name, normal, tests) in planted {
            members.insert((*name).to_string(), Uses { normal: set(normal), tests: set(tests) });
        }
        Graph { members, engine_foreign: BTreeSet::new() }
    }

    #[test]
    fn planted_uses_are_found() {
        let bad = graph(&[
            ("verify", &["format", "store"], &["testkit"]),
            ("format", &["zerocopy", "rt"], &["codec"]),
            ("store", &["vdev", "rayon"], &["rayon"]),
            ("pool", &["testkit"], &[]),
            ("fs", &[], &["device", "verify"]),
            ("cellar", &[], &[]),
        ]);
        let found = show(check(&bad)).join("\n");
        let expected = [
            "crates/cellar: not in the table",
            "crates/format: may not use rt",
            "crates/format: its tests may not use codec",
            "crates/fs: its tests may not use verify",
            "crates/pool: may not use testkit",
            "crates/store: may not use rayon: threads come from rt",
            "crates/verify: may not use store",
        ];
        for line in expected {
            assert!(found.contains(line), "no `{line}` in\n{found}");
        }
        assert_eq!(found.lines().count(), expected.len(), "{found}");
    }

    #[test]
    fn missing_crates_and_too_many_strangers_are_found() {
        let mut bad = graph(&[]);
        bad.members.remove("store");
        bad.engine_foreign = (0..=rules::FOREIGN_MAX).map(|i| i.to_string()).collect();
        let found = show(check(&bad));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("41 crates from outside"), "{found:?}");
        assert!(found[1].contains("store is no crate"), "{found:?}");
    }

    #[test]
    fn metadata_is_read() {
        let json = serde_json::json!({
            "workspace_members": ["w/rt", "w/cli"],
            "packages": [
                {"id": "w/rt", "name": "rt", "dependencies": [
                    {"name": "rustix", "kind": null}, {"name": "tempfile", "kind": "dev"}]},
                {"id": "w/cli", "name": "cli", "dependencies": [{"name": "clap", "kind": null}]},
                {"id": "x/rustix", "name": "rustix", "dependencies": []},
                {"id": "x/libc", "name": "libc", "dependencies": []},
                {"id": "x/clap", "name": "clap", "dependencies": []},
                {"id": "x/tempfile", "name": "tempfile", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "w/rt", "deps": [
                    {"pkg": "x/rustix", "dep_kinds": [{"kind": null, "target": null}]},
                    {"pkg": "x/tempfile", "dep_kinds": [{"kind": "dev", "target": null}]}]},
                {"id": "w/cli", "deps": [
                    {"pkg": "x/clap", "dep_kinds": [{"kind": null, "target": null}]}]},
                {"id": "x/rustix", "deps": [
                    {"pkg": "x/libc", "dep_kinds": [{"kind": null, "target": null}]}]},
            ]},
        });
        let graph = Graph::of_metadata(&json);
        let foreign: Vec<_> = graph.engine_foreign.iter().map(String::as_str).collect();
        assert_eq!(foreign, ["libc", "rustix"]);
        assert!(graph.members["rt"].tests.contains("tempfile"));
        assert!(graph.members["rt"].normal.contains("rustix"));
    }
}
