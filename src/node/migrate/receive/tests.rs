use super::*;

fn talk(requests: &[(Request, Vec<u8>)]) -> Vec<Answer> {
    let mut input = Vec::new();
    for (request, data) in requests {
        input.extend(serde_json::to_vec(request).expect("JSON"));
        input.push(b'\n');
        input.extend(data);
    }
    let mut output = Vec::new();
    let mut receiver = Receiver::default();
    receiver.serve(&mut input.as_slice(), &mut output).expect("served");
    receiver.close();
    let text = String::from_utf8(output).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(GREETING));
    lines.map(|line| serde_json::from_str(line).expect("an answer")).collect()
}

fn home(at: &Path) -> (Request, Vec<u8>) {
    (Request::Home { path: at.display().to_string(), bytes: 1 }, vec![])
}

fn file(at: &Path, text: &[u8], replace: bool) -> (Request, Vec<u8>) {
    let mut data = 2_u64.to_be_bytes().to_vec();
    data.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
    data.extend(text);
    data.extend([0; 12]);
    (Request::File { path: at.display().to_string(), size: 8, mode: 0o640, replace }, data)
}

fn failed(answer: &Answer) -> &str {
    match answer {
        Answer::Failed { why } => why,
        Answer::Done { .. } => panic!("it was done"),
    }
}

#[test]
fn what_is_done_stays_and_what_is_not_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("ds/7");
    let link = Request::Link { path: at.join("disk.0").display().to_string(), to: "disk.0.snap/0".into() };
    let sub = Request::Folder { path: at.join("disk.0.snap").display().to_string(), mode: 0o755 };
    let all = [home(&at), (sub, vec![]), (link, vec![]), file(&at.join("disk.0.snap/0"), b"abc", false)];
    talk(&all);
    assert!(!folder.path().join("ds").exists(), "nothing of it is left");
    let mut all = all.to_vec();
    all.push((Request::Done, vec![]));
    let answers = talk(&all);
    assert_eq!(answers.len(), 5);
    assert_eq!(fs::read(at.join("disk.0")).expect("through the link"), b"\0\0abc\0\0\0");
    assert_eq!(fs::metadata(at.join("disk.0")).expect("it").mode() & 0o777, 0o640);

    let made = answers.into_iter().flat_map(|answer| match answer {
        Answer::Done { made, .. } => made,
        Answer::Failed { why } => panic!("{why}"),
    });
    let made: Vec<_> = made.collect();
    assert_eq!(made.len(), 5, "{made:?}");
    fs::write(at.join("of-another"), "").expect("a file");
    talk(&[(Request::Undo { made }, vec![])]);
    assert!(
        at.join("of-another").exists() && !at.join("disk.0").exists() && !at.join("disk.0.snap").exists()
    );
}

#[test]
fn what_was_there_is_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("disk.0"), "precious").expect("a file");
    fs::write(at.join("vm.xml"), "old").expect("a file");
    let answers =
        talk(&[home(at), file(&at.join("vm.xml"), b"abc", true), file(&at.join("disk.0"), b"x", false)]);
    assert!(failed(&answers[2]).contains("is there already"), "{answers:?}");
    assert_eq!(fs::read(at.join("disk.0")).expect("it"), b"precious");
    assert_eq!(fs::read(at.join("vm.xml")).expect("it"), b"\0\0abc\0\0\0");
    let made = vec![Made { path: at.join("disk.0").display().to_string(), inode: 1, folder: false }];
    talk(&[(Request::Undo { made }, vec![])]);
    assert!(at.join("disk.0").exists(), "it is another file");
}

#[test]
fn nothing_is_written_outside_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("7");
    for path in ["/etc/x", "7/x", "/", &format!("{}/../x", at.display()), &at.display().to_string()] {
        let answers = talk(&[home(&at), (Request::Folder { path: path.to_owned(), mode: 0o755 }, vec![])]);
        failed(&answers[1]);
    }
    let no_home = talk(&[(Request::Folder { path: "/tmp/x".into(), mode: 0o755 }, vec![])]);
    failed(&no_home[0]);
}

#[test]
fn too_little_room_is_told_before_anything_is_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("7").display().to_string();
    let answers = talk(&[(Request::Home { path, bytes: u64::MAX / 2 }, vec![])]);
    assert!(failed(&answers[0]).contains("are free there"), "{answers:?}");
    assert!(!folder.path().join("7").exists());
}

#[test]
fn missing_paths_are_named() {
    let answers = talk(&[(Request::Need { paths: vec!["/".into(), "/no/such".into()] }, vec![])]);
    assert_eq!(answers, [Answer::Done { made: vec![], missing: vec!["/no/such".into()] }]);
}

#[test]
fn snapshots_of_an_image_survive_and_the_rest_becomes_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("a.qcow2");
    let shell = |text: &str| {
        let start = Start::new("bash").args(["-ec", text]).dir(folder.path()).no_stdin();
        let done = run_blocking(&start, Bytes::new(), &Limits::default()).expect("bash");
        assert_eq!(done.end, End::Exited(0), "{text}: {}", String::from_utf8_lossy(&done.stderr));
    };
    shell(
        "qemu-img create -q -f qcow2 a.qcow2 8M; qemu-io -c 'write -P 1 0 1M' a.qcow2; qemu-img snapshot -c one a.qcow2",
    );
    shell(
        "qemu-io -c 'write -P 2 512k 1M' a.qcow2; qemu-img snapshot -c two a.qcow2; qemu-io -c 'write -P 3 0 4M' a.qcow2",
    );
    only_snapshots(&at).expect("done");
    shell("qemu-io -c 'read -P 0 0 8M' a.qcow2 | { ! grep -q 'Pattern verification failed'; }");
    shell(
        "qemu-img snapshot -a one a.qcow2; qemu-io -c 'read -P 1 0 1M' a.qcow2 | { ! grep 'Pattern verif'; }",
    );
    shell(
        "qemu-img snapshot -a two a.qcow2; qemu-io -c 'read -P 2 512k 1M' a.qcow2 | { ! grep 'Pattern verif'; }",
    );
    fs::write(&at, "no image").expect("a file");
    assert!(only_snapshots(&at).is_err());
}
