//! PDF and HTML files: read by a child process under limits, cited by page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dr::kb::extract::{Child, ChildLimits, ChildTask, ExtractError, Extractable, LimitToBreak, Refusal};

use crate::common::World;

fn child(limits: ChildLimits) -> Child {
    Child { program: PathBuf::from(env!("CARGO_BIN_EXE_dr")), limits }
}

/// Returns a PDF of numbered objects, the first of which is the catalogue.
fn pdf_of(objects: &[Vec<u8>]) -> Vec<u8> {
    let (mut pdf, mut offsets) = (b"%PDF-1.7\n".to_vec(), Vec::new());
    for (object, number) in objects.iter().zip(1..) {
        offsets.push(pdf.len());
        writeln!(pdf, "{number} 0 obj").unwrap();
        pdf.extend_from_slice(object);
        pdf.extend_from_slice(b"\nendobj\n");
    }
    let start = pdf.len();
    writeln!(pdf, "xref\n0 {}\n0000000000 65535 f ", offsets.len() + 1).unwrap();
    for offset in &offsets {
        writeln!(pdf, "{offset:010} 00000 n ").unwrap();
    }
    writeln!(pdf, "trailer\n<</Size {}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF", offsets.len() + 1).unwrap();
    pdf
}

fn stream(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut stream = format!("<<{dictionary}/Length {}>>stream\n", data.len()).into_bytes();
    stream.extend_from_slice(data);
    stream.extend_from_slice(b"\nendstream");
    stream
}

/// Returns a PDF whose pages have these contents, already encoded as `filter` says.
fn pdf_with(filter: &str, contents: &[Vec<u8>]) -> Vec<u8> {
    let pages = contents.len();
    let page = |at: usize| 4 + 2 * at;
    let kids: String = (0..pages).map(|at| format!("{} 0 R ", page(at))).collect();
    let mut objects = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        format!("<</Type/Pages/Kids[{kids}]/Count {pages}>>").into_bytes(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".to_vec(),
    ];
    for (content, at) in contents.iter().zip(0..) {
        let resources = "/Resources<</Font<</F1 3 0 R>>>>/MediaBox[0 0 612 792]";
        let page = format!("<</Type/Page/Parent 2 0 R{resources}/Contents {} 0 R>>", page(at) + 1);
        objects.extend([page.into_bytes(), stream(filter, content)]);
    }
    pdf_of(&objects)
}

/// Returns a PDF with these lines on its pages.
pub(crate) fn pdf(pages: &[&[&str]]) -> Vec<u8> {
    let content = |lines: &&[&str]| {
        let lines = lines.iter().map(|line| format!("({line}) Tj 0 -14 Td\n")).collect::<String>();
        format!("BT /F1 11 Tf 72 700 Td\n{lines}ET").into_bytes()
    };
    pdf_with("", &pages.iter().map(content).collect::<Vec<_>>())
}

fn papers(world: &World, name: &str, bytes: &[u8]) {
    let path = world.path(&format!("papers/{name}"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn locks() -> Vec<u8> {
    pdf(&[
        &["Advisory locks coordinate writers.", "They are released when a process ends."],
        &["Leases expire after ninety sec-", "onds unless the holder renews them."],
        &["Fencing tokens reject a late writer."],
    ])
}

/// Returns a world with a PDF of three pages in the collection `papers`.
fn library() -> World {
    let world = World::empty();
    papers(&world, "locks.pdf", &locks());
    papers(&world, "notes.md", b"# Notes\n\nRead the paper on locks.\n");
    world.dr(["index", "papers", "--include", "pdf", "--no-embed", "--quiet"]).succeeded();
    world
}

#[test]
fn quote_of_a_pdf_is_cited_by_its_page_and_read_by_it() {
    let world = library();
    let hits = world.dr(["search", "when do leases expire", "--mode", "lexical", "--json"]).succeeded().json();
    assert_eq!(hits["hits"][0]["path"], "locks.pdf");
    let page = world.dr(["get", "locks.pdf, page 2"]).succeeded().stdout;
    assert_eq!(page, "## Page 2\n\nLeases expire after ninety seconds\nunless the holder renews them.\n");
    let lines = world.dr(["get", "locks.pdf:1-4"]).succeeded().stdout;
    assert!(lines.starts_with("## Page 1\n\nAdvisory locks"), "{lines}");
    let missing = world.dr(["get", "locks.pdf, page 9"]);
    assert!(missing.stderr.contains("`locks.pdf` has no text on page 9"), "{missing}");

    let answer = world.dr(["ask", "--offline", "when do leases expire?"]).succeeded();
    assert!(answer.stdout.contains("locks.pdf, page 2"), "{answer}");
    assert!(answer.stdout.contains("Leases expire after ninety seconds"), "{answer}");
}

#[test]
fn citation_of_a_pdf_is_verified_by_extracting_it_again() {
    let world = library();
    let question = "when do leases expire?";
    world.dr(["ask", "--offline", "--quiet", "--json", "-o", "report.json", question]).succeeded();
    let verified = world.dr(["verify", "--offline", "report.json"]).succeeded();
    assert!(verified.stdout.contains("holds"), "{verified}");
    std::fs::remove_dir_all(world.path(".dr")).unwrap();
    world.dr(["verify", "--offline", "report.json"]).succeeded();
    papers(&world, "locks.pdf", &pdf(&[&["Leases never expire."]]));
    let changed = world.dr(["verify", "--offline", "report.json"]);
    assert!(changed.exit == Some(4) && changed.stdout.contains("changed"), "{changed}");
}

#[test]
fn formats_are_opt_in_and_remembered() {
    let world = World::empty();
    papers(&world, "locks.pdf", &locks());
    papers(&world, "page.html", b"<title>Valves</title><h2>Night</h2><p>Valves close at nine.</p><script>x</script>");
    papers(&world, "notes.md", b"# Notes\n");
    let added = |args: &[&str]| {
        let run = world.dr([&["index", "papers", "--no-embed", "--json"], args].concat()).succeeded().json();
        ["added", "removed", "unchanged"].map(|count| run[count].as_u64().unwrap())
    };
    assert_eq!(added(&[]), [1, 0, 0], "Markdown alone");
    assert_eq!(added(&["--include", "pdf"]), [1, 0, 1]);
    papers(&world, "more.pdf", &pdf(&[&["More of it."]]));
    assert_eq!(added(&[]), [1, 0, 2], "as the last time");
    assert_eq!(added(&["--rebuild"]), [3, 0, 0], "also built again");
    assert_eq!(added(&["--include", "html,pdf"]), [1, 0, 3]);
    let html = world.dr(["get", "page.html"]).succeeded().stdout;
    assert_eq!(html, "# Valves\n\n## Night\n\nValves close at nine.\n");
    let settings = "[collections.papers]\ninclude = [\"html\"]\n";
    world.write("dr.toml", settings);
    assert_eq!(added(&[]), [0, 2, 2], "settings count more than the last time, and need no `--prune`");
    assert_eq!(added(&["--include", "none"]), [0, 1, 1], "and flags more than settings");
    let wrong = world.dr(["index", "papers", "--include", "docx"]);
    assert!(wrong.exit == Some(2) && wrong.stderr.contains("is not a format"), "{wrong}");
}

/// Compresses so many bytes twice, which makes one of a million.
fn bomb(megabytes: usize) -> Vec<u8> {
    let packed = |bytes: &mut dyn std::io::Read| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::copy(bytes, &mut encoder).unwrap();
        encoder.finish().unwrap()
    };
    let spaces = std::io::Read::take(std::io::repeat(b' '), (megabytes as u64) << 20);
    let once = packed(&mut { spaces });
    packed(&mut once.as_slice())
}

#[test]
fn file_that_cannot_be_read_is_named_and_the_others_are_indexed() {
    let world = World::empty();
    papers(&world, "locks.pdf", &locks());
    let bomb = pdf_with("/Filter[/FlateDecode/FlateDecode]", &[bomb(1_200)]);
    assert!(bomb.len() < 10_000, "{}", bomb.len());
    papers(&world, "bomb.pdf", &bomb);
    let image = b"q 9 0 0 9 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \0 EI Q";
    papers(&world, "scan.pdf", &pdf_with("", &[image.to_vec(), Vec::new()]));
    papers(&world, "shape.pdf", &pdf_with("", &[b"0 0 100 100 re f".to_vec()]));
    papers(&world, "noise.pdf", b"%PDF-1.7\nnothing");
    papers(
        &world,
        "cycle.pdf",
        &pdf_of(&[
            b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
            b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2147483647>>".to_vec(),
        ]),
    );
    let run = world.dr(["index", "papers", "--include", "pdf", "--no-embed", "--json"]).succeeded().json();
    let reasons: Vec<_> = run["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| format!("{}: {}", file["path"].as_str().unwrap(), file["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(run["added"], 1, "{reasons:?}");
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    let of = |name: &str| reasons.iter().find(|reason| reason.starts_with(name)).unwrap().as_str();
    assert_eq!(of("scan.pdf"), "scan.pdf: no text on its pages, which are probably scanned (pages: 2)");
    assert_eq!(of("shape.pdf"), "shape.pdf: no text");
    assert_eq!(of("noise.pdf"), "noise.pdf: damaged or not of this format");
    if cfg!(target_os = "linux") {
        assert_eq!(of("bomb.pdf"), "bomb.pdf: reading it needs more than 512 MB of memory");
    }
    papers(&world, "locks.pdf", b"%PDF-1.7\nnothing");
    let run = world.dr(["index", "papers", "--no-embed", "--json"]).succeeded().json();
    assert_eq!(run["removed"], 1, "a file that is damaged now is not cited any more");
}

/// Returns the error of a task that breaks a limit, and checks that it ends in time.
fn broken(limit: LimitToBreak, limits: ChildLimits) -> ExtractError {
    let started = Instant::now();
    let error = child(limits).run(ChildTask::Break(limit), b"").unwrap_err();
    assert!(started.elapsed() < limits.time + Duration::from_secs(30), "{error}: {:?}", started.elapsed());
    error
}

#[test]
fn child_that_breaks_a_limit_is_ended_and_the_limit_is_named() {
    // Longer than a second of processor time takes on a machine that is busy.
    let limits = ChildLimits { time: Duration::from_mins(3), ..ChildLimits::default() };
    if cfg!(any(target_os = "linux", windows)) {
        let memory = broken(LimitToBreak::Memory, ChildLimits { memory: 64 << 20, ..limits });
        assert!(matches!(memory, ExtractError::Memory { mebibytes: 64 }), "{memory}");
    }
    if cfg!(unix) {
        let cpu = broken(LimitToBreak::Cpu, ChildLimits { cpu: 1, ..limits });
        assert!(matches!(cpu, ExtractError::TooSlow { seconds: 1 }), "{cpu}");
    }
    let time = broken(LimitToBreak::Time, ChildLimits { time: Duration::from_millis(200), ..limits });
    assert!(matches!(time, ExtractError::TooSlow { seconds: 0 }), "{time}");
    let flood = broken(LimitToBreak::Output, ChildLimits { output: 100_000, ..limits });
    assert!(matches!(flood, ExtractError::Flood { bytes: 100_000 }), "{flood}");
}

#[cfg(target_os = "linux")]
#[test]
fn child_opens_nothing_and_starts_nothing() {
    let done = child(ChildLimits::default()).run(ChildTask::Break(LimitToBreak::Open), b"").unwrap();
    // The limit on processes does not apply to root, whose programs are limited all the same.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    assert_eq!(done.text, if is_root { "started a process" } else { "" });
}

#[test]
fn child_answers_with_text_or_with_the_reason_why_there_is_none() {
    let read = |bytes: &[u8]| child(ChildLimits::default()).run(ChildTask::Read(Extractable::Pdf), bytes);
    let text = read(&locks()).unwrap().text;
    assert!(text.contains("## Page 3\n\nFencing tokens reject a late writer.\n"), "{text}");
    for bytes in [b"".as_slice(), b"%PDF-1.7", b"\xff\x00garbage"] {
        assert!(matches!(read(bytes), Err(ExtractError::Refused(Refusal::Damaged))), "{bytes:?}");
    }
    // A large file is sent completely, and answered.
    let mut padded = locks();
    padded.resize(3_000_000, b' ');
    drop(read(&padded));
    let other = Child { program: Path::new("/nonexistent/dr").into(), limits: ChildLimits::default() };
    assert!(matches!(other.run(ChildTask::Read(Extractable::Pdf), b""), Err(ExtractError::Start(_))));
}

#[test]
fn child_ends_when_its_parent_does() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_dr"))
        .args(["extract-document", "break-time", "536870912", "20"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(&[0; 8]).unwrap();
    stdin.flush().unwrap();
    assert_eq!(process.try_wait().unwrap(), None, "it waits, as it would at work");
    // A parent that is killed has its pipes closed.
    drop(stdin);
    assert!(!process.wait().unwrap().success());
}

#[test]
fn fuzzed_files_are_read_or_refused() {
    let sound = locks();
    let mut state = 7_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    for _ in 0..40 {
        let mut bytes = sound.clone();
        for _ in 0..=next(8) {
            let at = next(bytes.len());
            bytes[at] = u8::try_from(next(256)).unwrap();
        }
        bytes.truncate(bytes.len() - next(3) * next(400));
        let read = child(ChildLimits::default()).run(ChildTask::Read(Extractable::Pdf), &bytes);
        let is_expected = matches!(&read, Ok(_) | Err(ExtractError::Refused(_) | ExtractError::Crashed { .. }));
        assert!(is_expected, "{read:?}");
    }
}
