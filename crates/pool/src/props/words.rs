//! The words that index properties take, with the numbers they are on disk.
//!
//! The first word of a number is the one that is shown; later ones are older spellings that are
//! understood. FORMAT: section 8.7.

/// The words of a property.
#[derive(Debug)]
pub struct Words {
    /// The choices as usage and errors name them.
    pub hint: &'static str,
    /// Word and number, in the order in which they are looked up.
    pub table: &'static [(&'static str, u64)],
}

impl Words {
    /// The number of a word.
    #[must_use]
    pub fn number(&self, word: &[u8]) -> Option<u64> {
        self.table.iter().find(|(w, _)| w.as_bytes() == word).map(|(_, n)| *n)
    }

    /// The word that a number is shown as.
    #[must_use]
    pub fn word(&self, number: u64) -> Option<&'static str> {
        self.table.iter().find(|(_, n)| *n == number).map(|(w, _)| *w)
    }

    /// Bytes in the longest word.
    #[must_use]
    pub fn width(&self) -> usize {
        self.table.iter().map(|(w, _)| w.len()).max().unwrap_or(0)
    }
}

macro_rules! words {
    ($($name:ident $hint:expr, { $($word:literal $number:expr),* $(,)? })*) => {
        $(pub(super) static $name: Words =
            Words { hint: $hint, table: &[$(($word, $number)),*] };)*
    };
}

/// zstd with a level: the level is above the seven bits of the algorithm.
const fn zstd(level: u64) -> u64 {
    16 | level << 7
}

/// zstd-fast: its twenty levels are numbered on from 103.
const fn fast(step: u64) -> u64 {
    zstd(102 + step)
}

words! {
    ON_OFF "on | off", { "off" 0, "on" 1 }
    YES_NO "yes | no", { "no" 0, "yes" 1 }
    DEFER_DESTROY "yes | no", { "off" 0, "on" 1 }
    HIDDEN_VISIBLE "hidden | visible", { "hidden" 0, "visible" 1 }
    CHECKSUM "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr", {
        "on" 1, "off" 2, "fletcher2" 6, "fletcher4" 7, "sha256" 8, "noparity" 10, "sha512" 11,
        "skein" 12, "edonr" 13,
    }
    COMPRESSION "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | \
        zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]", {
        "on" 1, "off" 2, "lzjb" 3, "gzip" 10, "gzip-1" 5, "gzip-2" 6, "gzip-3" 7, "gzip-4" 8,
        "gzip-5" 9, "gzip-6" 10, "gzip-7" 11, "gzip-8" 12, "gzip-9" 13, "zle" 14, "lz4" 15,
        "zstd" 16, "zstd-fast" fast(1),
        "zstd-1" zstd(1), "zstd-2" zstd(2), "zstd-3" zstd(3), "zstd-4" zstd(4), "zstd-5" zstd(5),
        "zstd-6" zstd(6), "zstd-7" zstd(7), "zstd-8" zstd(8), "zstd-9" zstd(9),
        "zstd-10" zstd(10), "zstd-11" zstd(11), "zstd-12" zstd(12), "zstd-13" zstd(13),
        "zstd-14" zstd(14), "zstd-15" zstd(15), "zstd-16" zstd(16), "zstd-17" zstd(17),
        "zstd-18" zstd(18), "zstd-19" zstd(19),
        "zstd-fast-1" fast(1), "zstd-fast-2" fast(2), "zstd-fast-3" fast(3),
        "zstd-fast-4" fast(4), "zstd-fast-5" fast(5), "zstd-fast-6" fast(6),
        "zstd-fast-7" fast(7), "zstd-fast-8" fast(8), "zstd-fast-9" fast(9),
        "zstd-fast-10" fast(10), "zstd-fast-20" fast(11), "zstd-fast-30" fast(12),
        "zstd-fast-40" fast(13), "zstd-fast-50" fast(14), "zstd-fast-60" fast(15),
        "zstd-fast-70" fast(16), "zstd-fast-80" fast(17), "zstd-fast-90" fast(18),
        "zstd-fast-100" fast(19), "zstd-fast-500" fast(20), "zstd-fast-1000" fast(21),
    }
    ACLMODE "discard | groupmask | passthrough | restricted", {
        "discard" 0, "groupmask" 2, "passthrough" 3, "restricted" 4,
    }
    ACLINHERIT "discard | noallow | restricted | passthrough | passthrough-x", {
        "discard" 0, "noallow" 1, "restricted" 4, "passthrough" 3, "secure" 4, "passthrough-x" 5,
    }
    CANMOUNT "on | off | noauto", { "off" 0, "on" 1, "noauto" 2 }
    XATTR "on | off | dir | sa", { "off" 0, "on" 1, "sa" 2, "dir" 1 }
    COPIES "1 | 2 | 3", { "1" 1, "2" 2, "3" 3 }
    VERSION "1 | 2 | 3 | 4 | 5 | current", { "1" 1, "2" 2, "3" 3, "4" 4, "5" 5, "current" 5 }
    NORMALIZATION "none | formC | formD | formKC | formKD", {
        "none" 0, "formD" 0x10, "formKC" 0x60, "formC" 0x50, "formKD" 0x20,
    }
    CASESENSITIVITY "sensitive | insensitive | mixed", { "sensitive" 0, "insensitive" 1, "mixed" 2 }
    CACHE "all | none | metadata", { "none" 0, "metadata" 1, "all" 2 }
    LOGBIAS "latency | throughput", { "latency" 0, "throughput" 1 }
    DEDUP "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify", {
        "on" 1, "off" 2, "verify" 0x101, "sha256" 8, "sha256,verify" 0x108, "sha512" 11,
        "sha512,verify" 0x10b, "skein" 12, "skein,verify" 0x10c, "edonr,verify" 0x10d,
    }
    SYNC "standard | always | disabled", { "standard" 0, "always" 1, "disabled" 2 }
    DNODESIZE "legacy | auto | 1k | 2k | 4k | 8k | 16k", {
        "legacy" 0, "auto" 1, "1k" 1024, "2k" 2048, "4k" 4096, "8k" 8192, "16k" 16384,
    }
    VOLMODE "default | full | geom | dev | none", {
        "default" 0, "full" 1, "geom" 1, "dev" 2, "none" 3,
    }
    ACLTYPE "off | nfsv4 | posix", {
        "off" 0, "posix" 1, "nfsv4" 2, "disabled" 0, "noacl" 0, "posixacl" 1,
    }
    REDUNDANT_METADATA "all | most | some | none", { "all" 0, "most" 1, "some" 2, "none" 3 }
    ENCRYPTION "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | \
        aes-192-gcm | aes-256-gcm", {
        "on" 1, "off" 2, "aes-128-ccm" 3, "aes-192-ccm" 4, "aes-256-ccm" 5, "aes-128-gcm" 6,
        "aes-192-gcm" 7, "aes-256-gcm" 8,
    }
    KEYFORMAT "none | raw | hex | passphrase", { "none" 0, "raw" 1, "hex" 2, "passphrase" 3 }
    KEYSTATUS "none | unavailable | available", { "none" 0, "unavailable" 1, "available" 2 }
    FAILMODE "wait | continue | panic", { "wait" 0, "continue" 1, "panic" 2 }
}
