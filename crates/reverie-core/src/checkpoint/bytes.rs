//! Numbers and texts as little-endian bytes, and back.
//!
//! The input is not trusted: every length is checked against the remaining bytes before memory is allocated for it.

/// A decoded value, or a description of the invalid bytes for users.
pub(super) type Decoded<T> = Result<T, String>;

/// Bytes to be written.
#[derive(Debug, Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    pub(super) fn text(&mut self, value: &str) {
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value.as_bytes());
    }

    /// Writes a count, then each value.
    pub(super) fn all<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(values.len() as u32);
        values.iter().for_each(|value| each(self, value));
    }

    /// Writes whether there is a value, then the value.
    pub(super) fn option<T>(&mut self, value: Option<&T>, each: impl FnOnce(&mut Self, &T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            each(self, value);
        }
    }
}

/// Bytes to be read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(super) fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(n).ok_or("it ends too early")?;
        self.left = left;
        Ok(taken)
    }

    /// Refuses unread bytes.
    pub(super) fn end(&self) -> Decoded<()> {
        if self.left.is_empty() { Ok(()) } else { Err(format!("{} bytes too many", self.left.len())) }
    }

    pub(super) fn u8(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn bool(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} where 0 or 1 must be")),
        }
    }

    pub(super) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    pub(super) fn i32(&mut self) -> Decoded<i32> {
        Ok(self.u32()? as i32)
    }

    pub(super) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub(super) fn size(&mut self) -> Decoded<usize> {
        usize::try_from(self.u64()?).map_err(|error| error.to_string())
    }

    pub(super) fn f64(&mut self) -> Decoded<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    pub(super) fn text(&mut self) -> Decoded<String> {
        let length = self.u32()? as usize;
        let text = std::str::from_utf8(self.take(length)?).map_err(|error| error.to_string())?;
        Ok(text.to_owned())
    }

    pub(super) fn all<T>(&mut self, mut each: impl FnMut(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let count = self.u32()? as usize;
        // Each value takes at least a byte, so this bounds the memory.
        if count > self.left.len() {
            return Err(format!("{count} values in {} bytes", self.left.len()));
        }
        (0..count).map(|_| each(self)).collect()
    }

    pub(super) fn option<T>(&mut self, each: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.bool()? { each(self).map(Some) } else { Ok(None) }
    }
}
