//! `zpool set`, and which features a new pool gets.
//!
//! A set of features that other systems know (`compatibility`) is a file of their names, or several
//! of which only what is in all counts; OpenZFS brings some along.

use std::collections::BTreeSet;
use std::path::Path;

use format::features::Feature;
use pool::dsl::lookup;
use pool::props::{PoolKey, PoolProp, PoolPropError, Value};

use super::lifecycle::stored;
use super::located::locate;
use super::opening::{For, open_located};
use super::session::{Session, pool_error};
use super::{Here, keeper};
use crate::pools::{Create, Set};
use crate::{Doing, Error, Result, Why};

/// Where files of features are, the first that has a name counts.
const PLACES: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// A file of features is smaller than this, in bytes.
const FILE_MAX: u64 = 16 << 10;

/// The features of a compatibility set.
fn compatible(set: &[u8], places: &[&str]) -> Result<BTreeSet<Feature>> {
    let names = String::from_utf8_lossy(set);
    let all = || Feature::ALL.into_iter().collect();
    match names.as_ref() {
        "" | "off" => return Ok(all()),
        "legacy" => return Ok(BTreeSet::new()),
        _ => {}
    }
    let bad = || Error::Other(format!("Error: could not read/parse feature file(s): {names} "));
    let mut known: BTreeSet<Feature> = all();
    for name in names.split(',') {
        let paths: Vec<_> = match name.starts_with('/') {
            true => vec![Path::new(name).to_path_buf()],
            false => places.iter().map(|place| Path::new(place).join(name)).collect(),
        };
        let path = paths.iter().find(|path| path.is_file()).ok_or_else(bad)?;
        let small = std::fs::metadata(path).is_ok_and(|meta| meta.len() < FILE_MAX);
        let text = std::fs::read_to_string(path).ok().filter(|_| small).ok_or_else(bad)?;
        let words = text.lines().filter_map(|line| line.split('#').next());
        let words = words.flat_map(|line| line.split([',', ' ', '\t']));
        let listed: BTreeSet<Feature> = words.filter_map(Feature::from_name).collect();
        known.retain(|feature| listed.contains(feature));
    }
    Ok(known)
}

/// The features of a new pool: those that options and the compatibility set leave.
pub(super) fn features(request: &Create) -> Result<Vec<Feature>> {
    let find = |wanted: PoolProp| {
        request.properties.iter().find_map(|(key, value)| match (key, value) {
            (PoolKey::Native(prop), Value::Text(text)) if *prop == wanted => Some(&text[..]),
            _ => None,
        })
    };
    let mut features = compatible(find(PoolProp::Compatibility).unwrap_or_default(), &PLACES)?;
    if request.no_features {
        features.clear();
    }
    for (key, value) in &request.properties {
        let PoolKey::Feature(name) = key else { continue };
        let Some(feature) = Feature::from_name(name) else { continue };
        match value {
            Value::Number(1) => features.insert(feature),
            _ => features.remove(&feature),
        };
    }
    Ok(features.into_iter().collect())
}

/// `zpool set`; warnings.
pub(super) fn set(here: &Here, request: &Set) -> Result<Vec<String>> {
    let doing = Doing::Set(request.name.clone());
    let located = locate(here, &request.name, &request.places)?;
    let session = open_located(here, &request.name, located, For::Writing, doing.clone())?;
    let notes = set_in(&session, request, &doing)?;
    session.note(&request.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)?;
    Ok(notes)
}

fn set_in(session: &Session, request: &Set, doing: &Doing) -> Result<Vec<String>> {
    let fail = |e| pool_error(doing.clone(), e);
    let (pool, name) = (&session.pool, &request.name);
    let mut notes = Vec::new();
    let value = match (&request.key, &request.value) {
        (PoolKey::Feature(feature), _) => {
            enable(session, feature, doing)?;
            return Ok(notes);
        }
        (PoolKey::Native(PoolProp::Version), Value::Number(version)) => {
            return Err(match pool.config().version {
                now if *version <= now => Error::cannot(doing.clone(), Why::BadArgument),
                _ => {
                    let why = "pools cannot be upgraded yet";
                    Error::cannot(doing.clone(), Why::NotDone(why.into()))
                }
            });
        }
        // It says where this system keeps its list of pools, which is another list here.
        (PoolKey::Native(PoolProp::Cachefile), _) => return Ok(notes),
        (PoolKey::Native(PoolProp::Bootfs), Value::Text(fs)) => {
            bootfs(session, fs, doing)?.map(pool::Stored::Number)
        }
        (PoolKey::Native(PoolProp::Compatibility), Value::Text(set)) => {
            let known = compatible(set, &PLACES)?;
            for feature in Feature::ALL {
                if !known.contains(&feature) && pool.features().is_enabled(feature).map_err(fail)? {
                    notes.push(format!(
                        "Warning: one or more features already enabled on pool '{name}'\n\
                         are not present in this compatibility set."
                    ));
                    break;
                }
            }
            Some(stored(&request.value))
        }
        _ => Some(stored(&request.value)),
    };
    pool.set_pool_property(&request.key.name(), value).map_err(fail)?;
    if request.key == PoolKey::Native(PoolProp::Failmode) {
        keeper::obey(pool).map_err(fail)?;
    }
    Ok(notes)
}

/// Sets a property of `zpool import -o`, if it is one that pools have.
pub(super) fn set_at_import(
    session: &Session,
    (key, value): &(PoolKey, Value),
    doing: &Doing,
) -> Result<()> {
    match key {
        PoolKey::Native(PoolProp::Altroot | PoolProp::Readonly) => return Ok(()),
        PoolKey::Feature(_) if *value != Value::Number(1) => return Ok(()),
        _ => {}
    }
    let request = Set {
        name: session.pool.name().into(),
        key: key.clone(),
        value: value.clone(),
        places: Vec::new(),
        command: String::new(),
    };
    set_in(session, &request, doing).map(drop)
}

/// Enables a feature, if the pool's compatibility set has it.
fn enable(session: &Session, name: &str, doing: &Doing) -> Result<()> {
    let (pool, known) = (&session.pool, session.pool.config().compatibility.unwrap_or_default());
    let unknown = || PoolPropError::NoFeature(name.into());
    let feature = Feature::from_name(name);
    let feature = feature.ok_or_else(|| Error::cannot(doing.clone(), unknown()))?;
    if !compatible(&known, &PLACES)?.contains(&feature) {
        let pool = pool.name();
        return Err(Error::Other(format!(
            "Error: cannot enable feature '{name}' on pool '{pool}'\n\
             as it is not specified in this pool's current compatibility set.\n\
             Consider setting 'compatibility' to a less restrictive set, or to 'off'."
        )));
    }
    if pool.config().version < format::SPA_VERSION {
        return Err(Error::cannot(doing.clone(), Why::NeedsUpgrade));
    }
    pool.enable_feature(feature).map_err(|e| pool_error(doing.clone(), e))
}

/// The object of the file system to boot from; `None`: of none.
fn bootfs(session: &Session, name: &[u8], doing: &Doing) -> Result<Option<u64>> {
    let name = String::from_utf8_lossy(name).into_owned();
    if name.is_empty() {
        return Ok(None);
    }
    let cannot = |why: Why| Err(Error::cannot(doing.clone(), why));
    let pool = name.split(['/', '@']).next().unwrap_or_default();
    if pool != session.pool.name() {
        return cannot(PoolPropError::Name(name).into());
    }
    let found = match lookup::find(session.pool.mos(), &name) {
        Ok(found) => found,
        Err(pool::PoolError::NoDataset { .. }) => return cannot(Why::NoPoolOrDataset),
        Err(e) => return Err(pool_error(doing.clone(), e)),
    };
    let fixed = fs::fixed(&session.pool, &found).map_err(|e| pool_error(doing.clone(), e))?;
    match fixed {
        fs::Fixed::Filesystem { .. } if !found.is_snapshot() => Ok(Some(found.object)),
        _ => cannot(Why::WrongPoolKind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_features_are_files() {
        let dir = std::env::temp_dir().join(format!("thumper-compat-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a"), "# all\nlz4_compress, skein\nsha512 # x\nedonr\n").unwrap();
        std::fs::write(dir.join("b"), "skein\tlz4_compress\nno_such_feature\n").unwrap();
        let places = [dir.to_str().unwrap()];
        let of = |set: &str| {
            let known = compatible(set.as_bytes(), &places).map_err(|e| e.to_string())?;
            Ok::<_, String>(known.into_iter().map(|f| f.info().name).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("a").unwrap(), "lz4_compress sha512 skein edonr");
        assert_eq!(of("a,b").unwrap(), "lz4_compress skein");
        assert_eq!(of(&format!("{}/b", places[0])).unwrap(), "lz4_compress skein");
        assert_eq!(of("legacy").unwrap(), "");
        assert_eq!(of("off").unwrap().split(' ').count(), Feature::ALL.len());
        for bad in ["c", "a,c", "a,"] {
            let text = format!("Error: could not read/parse feature file(s): {bad} ");
            assert_eq!(of(bad), Err(text), "{bad}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
