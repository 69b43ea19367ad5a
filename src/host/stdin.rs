//! What a command gets on its stdin: bytes, or a file that is read piece by piece while it is sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

/// All of a command's stdin, or what is left of it. Clones are cheap and have a place of their own in it.
#[derive(Debug, Clone)]
pub enum Stdin {
    /// In memory.
    Bytes(Bytes),
    /// From `at` up to `end` of a file that nobody else writes to: large, and sent to many hosts at once.
    File {
        /// The file.
        file: Arc<File>,
        /// The first byte that is still to come.
        at: u64,
        /// Behind the last one.
        end: u64,
    },
}

impl From<Bytes> for Stdin {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl Stdin {
    /// All of `file`.
    ///
    /// # Errors
    /// When its size can't be told.
    pub fn of_file(file: Arc<File>) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self::File { file, at: 0, end })
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { at, end, .. } => usize::try_from(end - at).unwrap_or(usize::MAX),
        }
    }

    /// Takes the next `count` bytes (fewer at the end). A file is read then and there: pieces are small, and it is local.
    ///
    /// # Errors
    /// When the file can't be read or is shorter than it was.
    pub fn take(&mut self, count: usize) -> io::Result<Bytes> {
        let count = count.min(self.left());
        match self {
            Self::Bytes(bytes) => Ok(bytes.split_to(count)),
            Self::File { file, at, .. } => {
                let mut piece = vec![0; count];
                file.read_exact_at(&mut piece, *at)?;
                *at += count as u64;
                Ok(piece.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(mut stdin: Stdin, piece: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while stdin.left() > 0 {
            all.extend_from_slice(&stdin.take(piece).expect("it can be read"));
        }
        all
    }

    #[test]
    fn a_file_gives_the_same_as_its_bytes_and_each_clone_from_its_own_place() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&text).expect("written");
        let mut from_file = Stdin::of_file(Arc::new(file)).expect("a size");
        for piece in [1, 7, 1000, 4096] {
            assert_eq!(all(from_file.clone(), piece), text);
            assert_eq!(all(Bytes::from(text.clone()).into(), piece), text);
        }
        assert_eq!(from_file.take(3).expect("read"), text[..3]);
        assert_eq!((from_file.left(), all(from_file, 10)), (997, text[3..].to_vec()));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_not_less_data() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"0123456789").expect("written");
        let mut stdin = Stdin::of_file(Arc::new(file.try_clone().expect("a clone"))).expect("a size");
        file.set_len(5).expect("shorter");
        assert!(stdin.take(10).is_err());
    }
}
