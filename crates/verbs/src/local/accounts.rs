//! `zfs userspace groupspace projectspace`, and whom `userquota@WHO` means.

use std::collections::BTreeMap;

use fs::Accounts;
use pool::dsl::lookup;
use pool::props::PropError;
use pool::props::space::{Owner, SpaceProp};

use super::Here;
use super::opening::{For, open};
use super::session::pool_error;
use crate::datasets::{Space, SpaceRow};
use crate::host::Names;
use crate::{Doing, Error, Result, Why};

/// The list of the host that names owners of a kind.
fn names(owner: Owner) -> Option<Names> {
    match owner {
        Owner::User => Some(Names::Users),
        Owner::Group => Some(Names::Groups),
        Owner::Project => None,
    }
}

/// The id that a property of a user, group or project is about. As in OpenZFS a name goes before a
/// number, no digits are 0, and what 32 bits do not hold is cut off.
pub(super) fn id(space: &SpaceProp) -> std::result::Result<u64, PropError> {
    let who = &space.who;
    if let Some(id) = names(space.owner).and_then(|names| names.number(who)) {
        return Ok(id);
    }
    let (negative, digits) = match who.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, who.as_str()),
    };
    let number = match digits {
        "" if !negative => 0,
        digits if digits.bytes().all(|c| c.is_ascii_digit()) && !digits.is_empty() => {
            digits.parse::<u64>().unwrap_or(u64::MAX)
        }
        _ => return Err(PropError::Who(space.name())),
    };
    let number = if negative { number.wrapping_neg() } else { number };
    Ok(number & u64::from(u32::MAX))
}

/// What users, groups or projects use.
pub(super) fn space(here: &Here, request: &Space) -> Result<Vec<SpaceRow>> {
    let name = &request.name;
    let doing = || Doing::Open(name.clone());
    let pool = name.split(['/', '@']).next().unwrap_or_default();
    let session = open(here, pool, &request.places, For::Reading).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::open(name, Why::NoDataset),
        _ => e,
    })?;
    let fail = |e| pool_error(doing(), e);
    let found = lookup::find(session.pool.mos(), name).map_err(fail)?;
    let accounts = match Accounts::of(&session.pool, &found).map_err(fail)? {
        Some(accounts) => accounts,
        None => {
            return match fs::fixed(&session.pool, &found).map_err(fail)? {
                fs::Fixed::Filesystem { .. } => Ok(Vec::new()),
                fs::Fixed::Hidden { is_volume: false } => {
                    let why = "it is encrypted, and its accounts cannot be decrypted here";
                    Err(Error::cannot(doing(), Why::NotDone(why.into())))
                }
                _ => Err(Error::cannot(doing(), Why::WrongKind)),
            };
        }
    };
    let mut rows = Vec::new();
    for owner in &request.owners {
        let known = names(*owner).map_or_else(BTreeMap::new, Names::by_number);
        for account in accounts.all(*owner).map_err(fail)? {
            let number = account.id & u64::from(u32::MAX);
            let domain = account.domain;
            let name = known.get(&number).filter(|_| domain.is_none()).cloned();
            rows.push(SpaceRow {
                owner: *owner,
                number,
                domain,
                name,
                used: account.used,
                quota: account.quota,
                objects: account.objects,
                object_quota: account.object_quota,
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_or_numbered() {
        let id = |name: &str| id(&SpaceProp::named(name.as_bytes()).unwrap()).ok();
        for (name, wanted) in [
            ("userused@root", Some(0)),
            ("userused@", Some(0)),
            ("userused@12", Some(12)),
            ("userused@-1", Some(0xffff_ffff)),
            ("userused@4294967296", Some(0)),
            ("userused@nosuchuser", None),
            ("userused@-", None),
            ("userused@1x", None),
            ("projectused@root", None),
            ("groupquota@root", Some(0)),
        ] {
            assert_eq!(id(name), wanted, "{name}");
        }
    }
}
