use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdin), Just(Stream::Stdout), Just(Stream::Stderr)]
}

fn open() -> impl Strategy<Value = Open> {
    let limit = proptest::option::of((0u64..1 << 40).prop_map(Duration::from_millis));
    let env = vec((any::<String>(), any::<String>()), 0..4);
    (vec(any::<String>(), 1..6), env, limit, (0u64..1 << 40).prop_map(Duration::from_millis))
        .prop_map(|(argv, env, limit, grace)| Open { argv, env, limit, grace })
}

fn exit() -> impl Strategy<Value = Exit> {
    let how = prop_oneof![any::<i32>().prop_map(How::Exited), any::<i32>().prop_map(How::Signaled)];
    let by = prop_oneof![Just(EndedBy::Itself), Just(EndedBy::Limit), Just(EndedBy::Request)];
    (how, by).prop_map(|(how, by)| Exit { how, by })
}

fn frame() -> impl Strategy<Value = Frame> {
    let why = prop_oneof![Just(WhyRefused::Missing), Just(WhyRefused::Other)];
    let orphan = (any::<u32>(), any::<String>(), any::<u64>()).prop_map(|(pid, program, age)| Orphan {
        pid,
        program,
        age,
    });
    prop_oneof![
        (any::<u32>(), open()).prop_map(|(id, open)| Frame::Open(id, open)),
        (any::<u32>(), stream(), vec(any::<u8>(), 0..2000)).prop_map(|(id, stream, bytes)| Frame::Data(
            id,
            stream,
            bytes.into()
        )),
        any::<u32>().prop_map(Frame::StdinEnd),
        (any::<u32>(), stream(), any::<u32>())
            .prop_map(|(id, stream, count)| Frame::Credit(id, stream, count)),
        any::<u32>().prop_map(Frame::End),
        (any::<u32>(), exit()).prop_map(|(id, exit)| Frame::Exit(id, exit)),
        (any::<u32>(), why, any::<String>())
            .prop_map(|(id, why, text)| Frame::Refused(id, Refusal { why, text })),
        any::<u64>().prop_map(Frame::Ping),
        any::<u64>().prop_map(Frame::Pong),
        Just(Frame::AskOrphans),
        vec(orphan, 0..5).prop_map(Frame::Orphans),
    ]
}

/// Decodes bytes that come in pieces.
fn decode_all(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let (mut buffer, mut frames, mut at) = (BytesMut::new(), Vec::new(), 0);
    let mut cuts = cuts.iter().cycle();
    while at < bytes.len() {
        let next = bytes.len().min(at + cuts.next().unwrap());
        buffer.extend_from_slice(&bytes[at..next]);
        at = next;
        while let Decoded::Complete(frame) = Frame::decode(&mut buffer)? {
            frames.push(frame);
        }
    }
    assert!(buffer.is_empty(), "bytes are left");
    Ok(frames)
}

proptest! {
    #[test]
    fn every_frame_comes_back_however_the_bytes_are_cut(
        frames in vec(frame(), 1..10),
        cuts in vec(1usize..200, 1..20),
    ) {
        let mut bytes = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut bytes).unwrap();
        }
        prop_assert_eq!(decode_all(&bytes, &cuts).unwrap(), frames);
    }

    #[test]
    fn garbage_is_an_error_or_incomplete_but_never_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Decoded::Complete(_)) = Frame::decode(&mut buffer) {}
    }

    #[test]
    fn a_frame_with_a_flipped_byte_does_no_harm(frame in frame(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        while let Ok(Decoded::Complete(_)) = Frame::decode(&mut bytes) {}
    }
}

#[test]
fn the_layout_is_fixed() {
    let mut bytes = BytesMut::new();
    let open = Open {
        argv: vec!["a".into(), String::new()],
        env: vec![("K".into(), "v".into())],
        limit: None,
        grace: Duration::from_millis(2),
    };
    Frame::Open(7, open).encode(&mut bytes).unwrap();
    let body = b"\x01\0\0\0\x07\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\0\x01\0\0\0\x01K\0\0\0\x01v\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x02";
    assert_eq!(bytes[..4], u32::try_from(body.len()).unwrap().to_be_bytes());
    assert_eq!(bytes[4..], body[..]);
}

#[test]
fn lengths_are_limited_on_both_sides() {
    let long = Frame::Data(1, Stream::Stdin, vec![0; LONGEST_FRAME].into());
    let mut bytes = BytesMut::from(&b"x"[..]);
    assert_eq!(long.encode(&mut bytes), Err(FrameError::TooLong(LONGEST_FRAME + 5)));
    assert_eq!(&bytes[..], b"x");
    let mut head = BytesMut::from(&0xffff_ffff_u32.to_be_bytes()[..]);
    assert_eq!(Frame::decode(&mut head), Err(FrameError::TooLong(0xffff_ffff)));
}

#[test]
fn a_lying_count_reserves_no_memory() {
    let body = b"\x01\0\0\0\x01\xff\xff\xff\xff";
    let mut bytes = BytesMut::new();
    bytes.put_u32(body.len() as u32);
    bytes.put_slice(body);
    assert_eq!(Frame::decode(&mut bytes), Err(FrameError::Short));
}

#[test]
fn a_command_without_a_program_is_refused() {
    let open = Open { argv: vec![], env: vec![], limit: None, grace: Duration::ZERO };
    let mut bytes = BytesMut::new();
    Frame::Open(1, open).encode(&mut bytes).unwrap();
    assert_eq!(Frame::decode(&mut bytes), Err(FrameError::Value));
}
