use proptest::prelude::*;

use super::*;

/// Two sentences that must not leave.
const SECRETS: [&str; 2] =
    ["The token is CANARY-7f3a9c.", "the merger with Globex closes on 12 March 2027 at 41.5 million"];

const QUESTION: &str = "How do writers lock the index, and what do other tools do about crash safety?";

/// Returns a gate that keeps the secrets in and lets the words of a question leave.
fn gate() -> Gate {
    let mut gate = Gate::new();
    gate.may_leave(QUESTION);
    for secret in SECRETS {
        gate.keep_in(secret);
    }
    gate
}

fn reason(gate: &Gate, text: &str) -> Option<Reason> {
    gate.check(text).err().map(|withheld| withheld.reason)
}

/// Returns bytes in digits of `width` bits, as an encoder would write them.
fn packed(text: &str, width: usize, alphabet: &str) -> String {
    let bits: Vec<_> = text.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |bits: &[u8]| (0..width).fold(0, |digit, at| digit << 1 | bits.get(at).copied().unwrap_or(0));
    bits.chunks(width).map(|bits| char::from(alphabet.as_bytes()[usize::from(digit(bits))])).collect()
}

fn base64(text: &str) -> String {
    let digits = packed(text, 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    let padding = "=".repeat((4 - digits.len() % 4) % 4);
    digits + &padding
}

fn base64url(text: &str) -> String {
    base64(text).replace('+', "-").replace('/', "_").replace('=', "")
}

fn base32(text: &str) -> String {
    packed(text, 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
}

fn hex(text: &str) -> String {
    packed(text, 4, "0123456789abcdef")
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

fn rot13(text: &str) -> String {
    let turned = |letter: char, first: u8| char::from((letter as u8 - first + 13) % 26 + first);
    let letter = |letter: char| match letter {
        'a'..='z' => turned(letter, b'a'),
        'A'..='Z' => turned(letter, b'A'),
        _ => letter,
    };
    text.chars().map(letter).collect()
}

fn spaced(text: &str, between: &str) -> String {
    text.chars().map(String::from).collect::<Vec<_>>().join(between)
}

fn mapped(text: &str, map: impl Fn(char) -> String) -> String {
    text.chars().map(map).collect()
}

/// Moves the letters and digits of ASCII to other blocks of Unicode.
fn moved(text: &str, capital: u32, small: u32) -> String {
    let to = |first: u32, letter: char, from: char| char::from_u32(first + u32::from(letter) - u32::from(from));
    let letter = |letter: char| match letter {
        'A'..='Z' => to(capital, letter, 'A').unwrap(),
        'a'..='z' => to(small, letter, 'a').unwrap(),
        _ => letter,
    };
    text.chars().map(letter).collect()
}

type Way = (&'static str, fn(&str) -> String);

/// Ways to write something that others can read back.
const WAYS: [Way; 53] = [
    ("as it is", str::to_owned),
    ("within a sentence", |text| format!("please look up what {text} means for us")),
    ("upper case", str::to_uppercase),
    ("lower case", str::to_lowercase),
    ("alternating case", |text| {
        text.char_indices()
            .map(|(at, l)| if at % 2 == 0 { l.to_ascii_uppercase() } else { l.to_ascii_lowercase() })
            .collect()
    }),
    ("other separators", |text| text.replace([' ', '-', '.'], "_")),
    ("slashes", |text| text.replace([' ', '-', '.'], "/")),
    ("look-alike separators", |text| {
        text.replace(' ', "\u{a0}\u{2007}").replace('-', "\u{2011}").replace('.', "\u{2024}")
    }),
    ("no separators", |text| text.replace([' ', '-', '.'], "")),
    ("spaces between letters", |text| spaced(text, " ")),
    ("dots between letters", |text| spaced(text, ".")),
    ("hyphens between letters", |text| spaced(text, "-")),
    ("two letters at a time", |text| {
        let letters: Vec<_> = text.chars().filter(|letter| letter.is_alphanumeric()).collect();
        letters.chunks(2).map(|pair| pair.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
    }),
    ("invisible characters", |text| spaced(text, "\u{200b}")),
    ("soft hyphens", |text| spaced(text, "\u{ad}")),
    ("control characters", |text| spaced(text, "\u{1}")),
    ("within other letters", |text| format!("zzq{}qzz", text.replace([' ', '-', '.'], ""))),
    ("full width", |text| moved(text, 0xFF21, 0xFF41)),
    ("mathematical bold", |text| moved(text, 0x1D400, 0x1D41A)),
    ("circled", |text| moved(text, 0x24B6, 0x24D0)),
    ("negative squared", |text| moved(&text.to_uppercase(), 0x1F170, 0x1F170)),
    ("Cyrillic look-alikes", |text| {
        text.replace('a', "а").replace('A', "А").replace('e', "е").replace('o', "о").replace('C', "С")
    }),
    ("marks on letters", |text| spaced(text, "\u{301}")),
    ("reversed", reversed),
    ("words reversed", |text| text.split(' ').rev().collect::<Vec<_>>().join(" ")),
    ("each word reversed", |text| text.split(' ').map(reversed).collect::<Vec<_>>().join(" ")),
    ("ROT13", rot13),
    ("ROT13, reversed", |text| reversed(&rot13(text))),
    ("leetspeak", |text| text.replace('o', "0").replace('e', "3").replace('A', "4").replace('l', "1")),
    ("percent-encoded", percent),
    ("percent-encoded three times", |text| percent(&percent(text)).replace('%', "%25")),
    ("%u escapes", |text| mapped(text, |letter| format!("%u{:04x}", u32::from(letter)))),
    ("\\u escapes", |text| mapped(text, |letter| format!("\\u{:04x}", u32::from(letter)))),
    ("\\x escapes", |text| mapped(text, |letter| format!("\\x{:02x}", u32::from(letter)))),
    ("character references", |text| mapped(text, |letter| format!("&#{};", u32::from(letter)))),
    ("hexadecimal references", |text| mapped(text, |letter| format!("&#x{:x};", u32::from(letter)))),
    ("base64", base64),
    ("base64url", base64url),
    ("base64, reversed", |text| reversed(&base64(text))),
    ("base64, in pieces", |text| {
        base64(text).as_bytes().chunks(5).map(|piece| String::from_utf8_lossy(piece)).collect::<Vec<_>>().join(" ")
    }),
    ("base64, within letters", |text| format!("id=q{}", base64url(text))),
    ("base64 three times", |text| base64(&base64(&base64(text)))),
    ("base64 of UTF-16", |text| base64(&spaced(text, "\0"))),
    ("base64 of ROT13", |text| base64(&rot13(text))),
    ("base32", base32),
    ("hexadecimal", hex),
    ("hexadecimal, capitals and colons", |text| {
        text.bytes().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }),
    ("hexadecimal of base64", |text| hex(&base64(text))),
    ("decimal numbers", |text| text.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(" ")),
    ("binary numbers", |text| text.bytes().map(|byte| format!("{byte:08b}")).collect::<Vec<_>>().join(" ")),
    ("path of a URL", |text| format!("https://example.com/docs/{}/index.html", percent(text))),
    ("query of a URL", |text| format!("https://example.com/s?lang=en&q={}&page=2", text.replace(' ', "+"))),
    ("encoded query of a URL", |text| format!("https://example.com/s?lang=en&id={}&page=2", base64url(text))),
];

#[test]
fn no_way_to_write_a_secret_gets_it_out() {
    let gate = gate();
    let mut out = Vec::new();
    for secret in ["CANARY-7f3a9c", SECRETS[1]] {
        for (name, way) in &WAYS {
            let alone = way(secret);
            let within = format!("how do other tools lock the index, {alone} and what is crash safety?");
            out.extend([alone, within].into_iter().filter(|text| gate.check(text).is_ok()).map(|text| (*name, text)));
        }
    }
    assert!(out.is_empty(), "{out:#?}");
}

#[test]
fn rare_word_is_refused_in_each_encoding_and_the_reason_says_which() {
    let gate = gate();
    for (text, encoding) in [
        (reversed("Globex"), Encoding::Reversed),
        (rot13("Globex"), Encoding::Rot13),
        ("Gl0b3x".into(), Encoding::Leetspeak),
        (percent("Globex"), Encoding::Escapes),
        (base64("Globex"), Encoding::Base64),
        (base32("Globex"), Encoding::Base32),
        (hex("Globex"), Encoding::Hex),
        ("7 12 15 2 5 24".into(), Encoding::Numbers),
        ("107 154 157 142 145 170".into(), Encoding::Numbers),
        ("https://xn--globx-esa.example/".into(), Encoding::Punycode),
    ] {
        assert_eq!(reason(&gate, &format!("what is {text}")), Some(Reason::Encoded { encoding }), "{text}");
    }
}

#[test]
fn rare_word_is_found_within_codes_paths_and_other_words() {
    let mut gate = gate();
    gate.keep_in("see notes/falconry/GlobexMerger.md, user_id, jane.doe@mail.example and 10.20.30.40");
    for text in [
        "myGlobexNotes",
        "globexes",
        "globex.example.com",
        "falconry",
        "https://example.com/search/glo-bex",
        "mail to jane.doe@mail.example",
        "10 20 30 40",
        "who is 7f3a 9c",
        "userId",
        "id7f3a9cid",
    ] {
        assert!(gate.check(text).is_err(), "{text}");
    }
    for text in ["merger notes", "the user and the id", "jane doe", "7 days in a row", "open 10 20 times"] {
        assert_eq!(reason(&gate, text), None, "{text}");
    }
}

#[test]
fn words_of_the_user_pass_though_the_notes_have_them() {
    let mut gate = gate();
    let question = "Does the merger with Globex (CANARY-7f3a9c) close on 12 March 2027 at 41.5 million?";
    gate.keep_in(question);
    assert!(gate.check(question).is_err());
    gate.may_leave(question);
    assert_eq!(reason(&gate, question), None);
    assert_eq!(reason(&gate, "does the merger with globex canary-7f3a9c close on 12 march 2027 at 41.5 million"), None);
    assert_eq!(reason(&gate, "Globex merger million 41.5 2027"), None);
}

#[test]
fn public_words_do_not_make_an_internal_sentence_public() {
    let mut gate = Gate::new();
    gate.keep_in("we will drop support for the old writer lock next quarter");
    gate.seen_in_public("The old will we next. Drop, support! for writer; lock quarter");
    gate.seen_in_public("The merger with Globex was announced today, and it closes in the spring of this year");
    assert_eq!(reason(&gate, "We will drop support for the old writer lock"), Some(Reason::SharedRun { words: 9 }));
    gate.keep_in("Globex: the merger with Globex was announced today, and it closes in the spring, they say");
    assert_eq!(reason(&gate, "the merger with Globex was announced today, and it closes in the spring"), None);
}

#[test]
fn seven_shared_words_pass_and_eight_do_not() {
    let mut gate = Gate::new();
    gate.keep_in("green apples grow slowly under warm summer rain beside quiet rivers");
    assert_eq!(reason(&gate, "green apples grow slowly under warm summer"), None);
    assert_eq!(reason(&gate, "green apples grow slowly under warm summer rain"), Some(Reason::SharedRun { words: 8 }));
    assert_eq!(
        reason(&gate, "do Green, apples\tgrow -- slowly under_warm summer rain/beside trees"),
        Some(Reason::SharedRun { words: 9 })
    );
}

#[test]
fn key_words_in_their_order_are_refused_and_in_another_are_not() {
    let mut gate = Gate::new();
    gate.keep_in("The board will sell the northern factory to its oldest rival before the summer holidays begin");
    let paraphrase = "boards selling a northern wooden factory to the oldest rivals before summer holidays";
    assert!(matches!(reason(&gate, paraphrase), Some(Reason::Paraphrase { .. })), "{:?}", reason(&gate, paraphrase));
    assert_eq!(reason(&gate, "which rival of the factory in the north has the oldest board before summer"), None);
}

#[test]
fn reduced_text_has_the_words_that_may_leave() {
    let gate = gate();
    let text = "How do writers of Globex lock the index in CANARY-7f3a9c, and about the merger?";
    assert_eq!(gate.reduced(text).as_deref(), Some("writers of lock the index"));
    assert_eq!(gate.reduced("the index of Globex"), None);
    assert_eq!(gate.reduced(""), None);
}

#[test]
fn withheld_says_why_and_not_what() {
    let withheld = gate().check("what does globex do").unwrap_err();
    assert_eq!(withheld.to_string(), "text has a name, number or code of internal text");
    let withheld = gate().check(&base64("CANARY-7f3a9c")).unwrap_err();
    assert_eq!(withheld.to_string(), "text has words of internal text in disguise (base64)");
}

#[test]
fn hostile_text_is_read_to_its_end() {
    let gate = gate();
    for text in
        ["%", "%4", "%é0", "&", "&#;", "&#x;", "\\u{", "\\u{110000}", "\\xé", "xn--", "xn--\u{e9}", "0x", "&;", "%u00é"]
    {
        for repeated in [text.to_owned(), text.repeat(50), format!("a{text}b"), format!("é{text}é")] {
            let _ = gate.check(&repeated);
            let _ = gate.reduced(&repeated);
        }
    }
}

/// Letters that no English word is made of: what is put together of them is rare, and in no other word.
fn words(letters: &'static str, count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(letters, count)
}

proptest! {
    #[test]
    fn text_of_free_words_passes(
        free in words("[a-m]{2,9}|[0-9]{2,6}|[a-m0-9]{3,9}|[A-M][a-m]{3,7}", 1..30),
        kept in words("[a-z]{2,9}|[0-9]{2,6}|[a-z0-9]{3,9}", 0..60),
        picks in proptest::collection::vec((0..1000_usize, prop_oneof![" ", "-", ", ", "/", "[.]", "_", "\n"]), 0..60),
    ) {
        let mut gate = Gate::new();
        gate.keep_in(&kept.join(" "));
        gate.keep_in(&free.join(" "));
        gate.keep_in(&free.iter().rev().cloned().collect::<Vec<_>>().join("-"));
        gate.may_leave(&free.join(" "));
        let text: String = picks.iter().map(|(pick, between)| format!("{}{between}", free[pick % free.len()])).collect();
        prop_assert_eq!(reason(&gate, &text), None, "{}", text);
    }

    #[test]
    fn eight_kept_in_words_are_refused_however_they_are_written(
        kept in words("[a-z]{1,9}", 8..30),
        free in words("[A-Z]{3,9}", 0..10),
        around in words("[a-z]{1,9}", 0..6),
        start in 0..1000_usize,
        is_capital in proptest::collection::vec(any::<bool>(), 400),
        between in proptest::collection::vec("[ .,;:!?()\"'\\n\\t_/—-]{1,3}", 40),
    ) {
        let mut gate = Gate::new();
        let own: Vec<_> = free.iter().filter(|word| !kept.contains(&word.to_lowercase())).cloned().collect();
        gate.may_leave(&own.join(" "));
        gate.keep_in(&kept.join(" "));
        let start = start % (kept.len() - 7);
        let run = kept[start..start + 8].iter().zip(&between).map(|(word, between)| format!("{word}{between}"));
        let cased = run.collect::<String>().chars().zip(is_capital).map(|(letter, up)| if up { letter.to_ascii_uppercase() } else { letter }).collect::<String>();
        let text = format!("{} {cased} {}", around.join(" "), own.join(" "));
        prop_assert!(gate.check(&text).is_err(), "{}", text);
    }

    #[test]
    fn reduced_text_passes(
        own in "([a-f]{1,3}[ ,.-]){0,20}",
        public in "([a-f]{1,3}[ ,.-]){0,60}",
        kept in "([a-f]{1,3}[ ,.-]){0,60}",
        text in "([a-f]{1,3}[ ,.-]|the |CANARY-7f3a9c ){0,40}",
    ) {
        let mut gate = gate();
        gate.may_leave(&own);
        gate.seen_in_public(&public);
        gate.keep_in(&kept);
        if let Some(reduced) = gate.reduced(&text) {
            prop_assert_eq!(reason(&gate, &reduced), None, "{}", reduced);
        }
    }

    #[test]
    fn what_is_said_of_withheld_text_has_none_of_its_words(kept in words("[b-y]{4,9}", 8..20)) {
        let mut gate = Gate::new();
        gate.keep_in(&kept.join(" "));
        let withheld = gate.check(&kept.join(" ")).unwrap_err();
        let said = format!("{withheld} {withheld:?} {}", withheld.hint()).to_lowercase();
        let said: Vec<_> = said.split(|letter: char| !letter.is_alphanumeric()).collect();
        let lexicon = Lexicon::get();
        let is_told = |word: &&String| {
            lexicon.is_rare(&word.chars().collect::<Vec<_>>()) && said.contains(&word.as_str())
        };
        prop_assert_eq!(kept.iter().find(is_told), None);
    }

    #[test]
    fn any_text_is_checked(text in "\\PC{0,200}|[%&#;xu\\\\{}0-9a-f]{0,80}|[A-Za-z0-9+/=]{0,120}") {
        let gate = gate();
        let _ = gate.check(&text);
        let _ = gate.reduced(&text);
    }
}
