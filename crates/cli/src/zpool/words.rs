//! What `zpool status` and `zpool import` say of a pool's condition.
//!
//! The sentences are OpenZFS's: people search for them, and monitoring matches them.

use verbs::pools::Condition;

/// Where an article of the given name explains more.
pub const ARTICLES: &str = "https://openzfs.github.io/openzfs-docs/msg/";

/// `status:`, `action:` and the article of a pool that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is wrong.
    pub status: String,
    /// What to do.
    pub action: String,
    /// The article.
    pub article: Option<&'static str>,
}

fn advice(status: &str, action: &str, article: Option<&'static str>) -> Option<Advice> {
    Some(Advice { status: status.into(), action: action.into(), article })
}

/// The features of a list, one a line.
fn features(list: &[(String, String)]) -> String {
    let line = |(guid, what): &(String, String)| match what.as_str() {
        "" => format!("\n\t{guid}"),
        what => format!("\n\t{guid} ({what})"),
    };
    list.iter().map(line).collect()
}

/// What to say of an open pool; `None` if all is well.
#[must_use]
pub fn open(condition: &Condition) -> Option<Advice> {
    const ATTACH: &str = "Attach the missing device and online it using 'zpool online'.";
    match condition {
        Condition::Fine => None,
        Condition::MissingReplaceable => advice(
            "One or more devices could not be opened.  Sufficient replicas exist for\n\
             \tthe pool to continue functioning in a degraded state.",
            ATTACH,
            Some("ZFS-8000-2Q"),
        ),
        Condition::Missing | Condition::BadGuidSum => advice(
            "One or more devices could not be opened.  There are insufficient\n\
             \treplicas for the pool to continue functioning.",
            ATTACH,
            Some("ZFS-8000-3C"),
        ),
        Condition::CorruptLabelReplaceable => advice(
            "One or more devices could not be used because the label is missing or\n\
             \tinvalid.  Sufficient replicas exist for the pool to continue\n\
             \tfunctioning in a degraded state.",
            "Replace the device using 'zpool replace'.",
            Some("ZFS-8000-4J"),
        ),
        Condition::CorruptLabel => advice(
            "One or more devices could not be used because the label is missing \n\
             \tor invalid.  There are insufficient replicas for the pool to continue\n\
             \tfunctioning.",
            "Destroy and re-create the pool from\n\ta backup source.",
            Some("ZFS-8000-5E"),
        ),
        Condition::FailingDevice => advice(
            "One or more devices has experienced an unrecoverable error.  An\n\
             \tattempt was made to correct the error.  Applications are unaffected.",
            "Determine if the device needs to be replaced, and clear the errors\n\
             \tusing 'zpool clear' or replace the device with 'zpool replace'.",
            Some("ZFS-8000-9P"),
        ),
        Condition::SlowDevice => advice(
            "One or more devices take much longer than their siblings to complete\n\
             \tI/O.  Applications may be slowed down.",
            "Check the device with 'zpool iostat -lv'; if it stays slow, replace it\n\
             \twith 'zpool replace'.",
            None,
        ),
        Condition::Offline => advice(
            "One or more devices has been taken offline by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.",
            "Online the device using 'zpool online' or replace the device with\n\
             \t'zpool replace'.",
            None,
        ),
        Condition::Resilvering => advice(
            "One or more devices is currently being resilvered.  The pool will\n\
             \tcontinue to function, possibly in a degraded state.",
            "Wait for the resilver to complete.",
            None,
        ),
        Condition::CorruptData => advice(
            "One or more devices has experienced an error resulting in data\n\
             \tcorruption.  Applications may be affected.",
            "Restore the file in question if possible.  Otherwise restore the\n\
             \tentire pool from backup.",
            Some("ZFS-8000-8A"),
        ),
        Condition::CorruptPool => advice(
            "The pool metadata is corrupted and the pool cannot be opened.",
            "Destroy and re-create the pool from\n\ta backup source.",
            Some("ZFS-8000-72"),
        ),
        Condition::FaultedReplaceable => advice(
            "One or more devices are faulted in response to persistent errors.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\
             \trepaired.",
            None,
        ),
        Condition::Faulted => advice(
            "One or more devices are faulted in response to persistent errors.  \
             There are insufficient replicas for the pool to\n\tcontinue functioning.",
            "Destroy and re-create the pool from a backup source.  Manually marking the device\n\
             \trepaired using 'zpool clear' may allow some data to be recovered.",
            None,
        ),
        Condition::Removed => advice(
            "One or more devices has been removed by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.",
            "Online the device using zpool online' or replace the device with\n\
             \t'zpool replace'.",
            None,
        ),
        Condition::Suspended => advice(
            "One or more devices are faulted in response to IO failures.",
            "Make sure the affected devices are connected, then run 'zpool clear'.",
            Some("ZFS-8000-HC"),
        ),
        Condition::BadLog => advice(
            "An intent log record could not be read.\n\
             \tWaiting for administrator intervention to fix the faulted pool.",
            "Either restore the affected device(s) and run 'zpool online',\n\
             \tor ignore the intent log records by running 'zpool clear'.",
            Some("ZFS-8000-K4"),
        ),
        Condition::OldVersion => advice(
            "The pool is formatted using a legacy on-disk format.  The pool can\n\
             \tstill be used, but some features are unavailable.",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\
             \tpool will no longer be accessible on software that does not support\n\
             \tfeature flags.",
            None,
        ),
        Condition::FeaturesOff => advice(
            "Some supported and requested features are not enabled on the pool.\n\
             \tThe pool can still be used, but some features are unavailable.",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\
             \tthe pool may no longer be accessible by software that does not support\n\
             \tthe features. See zpool-features(7) for details.",
            None,
        ),
        Condition::OtherSystem => advice(
            "Mismatch between pool hostid and system hostid on imported pool.\n\
             \tThis pool was previously imported into a system with a different hostid,\n\
             \tand then was verbatim imported into this system.",
            "Export this pool on all systems on which it is imported.\n\
             \tThen import it to correct the mismatch.",
            Some("ZFS-8000-EY"),
        ),
        Condition::UnknownFeatures(list) => advice(
            &format!(
                "The pool cannot be accessed on this system because it uses the\n\
                 \tfollowing feature(s) not supported on this system:{}",
                features(list)
            ),
            "Access the pool from a system that supports the required feature(s),\n\
             \tor restore the pool from backup.",
            Some("ZFS-8000-A5"),
        ),
        Condition::UnknownFeaturesForWriting(list) => advice(
            &format!(
                "The pool can only be accessed in read-only mode on this system. It\n\
                 \tcannot be accessed in read-write mode because it uses the following\n\
                 \tfeature(s) not supported on this system:{}",
                features(list)
            ),
            "The pool cannot be accessed in read-write mode. Import the pool with\n\
             \t\"-o readonly=on\", access the pool from a system that supports the\n\
             \trequired feature(s), or restore the pool from backup.",
            Some("ZFS-8000-A5"),
        ),
        _ => None,
    }
}

/// True for what `zpool status -x` calls healthy.
#[must_use]
pub fn is_healthy(condition: &Condition) -> bool {
    matches!(condition, Condition::Fine | Condition::OldVersion | Condition::FeaturesOff)
}

/// What to say of a pool that was found: ` status:`, ` action:` and the article.
#[must_use]
pub fn found(
    condition: &Condition,
    hopeless: bool,
) -> (Option<String>, String, Option<&'static str>) {
    const FINE: &str = "The pool can be imported using its name or numeric identifier.";
    const DESPITE: &str = "The pool can be imported despite missing or damaged devices.  The\n\
         \tfault tolerance of the pool may be compromised if imported.";
    const ATTACH: &str = "The pool cannot be imported. Attach the missing\n\
                          \tdevices and try again.";
    const DAMAGED: &str = "The pool cannot be imported due to damaged devices or data.";
    let (status, article) = match condition {
        Condition::Fine => (None, None),
        Condition::Missing => {
            (Some("One or more devices are missing from the system."), Some("ZFS-8000-3C"))
        }
        Condition::MissingReplaceable => {
            (Some("One or more devices are missing from the system."), Some("ZFS-8000-2Q"))
        }
        Condition::BadGuidSum => {
            (Some("One or more devices are missing from the system."), Some("ZFS-8000-6X"))
        }
        Condition::CorruptLabelReplaceable => {
            (Some("One or more devices contains corrupted data."), Some("ZFS-8000-4J"))
        }
        Condition::CorruptLabel => {
            (Some("One or more devices contains corrupted data."), Some("ZFS-8000-5E"))
        }
        Condition::CorruptData => (Some("The pool data is corrupted."), Some("ZFS-8000-8A")),
        Condition::CorruptPool => (Some("The pool metadata is corrupted."), Some("ZFS-8000-72")),
        Condition::FailingDevice | Condition::FaultedReplaceable | Condition::Faulted => {
            (Some("One or more devices are faulted."), None)
        }
        Condition::Removed | Condition::Offline => {
            (Some("One or more devices are offlined."), None)
        }
        Condition::Resilvering => (Some("One or more devices were being resilvered."), None),
        Condition::BadLog => (Some("An intent log record cannot be read."), Some("ZFS-8000-K4")),
        Condition::OldVersion => {
            (Some("The pool is formatted using a legacy on-disk version."), None)
        }
        Condition::FeaturesOff => (
            Some(
                "Some supported features are not enabled on the pool.\n\
                 \t(Note that they may be intentionally disabled if the\n\
                 \t'compatibility' property is set.)",
            ),
            None,
        ),
        Condition::OtherSystem => {
            (Some("The pool was last accessed by another system."), Some("ZFS-8000-EY"))
        }
        Condition::UnknownFeatures(_) => (None, Some("ZFS-8000-A5")),
        Condition::UnknownFeaturesForWriting(_) => (None, Some("ZFS-8000-A5")),
        _ => (None, None),
    };
    let status = match condition {
        Condition::UnknownFeatures(list) => Some(format!(
            "The pool uses the following feature(s) not supported on this system:{}",
            features(list)
        )),
        Condition::UnknownFeaturesForWriting(list) => Some(format!(
            "The pool can only be accessed in read-only mode on this system. It\n\
             \tcannot be accessed in read-write mode because it uses the following\n\
             \tfeature(s) not supported on this system:{}",
            features(list)
        )),
        _ => status.map(Into::into),
    };
    let action = match condition {
        Condition::UnknownFeatures(_) => {
            "The pool cannot be imported. Access the pool on a system that supports\n\
             \tthe required feature(s), or recreate the pool from backup."
        }
        Condition::UnknownFeaturesForWriting(_) => {
            "The pool cannot be imported in read-write mode. Import the pool with\n\
             \t\"-o readonly=on\", access the pool on a system that supports the\n\
             \trequired feature(s), or recreate the pool from backup."
        }
        Condition::Missing | Condition::BadGuidSum => ATTACH,
        _ if hopeless => DAMAGED,
        Condition::OtherSystem => {
            "The pool can be imported using its name or numeric identifier and\n\
             \tthe '-f' flag."
        }
        Condition::OldVersion | Condition::FeaturesOff => {
            "The pool can be imported using its name or numeric identifier, though\n\
             \tsome features will not be available without an explicit 'zpool upgrade'."
        }
        Condition::Fine => FINE,
        _ => DESPITE,
    };
    (status, action.into(), article)
}
