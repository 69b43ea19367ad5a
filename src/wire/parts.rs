//! The parts frames are made of: numbers in network order, byte strings with their length before them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::FrameError;

/// Takes parts off the front of a frame's body.
pub(super) struct Parts(pub(super) Bytes);

impl Parts {
    fn need(&self, count: usize) -> Result<(), FrameError> {
        if self.0.remaining() < count { Err(FrameError::Short) } else { Ok(()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(super) fn i32(&mut self) -> Result<i32, FrameError> {
        self.need(4)?;
        Ok(self.0.get_i32())
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(super) fn text(&mut self) -> Result<String, FrameError> {
        let length = self.u32()? as usize;
        self.need(length)?;
        String::from_utf8(self.0.split_to(length).to_vec()).map_err(|_| FrameError::NotText)
    }

    /// A count, which can't be more than the bytes that are left: a lying one reserves no memory.
    pub(super) fn count(&mut self) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        self.need(count)?;
        Ok(count)
    }

    pub(super) fn end(self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Long) }
    }
}

/// Writes a text with its length. What does not fit 32 bits never comes here: frames are bounded.
pub(super) fn put_text(into: &mut BytesMut, text: &str) {
    put_count(into, text.len());
    into.put_slice(text.as_bytes());
}

/// Writes a count.
pub(super) fn put_count(into: &mut BytesMut, count: usize) {
    into.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}
