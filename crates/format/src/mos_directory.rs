//! Names by which the pool's own objects are found: in the directory of the MOS, and in the ZAPs of top-level vdevs.
//!
//! FORMAT: sections 7, 9 and 13.

/// Object number of the directory.
pub const DIRECTORY: u64 = 1;

/// The DSL directory of the root data set.
pub const ROOT_DATASET: &[u8] = b"root_dataset";
/// The pool's config, an nvlist.
pub const CONFIG: &[u8] = b"config";
/// A bpobj: what was freed in late passes of the last sync.
pub const SYNC_BPLIST: &[u8] = b"sync_bplist";
/// A bpobj: what is left to be freed.
pub const FREE_BPOBJ: &[u8] = b"free_bpobj";
/// The bpobj that stands for all empty ones.
pub const EMPTY_BPOBJ: &[u8] = b"empty_bpobj";
/// Trees that are left to be freed.
pub const BPTREE: &[u8] = b"bptree_obj";
/// A bpobj: what has no block on a removed vdev any more.
pub const OBSOLETE_BPOBJ: &[u8] = b"com.delphix:obsolete_bpobj";
/// Clones whose lists are left to be freed.
pub const DELETED_CLONES: &[u8] = b"com.delphix:deleted_clones";
/// Features without which the pool cannot be read, with their counts.
pub const FEATURES_FOR_READ: &[u8] = b"features_for_read";
/// Features without which the pool cannot be written, with their counts.
pub const FEATURES_FOR_WRITE: &[u8] = b"features_for_write";
/// What features are for.
pub const FEATURE_DESCRIPTIONS: &[u8] = b"feature_descriptions";
/// The txgs in which features were enabled.
pub const FEATURE_ENABLED_TXG: &[u8] = b"feature_enabled_txg";
/// The version that the pool was made with.
pub const CREATION_VERSION: &[u8] = b"creation_version";
/// Sizes are counted as deflated bytes.
pub const DEFLATE: &[u8] = b"deflate";
/// The ring of what was done to the pool.
pub const HISTORY: &[u8] = b"history";
/// What checksums with a salt begin with.
pub const CHECKSUM_SALT: &[u8] = b"org.illumos:checksum_salt";
/// The ZAP of all vdevs' ZAPs.
pub const VDEV_ZAP_MAP: &[u8] = b"com.delphix:vdev_zap_map";
/// Properties of the pool.
pub const POOL_PROPS: &[u8] = b"pool_props";
/// Space maps of the last txgs, by txg.
pub const LOG_SPACEMAP_ZAP: &[u8] = b"com.delphix:log_spacemap_zap";
/// Spares, an nvlist.
pub const SPARES: &[u8] = b"spares";
/// Cache devices, an nvlist.
pub const L2CACHE: &[u8] = b"l2cache";
/// Where the scrub or resilver is ([`crate::scan`]).
pub const SCAN: &[u8] = b"scan";
/// Lost blocks, as the last scrub that went to its end has them.
pub const ERRLOG_LAST: &[u8] = b"errlog_last";
/// Lost blocks, as the scrub that is under way has them.
pub const ERRLOG_SCRUB: &[u8] = b"errlog_scrub";
/// The uberblock of a checkpoint.
pub const CHECKPOINT: &[u8] = b"com.delphix:zpool_checkpoint";
/// A vdev that is being removed.
pub const REMOVING: &[u8] = b"com.delphix:removing";
/// Histograms of the dedup tables.
pub const DDT_STATISTICS: &[u8] = b"DDT-statistics";

/// Of a top-level vdev: from which txg on the changes of each metaslab are in logs only.
pub const TOP_UNFLUSHED_TXGS: &[u8] = b"com.delphix:ms_unflushed_phys_txgs";
/// Of a top-level vdev: the map of what a checkpoint holds and the pool has freed.
pub const TOP_CHECKPOINT_MAP: &[u8] = b"com.delphix:pool_checkpoint_sm";
/// Of a removed vdev: the map of what is no longer needed of it.
pub const TOP_OBSOLETE_MAP: &[u8] = b"com.delphix:indirect_obsolete_sm";
/// Of a top-level vdev: what it is for, if not for everything.
pub const TOP_ALLOCATION_BIAS: &[u8] = b"org.zfsonlinux:allocation_bias";
