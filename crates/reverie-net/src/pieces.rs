//! Large bytes in several pieces: sent and received without being joined.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces up to this size are joined: a peer must not make us keep a long list of small ones.
pub(crate) const SMALL: usize = 4 << 10;

/// Bytes in the pieces in which they are in memory or arrived; none is empty.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Pieces {
    /// Copies the next bytes, as many as there are and fit; returns how many.
    pub fn peek(&self, to: &mut [u8]) -> usize {
        let mut len = 0;
        for piece in &self.pieces {
            let here = piece.len().min(to.len() - len);
            to[len..len + here].copy_from_slice(&piece[..here]);
            len += here;
        }
        len
    }

    /// The next bytes without a copy, `most` at most; empty if there are none.
    pub fn piece(&mut self, most: usize) -> Bytes {
        let here = self.chunk().len().min(most);
        self.copy_to_bytes(here)
    }

    /// The next `len` bytes. There must be as many.
    pub fn split_to(&mut self, len: usize) -> Self {
        let mut first = Self::default();
        while first.len < len {
            let piece = self.piece(len - first.len);
            assert!(!piece.is_empty(), "{len} bytes, of which there are {}", first.len);
            first.len += piece.len();
            first.pieces.push_back(piece);
        }
        first
    }

    /// Appends other pieces.
    pub fn append(&mut self, mut other: Self) {
        self.len += other.len;
        self.pieces.append(&mut other.pieces);
    }

    /// Appends bytes.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len();
        match self.pieces.back_mut().filter(|last| last.len() + piece.len() <= SMALL) {
            Some(last) => {
                let mut joined = BytesMut::with_capacity(SMALL);
                joined.extend_from_slice(last);
                joined.extend_from_slice(&piece);
                *last = joined.freeze();
            }
            None => self.pieces.push_back(piece),
        }
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "{count} bytes of {}", self.len);
        self.len -= count;
        while let Some(piece) = self.pieces.front_mut().filter(|_| count > 0) {
            let here = count.min(piece.len());
            piece.advance(here);
            count -= here;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
    }

    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        let pieces = to.iter_mut().zip(&self.pieces);
        pieces.map(|(to, piece)| *to = IoSlice::new(piece)).count()
    }

    /// Does not copy if the bytes are in one piece.
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "{len} bytes of {}", self.len);
        if let Some(piece) = self.pieces.front_mut().filter(|piece| piece.len() >= len) {
            let bytes = piece.split_to(len);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            self.len -= len;
            return bytes;
        }
        let mut bytes = BytesMut::with_capacity(len);
        while bytes.len() < len {
            let here = self.chunk().len().min(len - bytes.len());
            bytes.extend_from_slice(&self.chunk()[..here]);
            self.advance(here);
        }
        bytes.freeze()
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        let mut pieces = Self::default();
        pieces.push(bytes);
        pieces
    }
}

#[cfg(test)]
impl Pieces {
    pub(crate) fn num_pieces(&self) -> usize {
        self.pieces.len()
    }
}
