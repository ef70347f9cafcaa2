//! zstd: the length, big-endian, a word with version and level, then one zstd frame without magic
//! number, content size and checksum.

use std::cell::RefCell;

use format::Compress;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

use super::{DecompressError, with_length};

/// The version of the zstd library that is written in front of blocks, as OpenZFS 2.1 does. Nobody
/// reads it; it only tells which library made the block.
pub const ZSTD_VERSION: u32 = 10405;
/// The level that `compression=zstd` stands for.
pub const ZSTD_LEVEL_DEFAULT: ZstdLevel = ZstdLevel(3);

/// A level as properties and stored blocks hold it: 1 to 19, or one of the fast ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ZstdLevel(pub u8);

impl Default for ZstdLevel {
    fn default() -> Self {
        ZSTD_LEVEL_DEFAULT
    }
}

impl ZstdLevel {
    /// The level of `zstd-N`, N from 1 to 19.
    pub fn of_number(n: u32) -> Option<ZstdLevel> {
        (1..=19).contains(&n).then_some(ZstdLevel(n as u8))
    }

    /// The level of `zstd-fast-N`, for the N that have one: 1 to 10, tens to 100, 500, 1000.
    pub fn of_fast(n: u32) -> Option<ZstdLevel> {
        Some(ZstdLevel(match n {
            1..=10 => 102 + n as u8,
            20 | 30 | 40 | 50 | 60 | 70 | 80 | 90 | 100 => 111 + (n / 10) as u8,
            500 => 122,
            1000 => 123,
            _ => return None,
        }))
    }

    /// The number that the zstd library knows the level by; `None` if there is no such level.
    pub fn library_level(self) -> Option<i32> {
        Some(match i32::from(self.0) {
            0 | 255 => 3, // no level given
            n @ 1..=19 => n,
            102 => -1,
            n @ 103..=112 => 102 - n,
            n @ 113..=121 => (111 - n) * 10,
            122 => -500,
            123 => -1000,
            _ => return None,
        })
    }
}

/// Bytes between length and frame.
const VERSION_SIZE: usize = 4;
/// A compressor that has grown beyond this is not kept for the next block, in bytes.
const CONTEXT_KEPT: usize = 4 << 20;

thread_local! {
    static COMPRESS: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(super) fn compress(level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let library_level = level.library_level()?;
    let stored_level = if matches!(level.0, 0 | 255) { ZSTD_LEVEL_DEFAULT.0 } else { level.0 };
    let (head, rest) = dst.split_first_chunk_mut::<4>()?;
    let (version, frame) = rest.split_first_chunk_mut::<VERSION_SIZE>()?;
    let size = COMPRESS.with_borrow_mut(|kept| {
        let mut context = match kept.take() {
            Some(context) => context,
            None => CCtx::try_create()?,
        };
        context.reset(ResetDirective::SessionAndParameters).ok()?;
        context.set_parameter(CParameter::Format(FrameFormat::Magicless)).ok()?;
        context.set_parameter(CParameter::CompressionLevel(library_level)).ok()?;
        context.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
        context.set_parameter(CParameter::ChecksumFlag(false)).ok()?;
        let size = context.compress2(frame, src).ok();
        if context.sizeof() <= CONTEXT_KEPT {
            *kept = Some(context);
        }
        size
    })?;
    *head = u32::try_from(size).ok()?.to_be_bytes();
    *version = (u32::from(stored_level) << 24 | ZSTD_VERSION).to_be_bytes();
    Some(4 + VERSION_SIZE + size)
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let kind = Compress::Zstd;
    let expected = dst.len() as u64;
    let frame = with_length(kind, src, VERSION_SIZE, dst.len())?;
    let corrupt = |what| DecompressError::Corrupt { kind, what, at: 0 };
    DECOMPRESS.with_borrow_mut(|kept| {
        let mut context = match kept.take() {
            Some(context) => context,
            None => DCtx::try_create().ok_or(corrupt("no memory to decompress"))?,
        };
        context
            .reset(ResetDirective::SessionAndParameters)
            .and_then(|_| context.set_parameter(DParameter::Format(FrameFormat::Magicless)))
            .map_err(|_| corrupt("the library refuses frames without magic number"))?;
        let result = context.decompress(dst, frame);
        *kept = Some(context);
        match result {
            Ok(filled) if filled as u64 == expected => Ok(()),
            Ok(filled) => Err(DecompressError::Truncated {
                kind,
                have: frame.len() as u64,
                filled: filled as u64,
                expected,
            }),
            Err(_) => Err(corrupt("not a zstd frame of the block's size")),
        }
    })
}
