//! Feature flags: what a pool may contain beyond version 28 of the format, as a table.
//!
//! A pool lists its features by guid in two ZAPs of the MOS: one for features that a reader must
//! know, one for those that only a writer must know. The value is a reference count: 0 enabled,
//! more than 0 active; a feature that is not listed is disabled. FORMAT: section 7.3.

/// A reader that does not know the feature may still read (it is in `features_for_write`).
const READ_ONLY: u8 = 1;
/// While active it is listed in the labels, since a loader needs it before it can read the MOS.
const LABEL: u8 = 2;
/// Active as soon as it is enabled, for ever.
const AT_ONCE: u8 = 4;
/// Data sets that use it say so, and are counted.
const PER_DATA_SET: u8 = 8;

/// What is known of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureInfo {
    /// Short name, as in `feature@NAME`.
    pub name: &'static str,
    /// Name on disk.
    pub guid: &'static str,
    /// Text in the ZAP `feature_descriptions`.
    pub description: &'static str,
    /// Features that must be enabled before it.
    pub depends: &'static [Feature],
    flags: u8,
}

impl FeatureInfo {
    /// May one who does not know the feature open the pool read-only while it is active?
    pub fn is_read_only_compatible(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    /// Do labels list the feature while it is active?
    pub fn is_in_label(&self) -> bool {
        self.flags & LABEL != 0
    }

    /// Does enabling it activate it for ever?
    pub fn activates_on_enable(&self) -> bool {
        self.flags & AT_ONCE != 0
    }

    /// Is it active per data set, its count the number of such data sets?
    pub fn is_per_data_set(&self) -> bool {
        self.flags & PER_DATA_SET != 0
    }
}

macro_rules! features {
    ($($variant:ident = $name:expr, $guid:expr, $flags:expr, [$($dep:ident),*], $text:expr;)*) => {
        /// A feature of OpenZFS 2.1, in the order in which a new pool enables them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Feature {
            $($variant),*
        }

        impl Feature {
            /// All of them, in order.
            pub const ALL: [Feature; 34] = [$(Self::$variant),*];

            /// What is known of it.
            pub const fn info(self) -> FeatureInfo {
                match self {
                    $(Self::$variant => FeatureInfo {
                        name: $name,
                        guid: $guid,
                        description: $text,
                        depends: &[$(Feature::$dep),*],
                        flags: $flags,
                    }),*
                }
            }
        }
    };
}

features! {
    AsyncDestroy = "async_destroy", "com.delphix:async_destroy", READ_ONLY, [],
        "Destroy filesystems asynchronously.";
    EmptyBpobj = "empty_bpobj", "com.delphix:empty_bpobj", READ_ONLY, [],
        "Snapshots use less space.";
    Lz4Compress = "lz4_compress", "org.illumos:lz4_compress", AT_ONCE, [],
        "LZ4 compression algorithm support.";
    MultiVdevCrashDump = "multi_vdev_crash_dump", "com.joyent:multi_vdev_crash_dump", 0, [],
        "Crash dumps to multiple vdev pools.";
    SpacemapHistogram = "spacemap_histogram", "com.delphix:spacemap_histogram", READ_ONLY, [],
        "Spacemaps maintain space histograms.";
    EnabledTxg = "enabled_txg", "com.delphix:enabled_txg", READ_ONLY, [],
        "Record txg at which a feature is enabled";
    HoleBirth = "hole_birth", "com.delphix:hole_birth", LABEL | AT_ONCE, [EnabledTxg],
        "Retain hole birth txg for more precise zfs send";
    ExtensibleDataset = "extensible_dataset", "com.delphix:extensible_dataset", 0, [],
        "Enhanced dataset functionality, used by other features.";
    EmbeddedData = "embedded_data", "com.delphix:embedded_data", LABEL | AT_ONCE, [],
        "Blocks which compress very well use even less space.";
    Bookmarks = "bookmarks", "com.delphix:bookmarks", READ_ONLY, [ExtensibleDataset],
        "\"zfs bookmark\" command";
    FilesystemLimits = "filesystem_limits", "com.joyent:filesystem_limits", READ_ONLY, [ExtensibleDataset],
        "Filesystem and snapshot limits.";
    LargeBlocks = "large_blocks", "org.open-zfs:large_blocks", PER_DATA_SET, [ExtensibleDataset],
        "Support for blocks larger than 128KB.";
    LargeDnode = "large_dnode", "org.zfsonlinux:large_dnode", PER_DATA_SET, [ExtensibleDataset],
        "Variable on-disk size of dnodes.";
    Sha512 = "sha512", "org.illumos:sha512", PER_DATA_SET, [ExtensibleDataset],
        "SHA-512/256 hash algorithm.";
    Skein = "skein", "org.illumos:skein", PER_DATA_SET, [ExtensibleDataset],
        "Skein hash algorithm.";
    Edonr = "edonr", "org.illumos:edonr", PER_DATA_SET, [ExtensibleDataset],
        "Edon-R hash algorithm.";
    UserobjAccounting = "userobj_accounting", "org.zfsonlinux:userobj_accounting", READ_ONLY | PER_DATA_SET, [ExtensibleDataset],
        "User/Group object accounting.";
    Encryption = "encryption", "com.datto:encryption", PER_DATA_SET, [ExtensibleDataset, BookmarkV2],
        "Support for dataset level encryption";
    ProjectQuota = "project_quota", "org.zfsonlinux:project_quota", READ_ONLY | PER_DATA_SET, [ExtensibleDataset],
        "space/object accounting based on project ID.";
    DeviceRemoval = "device_removal", "com.delphix:device_removal", LABEL, [],
        "Top-level vdevs can be removed, reducing logical pool size.";
    ObsoleteCounts = "obsolete_counts", "com.delphix:obsolete_counts", READ_ONLY, [ExtensibleDataset, DeviceRemoval],
        "Reduce memory used by removed devices when their blocks are freed or remapped.";
    ZpoolCheckpoint = "zpool_checkpoint", "com.delphix:zpool_checkpoint", READ_ONLY, [],
        "Pool state can be checkpointed, allowing rewind later.";
    SpacemapV2 = "spacemap_v2", "com.delphix:spacemap_v2", READ_ONLY | AT_ONCE, [],
        "Space maps representing large segments are more efficient.";
    AllocationClasses = "allocation_classes", "org.zfsonlinux:allocation_classes", READ_ONLY, [],
        "Support for separate allocation classes.";
    ResilverDefer = "resilver_defer", "com.datto:resilver_defer", READ_ONLY, [],
        "Support for deferring new resilvers when one is already running.";
    BookmarkV2 = "bookmark_v2", "com.datto:bookmark_v2", 0, [ExtensibleDataset, Bookmarks],
        "Support for larger bookmarks";
    RedactionBookmarks = "redaction_bookmarks", "com.delphix:redaction_bookmarks", 0, [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Support for bookmarks which store redaction lists for zfs redacted send/recv.";
    RedactedDatasets = "redacted_datasets", "com.delphix:redacted_datasets", PER_DATA_SET, [ExtensibleDataset],
        "Support for redacted datasets, produced by receiving a redacted zfs send stream.";
    BookmarkWritten = "bookmark_written", "com.delphix:bookmark_written", 0, [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Additional accounting, enabling the written#<bookmark> property(space written since a bookmark), and estimates of send stream sizes for incrementals from bookmarks.";
    LogSpacemap = "log_spacemap", "com.delphix:log_spacemap", READ_ONLY, [SpacemapV2],
        "Log metaslab changes on a single spacemap and flush them periodically.";
    Livelist = "livelist", "com.delphix:livelist", READ_ONLY, [ExtensibleDataset],
        "Improved clone deletion performance.";
    DeviceRebuild = "device_rebuild", "org.openzfs:device_rebuild", READ_ONLY, [],
        "Support for sequential mirror/dRAID device rebuilds";
    ZstdCompress = "zstd_compress", "org.freebsd:zstd_compress", PER_DATA_SET, [ExtensibleDataset],
        "zstd compression algorithm support.";
    Draid = "draid", "org.openzfs:draid", LABEL, [],
        "Support for distributed spare RAID";
}

impl Feature {
    /// Short name.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Name on disk.
    pub const fn guid(self) -> &'static str {
        self.info().guid
    }

    /// The feature with this name on disk, if it is a known one.
    pub fn from_guid(guid: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.guid().as_bytes() == guid)
    }

    /// The feature with this short name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The feature and all that it needs, what is needed first: the order of enabling.
    pub fn with_dependencies(self) -> Vec<Feature> {
        let mut list = Vec::new();
        self.collect(&mut list);
        list
    }

    fn collect(self, list: &mut Vec<Feature>) {
        for dependency in self.info().depends {
            dependency.collect(list);
        }
        if !list.contains(&self) {
            list.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<_> = Feature::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), 34);
        for feature in Feature::ALL {
            assert_eq!(Feature::from_guid(feature.guid().as_bytes()), Some(feature));
            assert_eq!(Feature::from_name(feature.name()), Some(feature));
        }
        assert_eq!(Feature::from_guid(b"org.openzfs:blake3"), None);
        assert_eq!(Feature::from_name("Draid"), None);
    }

    #[test]
    fn what_is_needed_comes_first() {
        for feature in Feature::ALL {
            let list = feature.with_dependencies();
            assert_eq!(list.last(), Some(&feature));
            for (at, needed) in list.iter().enumerate() {
                assert!(needed.info().depends.iter().all(|d| list[..at].contains(d)));
            }
        }
        assert_eq!(
            Feature::Encryption.with_dependencies(),
            [
                Feature::ExtensibleDataset,
                Feature::Bookmarks,
                Feature::BookmarkV2,
                Feature::Encryption
            ]
        );
    }

    #[test]
    fn flags_are_those_of_the_format() {
        let with = |test: fn(&FeatureInfo) -> bool| {
            Feature::ALL.iter().filter(|f| test(&f.info())).map(|f| f.name()).collect::<Vec<_>>()
        };
        assert_eq!(
            with(FeatureInfo::is_in_label),
            ["hole_birth", "embedded_data", "device_removal", "draid"]
        );
        assert_eq!(
            with(FeatureInfo::activates_on_enable),
            ["lz4_compress", "hole_birth", "embedded_data", "spacemap_v2"]
        );
        assert_eq!(with(FeatureInfo::is_per_data_set).len(), 10);
        assert_eq!(with(FeatureInfo::is_read_only_compatible).len(), 16);
    }
}
