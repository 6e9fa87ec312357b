//! A manifest's frame: `"REVCKPT\x02" | crc u32` of these 8 bytes, then sections:
//! `tag 4 bytes | length u64 | payload | crc u32`.
//!
//! The CRC (CRC-32, IEEE) covers the number of the section and everything before the CRC in the section, so that
//! sections cannot change places.

use super::bytes::{Bytes, Decoded, Reader};
use super::version::Format;
use crate::disk::{Disk, Input, Output, damaged, read_error, storage};
use crate::error::Result;
use std::path::{Path, PathBuf};

const FORMAT: Format = Format { magic: *b"REVCKPT", name: "checkpoint" };
const HEAD: usize = 12;
const CRC: usize = 4;
/// Bytes that are buffered before they are written.
const AT_ONCE: usize = 1 << 20;

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Head,
    Patterns,
    Chunks,
    Numbers,
    Spans,
    Episodes,
    Items,
    Streams,
    Copies,
    Sent,
    Forgotten,
    End,
}

impl Tag {
    const ALL: [(Tag, &'static [u8; 4]); 12] = [
        (Tag::Head, b"head"),
        (Tag::Patterns, b"patt"),
        (Tag::Chunks, b"chun"),
        (Tag::Numbers, b"numb"),
        (Tag::Spans, b"span"),
        (Tag::Episodes, b"epis"),
        (Tag::Items, b"item"),
        (Tag::Streams, b"strm"),
        (Tag::Copies, b"copy"),
        (Tag::Sent, b"sent"),
        (Tag::Forgotten, b"forg"),
        (Tag::End, b"end."),
    ];

    fn bytes(self) -> &'static [u8; 4] {
        Self::ALL.iter().find(|(tag, _)| *tag == self).expect("every tag is listed").1
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == bytes).map(|(tag, _)| *tag)
    }
}

fn crc(number: u64, section: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(section);
    crc.finalize()
}

/// A manifest that is being written.
pub(crate) struct SectionWriter {
    path: PathBuf,
    output: Box<dyn Output>,
    waiting: Bytes,
    sections: u64,
    written: u64,
}

impl SectionWriter {
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf) -> Result<Self> {
        let output = disk.create(&path).map_err(storage("create", &path))?;
        let mut waiting = Bytes(FORMAT.head().to_vec());
        waiting.u32(crc32fast::hash(&waiting.0));
        Ok(Self { path, output, waiting, sections: 0, written: 0 })
    }

    /// Appends a section, whose payload `fill` appends.
    pub(crate) fn section(&mut self, tag: Tag, fill: impl FnOnce(&mut Bytes)) -> Result<()> {
        let start = self.waiting.0.len();
        self.waiting.0.extend_from_slice(tag.bytes());
        self.waiting.u64(0);
        fill(&mut self.waiting);
        let length = (self.waiting.0.len() - start - HEAD) as u64;
        self.waiting.0[start + 4..start + HEAD].copy_from_slice(&length.to_le_bytes());
        let crc = crc(self.sections, &self.waiting.0[start..]);
        self.waiting.u32(crc);
        self.sections += 1;
        if self.waiting.0.len() >= AT_ONCE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.output.write(&self.waiting.0).map_err(storage("write", &self.path))?;
        self.written += self.waiting.0.len() as u64;
        self.waiting.0.clear();
        Ok(())
    }

    /// Waits until everything is on the disk; returns the file's size in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.write()?;
        self.output.sync().map_err(storage("sync", &self.path))?;
        Ok(self.written)
    }
}

/// A manifest that is being read.
pub(crate) struct SectionReader {
    path: PathBuf,
    input: Box<dyn Input>,
    /// The offset of the next section.
    at: u64,
    /// The offset of the present section.
    start: u64,
    sections: u64,
    payload: Vec<u8>,
}

impl SectionReader {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let input = disk.open(path).map_err(read_error(path, 0))?;
        let mut head = [0; 12];
        input.read_at(0, &mut head).map_err(read_error(path, 0))?;
        FORMAT.check(path, &head[..8], &head[8..])?;
        let at = head.len() as u64;
        Ok(Self { path: path.to_owned(), input, at, start: at, sections: 0, payload: Vec::new() })
    }

    /// Reads and checks the next section, and returns the result of `decode`.
    pub(crate) fn section<T>(&mut self, decode: impl FnOnce(Tag, &mut Reader<'_>) -> Decoded<T>) -> Result<T> {
        self.start = self.at;
        let size = self.input.size();
        let mut head = [0; HEAD];
        self.input.read_at(self.at, &mut head).map_err(read_error(&self.path, self.at))?;
        let length = u64::from_le_bytes(head[4..].try_into().expect("eight bytes"));
        let end = self.at.checked_add((HEAD + CRC) as u64).and_then(|end| end.checked_add(length));
        let Some(end) = end.filter(|end| *end <= size) else {
            return Err(self.damaged("the file ends within a section"));
        };
        self.payload.clear();
        self.payload.resize(HEAD + length as usize + CRC, 0);
        self.input.read_at(self.at, &mut self.payload).map_err(read_error(&self.path, self.at))?;
        let (section, written) = self.payload.split_at(HEAD + length as usize);
        if crc(self.sections, section).to_le_bytes() != written {
            return Err(self.damaged("a section is not what was written"));
        }
        let Some(tag) = Tag::of(&section[..4]) else {
            return Err(self.damaged("a section is of a kind that this version does not know"));
        };
        let mut reader = Reader::new(&section[HEAD..]);
        let decoded = decode(tag, &mut reader).and_then(|decoded| reader.end().map(|()| decoded));
        self.at = end;
        self.sections += 1;
        decoded.map_err(|what| self.damaged(&what))
    }

    /// Refuses bytes after the last section.
    pub(crate) fn end(&self) -> Result<()> {
        match self.input.size() - self.at {
            0 => Ok(()),
            more => Err(damaged(&self.path, format!("{more} bytes follow its end"), self.at)),
        }
    }

    /// The manifest's size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.input.size()
    }

    /// The error for an invalid section, the one read last.
    pub(crate) fn damaged(&self, what: &str) -> crate::error::Error {
        damaged(&self.path, what, self.start)
    }
}
