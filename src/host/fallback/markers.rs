//! Finds the command's own output between two markers on a stream that others print to as well.

/// One output of the fallback: noise, `NONCE:begin`, the command's output, `NONCE:end` and a rest of that line.
#[derive(Debug)]
pub(super) struct Marked {
    begin: Vec<u8>,
    end: Vec<u8>,
    held: Vec<u8>,
    state: State,
    noise: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Between,
    After,
    Done,
}

/// Bytes of noise that are kept for an error text.
const NOISE_KEPT: usize = 2000;

impl Marked {
    pub(super) fn new(nonce: &str) -> Self {
        Self {
            begin: format!("{nonce}:begin\n").into_bytes(),
            end: format!("{nonce}:end").into_bytes(),
            held: Vec::new(),
            state: State::Before,
            noise: Vec::new(),
        }
    }

    /// Takes bytes as they come and gives those of the command to `sink`. Only a beginning of a marker is held
    /// back.
    pub(super) fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        self.held.extend_from_slice(bytes);
        loop {
            let before = self.state;
            match self.state {
                State::Before => {
                    let cut = self.cut(true, |noise, bytes| {
                        let room = NOISE_KEPT.saturating_sub(noise.len()).min(bytes.len());
                        noise.extend_from_slice(&bytes[..room]);
                    });
                    self.state = if cut { State::Between } else { self.state };
                }
                State::Between => {
                    let cut = self.cut(false, |_, bytes| sink(bytes));
                    self.state = if cut { State::After } else { self.state };
                }
                State::After if self.held.contains(&b'\n') => self.state = State::Done,
                State::After | State::Done => {}
            }
            if self.state == before {
                return;
            }
        }
    }

    /// Gives out what stands before the marker and takes both away; without a marker all but its beginning.
    fn cut(&mut self, begin: bool, mut give: impl FnMut(&mut Vec<u8>, &[u8])) -> bool {
        let marker = if begin { &self.begin } else { &self.end };
        let found = memchr::memmem::find(&self.held, marker);
        let keep = |held: &[u8]| {
            (1..marker.len()).rev().find(|count| held.ends_with(&marker[..*count])).unwrap_or(0)
        };
        let upto = found.unwrap_or_else(|| self.held.len() - keep(&self.held));
        let taken = found.map_or(upto, |at| at + marker.len());
        if upto > 0 {
            give(&mut self.noise, &self.held[..upto]);
        }
        self.held.drain(..taken);
        found.is_some()
    }

    /// Whether the command's output has begun.
    pub(super) fn began(&self) -> bool {
        self.state != State::Before
    }

    /// What stands behind the end marker, once its line is complete.
    pub(super) fn end(&self) -> Option<String> {
        let line = self.held.split(|byte| *byte == b'\n').next()?;
        (self.state == State::Done).then(|| String::from_utf8_lossy(line).trim().to_owned())
    }

    /// What came before the command's output.
    pub(super) fn noise(&self) -> String {
        let all = [&self.noise[..], if self.began() { b"" } else { &self.held }].concat();
        String::from_utf8_lossy(&all).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn output_is_what_stands_between_the_markers() {
        let mut marked = Marked::new("@n1");
        let mut seen = Vec::new();
        marked.push(b"motd\n@n1:beg", |bytes| seen.extend_from_slice(bytes));
        assert!(!marked.began());
        marked.push(b"in\nab@n1:", |bytes| seen.extend_from_slice(bytes));
        assert!(marked.began());
        assert_eq!(seen, b"ab");
        marked.push(b"x\n@n1:end exit", |bytes| seen.extend_from_slice(bytes));
        assert_eq!(marked.end(), None);
        marked.push(b" 3\nlater", |bytes| seen.extend_from_slice(bytes));
        assert_eq!(seen, b"ab@n1:x\n");
        assert_eq!(marked.end().as_deref(), Some("exit 3"));
        assert_eq!(marked.noise(), "motd");
    }

    #[test]
    fn without_a_beginning_all_is_noise() {
        let mut marked = Marked::new("@n1");
        marked.push(b"bash: not found\n@n1:be", |_| panic!("no output"));
        assert_eq!((marked.began(), marked.end()), (false, None));
        assert_eq!(marked.noise(), "bash: not found\n@n1:be");
    }

    proptest! {
        #[test]
        fn it_is_found_however_the_bytes_are_cut(
            noise in "[a@n1:\n]{0,30}",
            body in "[a@n1:e\n]{0,60}",
            cuts in proptest::collection::vec(1usize..9, 1..40),
        ) {
            prop_assume!(!noise.contains("@n1:begin") && !body.contains("@n1:end"));
            let text = format!("{noise}@n1:begin\n{body}@n1:end exit 0\n");
            let mut marked = Marked::new("@n1");
            let mut seen = Vec::new();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < text.len() {
                let next = text.len().min(at + cuts.next().unwrap());
                marked.push(&text.as_bytes()[at..next], |bytes| seen.extend_from_slice(bytes));
                at = next;
            }
            prop_assert_eq!(String::from_utf8(seen).unwrap(), body);
            prop_assert_eq!(marked.end(), Some("exit 0".to_owned()));
        }
    }
}
