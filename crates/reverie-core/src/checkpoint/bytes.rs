//! Numbers as little-endian bytes, and back.
//!
//! The input is not trusted: every length is checked against the remaining bytes before memory is allocated for it.

/// A decoded value, or a description of the invalid bytes for users.
pub(crate) type Decoded<T> = Result<T, String>;

/// Bytes to be written.
#[derive(Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    /// Writes a count, then each value.
    pub(crate) fn all<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(values.len() as u32);
        values.iter().for_each(|value| each(self, value));
    }
}

/// Bytes to be read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(n).ok_or("it ends too early")?;
        self.left = left;
        Ok(taken)
    }

    /// All unread bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// Refuses unread bytes.
    pub(crate) fn end(&self) -> Decoded<()> {
        if self.left.is_empty() { Ok(()) } else { Err(format!("it has {} bytes too many", self.left.len())) }
    }

    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub(crate) fn f64(&mut self) -> Decoded<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    pub(crate) fn all<T>(&mut self, mut each: impl FnMut(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let count = self.u32()? as usize;
        // Each value takes at least a byte, so this bounds the memory.
        if count > self.left.len() {
            return Err(format!("{count} values do not fit into {} bytes", self.left.len()));
        }
        (0..count).map(|_| each(self)).collect()
    }
}
