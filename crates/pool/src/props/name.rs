//! Names of pools, data sets, snapshots and bookmarks: what is allowed, and why not.
//!
//! A name that breaks a rule is refused before anything else happens, with OpenZFS's wording.

/// Bytes in a full name, at most.
pub const NAME_MAX: usize = 255;
/// Levels of data sets below each other, at most.
pub const DEPTH_MAX: usize = 50;
/// Words that a pool cannot be called, because the kernel has no way to tell them from a layout.
const RESERVED: [&[u8]; 3] = [b"mirror", b"raidz", b"draid"];
/// Beginnings that a new pool's name cannot have.
const RESERVED_PREFIXES: [&[u8]; 4] = [b"mirror", b"raidz", b"draid", b"spare"];

/// Why a name is refused. The text is the reason; who asks names the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is longer than the format takes.
    #[error("name is too long")]
    TooLong,
    /// It starts with `/`.
    #[error("leading slash in name")]
    LeadingSlash,
    /// It ends with `/`.
    #[error("trailing slash in name")]
    TrailingSlash,
    /// Nothing between two separators.
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    /// A character that no name has.
    #[error("invalid character '{}' in name", .0.escape_ascii())]
    Character(u8),
    /// `%` is kept for temporary data sets.
    #[error("invalid character % in name")]
    Percent,
    /// A character that no pool's name has.
    #[error("invalid character '{}' in pool name", .0.escape_ascii())]
    PoolCharacter(u8),
    /// A pool's name starts with a letter.
    #[error("name must begin with a letter")]
    NoLetter,
    /// The word means something else.
    #[error("name is reserved")]
    Reserved,
    /// More than one `@` or `#`.
    #[error("multiple '@' and/or '#' delimiters in name")]
    Delimiters,
    /// A component is `.`.
    #[error("self reference, '.' is found in name")]
    SelfReference,
    /// A component is `..`.
    #[error("parent reference, '..' is found in name")]
    ParentReference,
    /// A snapshot where none can be.
    #[error("snapshot delimiter '@' is not expected here")]
    SnapshotHere,
    /// A bookmark where none can be.
    #[error("bookmark delimiter '#' is not expected here")]
    BookmarkHere,
    /// A snapshot is wanted.
    #[error("missing '@' delimiter in snapshot name")]
    NoSnapshot,
    /// Too many levels.
    #[error("maximum name nesting depth exceeded")]
    TooDeep,
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b' ')
}

/// Checks a pool's name; `new` if it is to be made.
///
/// # Errors
/// [`NameError`] says which rule it breaks.
pub fn check_pool(name: &[u8], new: bool) -> Result<(), NameError> {
    // A data set's name is at most 255 bytes, and the pool's hidden data sets need some.
    const POOL_NAME_MAX: usize = NAME_MAX - 2 - 2 * "$ORIGIN".len();
    if name.len() > POOL_NAME_MAX {
        return Err(NameError::TooLong);
    }
    if let Some(byte) = name.iter().find(|c| !is_name_byte(**c)) {
        return Err(NameError::PoolCharacter(*byte));
    }
    if !name.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err(NameError::NoLetter);
    }
    let reserved = RESERVED.contains(&name)
        || new && (name == b"log" || RESERVED_PREFIXES.iter().any(|p| name.starts_with(p)));
    if reserved { Err(NameError::Reserved) } else { Ok(()) }
}

/// Checks a name of a data set, snapshot (`@`) or bookmark (`#`), whichever it is.
///
/// # Errors
/// [`NameError`] says which rule it breaks.
pub fn check_entity(name: &[u8]) -> Result<(), NameError> {
    if name.len() > NAME_MAX {
        return Err(NameError::TooLong);
    }
    if name.first() == Some(&b'/') {
        return Err(NameError::LeadingSlash);
    }
    let mut delimiter = false;
    let mut start = 0;
    loop {
        let rest = name.get(start..).unwrap_or_default();
        let len = rest.iter().position(|c| matches!(c, b'/' | b'@' | b'#')).unwrap_or(rest.len());
        let component = rest.get(..len).unwrap_or_default();
        if component.is_empty() {
            let slash = start > 0 && name.get(start - 1) == Some(&b'/');
            let trailing = slash && start == name.len();
            return Err(if trailing {
                NameError::TrailingSlash
            } else {
                NameError::EmptyComponent
            });
        }
        if let Some(byte) = component.iter().find(|c| !is_name_byte(**c) && **c != b'%') {
            return Err(NameError::Character(*byte));
        }
        match component {
            b"." => return Err(NameError::SelfReference),
            b".." => return Err(NameError::ParentReference),
            _ => {}
        }
        match rest.get(len) {
            None => return Ok(()),
            Some(b'/') if delimiter => return Err(NameError::TrailingSlash),
            Some(b'/') => {}
            Some(_) if delimiter => return Err(NameError::Delimiters),
            Some(_) => delimiter = true,
        }
        start += len + 1;
    }
}

/// Checks a name of a data set, snapshot or bookmark that is to be made.
///
/// # Errors
/// [`NameError`] says which rule it breaks.
pub fn check_new_entity(name: &[u8]) -> Result<(), NameError> {
    check_entity(name)?;
    if name.contains(&b'%') { Err(NameError::Percent) } else { Ok(()) }
}

/// Checks the name of a data set that is to be made.
///
/// # Errors
/// [`NameError`] says which rule it breaks.
pub fn check_new_dataset(name: &[u8]) -> Result<(), NameError> {
    check_entity(name)?;
    if name.contains(&b'@') {
        return Err(NameError::SnapshotHere);
    }
    if name.contains(&b'#') {
        return Err(NameError::BookmarkHere);
    }
    if name.contains(&b'%') {
        return Err(NameError::Percent);
    }
    if name.iter().filter(|c| **c == b'/').count() >= DEPTH_MAX {
        return Err(NameError::TooDeep);
    }
    Ok(())
}
