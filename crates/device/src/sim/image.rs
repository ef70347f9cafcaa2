//! The bytes of a simulated disk.
//!
//! The one idea: two levels of shared chunks, copied when written. A clone costs a few pointers,
//! so thousands of crash images of one disk share what they have in common; what was never
//! written takes no memory.

use rt::sync::Arc;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes of a chunk.
const CHUNK: usize = 16 << 10;
/// Chunks of a page.
const FAN: usize = 128;

type Chunk = [u8; CHUNK];

#[derive(Clone)]
struct Page([Option<Arc<Chunk>>; FAN]);

/// The bytes of a disk; those never written are zero.
#[derive(Clone)]
pub struct Image {
    size: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// An image of `size` zero bytes.
    pub fn new(size: u64) -> Image {
        Image { size, pages: Vec::new() }
    }

    /// A copy of a file's bytes; runs of zeros take no memory.
    pub fn from_file(path: impl AsRef<Path>) -> std::io::Result<Image> {
        let mut file = std::fs::File::open(path)?;
        let size = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let mut image = Image::new(size);
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            let len = (size - at).min(CHUNK as u64) as usize;
            file.read_exact(&mut chunk[..len])?;
            if chunk[..len].iter().any(|&b| b != 0) {
                image.write(at, &chunk[..len]);
            }
            at += len as u64;
        }
        Ok(image)
    }

    /// Writes the image as a sparse file, for programs that read files.
    pub fn to_file(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        file.set_len(self.size)?;
        for (at, chunk) in self.chunks() {
            let len = (self.size - at).min(CHUNK as u64) as usize;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&chunk[..len])?;
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Memory that it takes if it shares nothing, in bytes.
    pub fn written(&self) -> u64 {
        self.chunks().count() as u64 * CHUNK as u64
    }

    fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.pages.iter().enumerate().flat_map(|(page, chunks)| {
            let chunks = chunks.iter().flat_map(|p| p.0.iter().enumerate());
            chunks.filter_map(move |(index, chunk)| {
                let at = (page * FAN + index) as u64 * CHUNK as u64;
                chunk.as_deref().map(|chunk| (at, chunk))
            })
        })
    }

    fn chunk(&self, index: usize) -> Option<&Chunk> {
        self.pages.get(index / FAN)?.as_ref()?.0[index % FAN].as_deref()
    }

    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Panics
    /// When the range goes beyond the end.
    pub fn read(&self, offset: u64, mut buf: &mut [u8]) {
        assert!(offset + buf.len() as u64 <= self.size, "a read within the image");
        let mut at = offset;
        while !buf.is_empty() {
            let (index, start) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
            let len = buf.len().min(CHUNK - start);
            let (now, rest) = buf.split_at_mut(len);
            match self.chunk(index) {
                Some(chunk) => now.copy_from_slice(&chunk[start..start + len]),
                None => now.fill(0),
            }
            buf = rest;
            at += len as u64;
        }
    }

    /// Puts `bytes` at `offset`.
    ///
    /// # Panics
    /// When the range goes beyond the end.
    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.size, "a write within the image");
        let mut at = offset;
        while !bytes.is_empty() {
            let (index, start) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
            let len = bytes.len().min(CHUNK - start);
            let (now, rest) = bytes.split_at(len);
            self.write_chunk(index, start, now);
            bytes = rest;
            at += len as u64;
        }
    }

    fn write_chunk(&mut self, index: usize, start: usize, bytes: &[u8]) {
        let (page, slot) = (index / FAN, index % FAN);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let page = self.pages[page].get_or_insert_with(|| Arc::new(Page([const { None }; FAN])));
        let slot = &mut Arc::make_mut(page).0[slot];
        match slot {
            // All of it is new: nothing to copy from the old one.
            _ if bytes.len() == CHUNK => {
                *slot = Some(Arc::new(bytes.try_into().expect("a whole chunk")));
            }
            Some(chunk) => {
                Arc::make_mut(chunk)[start..start + bytes.len()].copy_from_slice(bytes);
            }
            None => {
                let mut chunk = [0; CHUNK];
                chunk[start..start + bytes.len()].copy_from_slice(bytes);
                *slot = Some(Arc::new(chunk));
            }
        }
    }

    /// A hash of the bytes: equal for equal bytes, however they were written.
    pub fn hash(&self) -> u64 {
        let content = self.chunks().filter(|(_, chunk)| chunk.iter().any(|&b| b != 0));
        content.fold(super::fold(0, self.size), |hash, (at, chunk)| {
            super::fold_bytes(super::fold(hash, at), chunk)
        })
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes, {} in memory)", self.size, self.written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::Rng;

    /// Against a plain vector, with clones taken on the way that must not change.
    #[test]
    fn as_a_vector() {
        let size = (CHUNK * FAN + 5 * CHUNK + 100) as u64;
        let mut rng = Rng::new(1);
        let (mut image, mut model) = (Image::new(size), vec![0u8; size as usize]);
        let mut clones = Vec::new();
        for round in 0..300 {
            let len = 1 + rng.below(3 * CHUNK as u64);
            let at = rng.below(size - len);
            // Some aligned to chunks, some at the very end.
            let at = match round % 4 {
                0 => at / CHUNK as u64 * CHUNK as u64,
                1 => size - len,
                _ => at,
            };
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            image.write(at, &bytes);
            model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            if round % 50 == 0 {
                clones.push((image.clone(), image.hash(), model.clone()));
            }
        }
        clones.push((image.clone(), image.hash(), model));
        for (clone, hash, model) in clones {
            let mut bytes = vec![1; size as usize];
            clone.read(0, &mut bytes);
            assert!(bytes == model);
            assert_eq!(clone.hash(), hash);
        }
    }

    #[test]
    fn sparse_and_through_a_file() {
        let mut image = Image::new(64 << 20);
        assert_eq!(image.written(), 0);
        image.write((64 << 20) - 3, b"end");
        image.write(1 << 20, b"middle");
        assert_eq!(image.written(), 2 * CHUNK as u64);
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        image.to_file(file.path()).expect("written");
        let back = Image::from_file(file.path()).expect("read");
        assert_eq!((back.size(), back.written()), (image.size(), image.written()));
        assert_eq!(back.hash(), image.hash());
        image.write(5, &[0; 10]);
        assert_eq!(back.hash(), image.hash(), "zeros written are zeros");
        image.write(5, &[1]);
        assert_ne!(back.hash(), image.hash());
    }
}
