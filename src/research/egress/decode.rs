//! What a text says once its encodings are undone.

use super::Encoding;
use super::letters::Letters;

/// Shortest encoded word that is looked into, in characters.
const MIN_ENCODED: usize = 8;

/// Numbers in a row that may be letters.
const MIN_NUMBERS: usize = 4;

/// Longest character reference or escape, in characters.
const MAX_ESCAPE: usize = 12;

/// What the name of a letter with a mark ends with, after the letter.
const MARKS: [&str; 9] = ["acute", "grave", "circ", "uml", "tilde", "cedil", "ring", "caron", "slash"];

/// What an encoding hid.
pub(super) struct Decoded {
    /// Its text; what is no text is replaced.
    pub(super) text: String,
    /// Whether all of it is text: then it is what somebody encoded.
    pub(super) is_text: bool,
    /// How it was encoded.
    pub(super) encoding: Encoding,
}

impl Decoded {
    fn of(bytes: &[u8], encoding: Encoding) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let is_strange = |letter: &char| *letter == char::REPLACEMENT_CHARACTER || letter.is_control();
        let strange = text.chars().filter(|letter| *letter != '\0').filter(is_strange).count();
        Self { is_text: strange * 10 <= text.chars().count(), text, encoding }
    }
}

/// Returns what is encoded in a normalised text, whose words are `letters`.
pub(super) fn decoded(clean: &str, letters: &Letters) -> Vec<Decoded> {
    let mut all = Vec::new();
    all.extend(unescaped(clean).map(|text| Decoded { text, is_text: true, encoding: Encoding::Escapes }));
    let hosts = clean.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
    all.extend(hosts.filter_map(punycode));
    all.extend(hex(clean));
    all.extend(numbers(clean));
    all.extend(words_in_base(clean));
    all.extend(spread_base64(clean, letters));
    all
}

/// Undoes percent-encoding, character references and the escapes of programming languages, once.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some(first) = rest.chars().next() {
        if let Some((decoded, length)) = percent(rest).or_else(|| reference(rest)).or_else(|| escape(rest)) {
            bytes.extend(decoded);
            rest = &rest[length..];
            is_changed = true;
        } else {
            bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
    is_changed.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads `%41` at the start of a text; returns the byte and the length.
fn percent(text: &str) -> Option<(Vec<u8>, usize)> {
    let digits = text.strip_prefix('%')?.get(..2)?;
    Some((vec![u8::from_str_radix(digits, 16).ok()?], 3))
}

/// Reads `&#65;`, `&#x41;` or `&eacute;` at the start of a text.
fn reference(text: &str) -> Option<(Vec<u8>, usize)> {
    let body = text.strip_prefix('&')?;
    let name: String = body.chars().take(MAX_ESCAPE).take_while(|l| l.is_ascii_alphanumeric() || *l == '#').collect();
    let end = 1 + name.len() + usize::from(body[name.len()..].starts_with(';'));
    if let Some(number) = name.strip_prefix('#') {
        let hex = number.strip_prefix(['x', 'X']);
        let code = hex.map_or_else(|| number.parse(), |digits| u32::from_str_radix(digits, 16)).ok()?;
        return Some((utf8(code)?, end));
    }
    // Of a letter with a mark the letter counts; all else is between words.
    let is_marked = MARKS.iter().any(|mark| name.strip_suffix(mark).is_some_and(|letter| letter.len() == 1));
    let letter = if is_marked { name.as_bytes()[0] } else { b' ' };
    (!name.is_empty() && body[name.len()..].starts_with(';')).then(|| (vec![letter], end))
}

/// Reads `\u0041`, `\u{41}`, `\U00000041`, `\x41` or `%u0041` at the start of a text.
fn escape(text: &str) -> Option<(Vec<u8>, usize)> {
    let body = text.strip_prefix(['\\', '%'])?;
    let digits = body.strip_prefix(['u', 'U', 'x'])?;
    if let Some((inner, _)) = digits.strip_prefix('{').and_then(|digits| digits.split_once('}')) {
        return Some((utf8(u32::from_str_radix(inner, 16).ok()?)?, inner.len() + 4));
    }
    let length = match body.as_bytes()[0] {
        b'u' => 4,
        b'U' => 8,
        _ => 2,
    };
    Some((utf8(u32::from_str_radix(digits.get(..length)?, 16).ok()?)?, length + 2))
}

fn utf8(code: u32) -> Option<Vec<u8>> {
    Some(char::from_u32(code)?.to_string().into_bytes())
}

fn punycode(label: &str) -> Option<Decoded> {
    let start = label.get(..4).filter(|start| start.eq_ignore_ascii_case("xn--"))?;
    let text = idna::punycode::decode_to_string(&label[start.len()..].to_ascii_lowercase())?;
    Some(Decoded { text, is_text: true, encoding: Encoding::Punycode })
}

/// Returns what hexadecimal digits say: in words of nothing else that follow each other, and within words.
fn hex(text: &str) -> Vec<Decoded> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut joined = vec![String::new()];
    for word in words {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix('x')).unwrap_or(word);
        let runs = digits.split(|letter: char| !letter.is_ascii_hexdigit());
        if digits.len() > 1 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            joined[0].push_str(digits);
        } else {
            joined.extend(runs.filter(|run| run.len() >= MIN_ENCODED).map(str::to_owned));
            let before = std::mem::take(&mut joined[0]);
            joined.push(before);
        }
    }
    let long = joined.iter().filter(|digits| digits.len() >= MIN_ENCODED);
    let read = |digits: &str| Decoded::of(&unpacked(digits.bytes().filter_map(hex_digit), 4), Encoding::Hex);
    long.flat_map(|digits| [read(digits), read(&digits[1..])]).filter(|found| found.is_text).collect()
}

/// Returns what numbers in a row say as letters.
fn numbers(text: &str) -> Vec<Decoded> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut runs: Vec<Vec<&str>> = vec![Vec::new()];
    for word in words {
        if word.bytes().all(|digit| digit.is_ascii_digit()) {
            runs.last_mut().into_iter().for_each(|run| run.push(word));
        } else if runs.last().is_some_and(|run| !run.is_empty()) {
            runs.push(Vec::new());
        }
    }
    let is_binary = |word: &str| word.bytes().all(|digit| matches!(digit, b'0' | b'1'));
    let mut all = Vec::new();
    for run in runs {
        let bits: String = run.iter().filter(|word| is_binary(word) && word.len() > 3).copied().collect();
        if bits.len() >= MIN_ENCODED * MIN_NUMBERS {
            all.push(unpacked(bits.bytes().map(|bit| bit - b'0'), 1));
        }
        if run.len() >= MIN_NUMBERS {
            let read =
                |base: u32| run.iter().map(|word| u8::from_str_radix(word, base).ok()).collect::<Option<Vec<_>>>();
            let places =
                |bytes: Vec<u8>| bytes.into_iter().map(|n| if matches!(n, 1..=26) { b'`' + n } else { b' ' }).collect();
            all.extend([read(10), read(8), read(2), read(10).map(places)].into_iter().flatten());
        }
    }
    all.iter().map(|bytes| Decoded::of(bytes, Encoding::Numbers)).filter(|found| found.is_text).collect()
}

/// Returns what single words say in base64 and base32, also backwards and in ROT13.
fn words_in_base(text: &str) -> Vec<Decoded> {
    let alphabets: [fn(char) -> bool; 3] =
        [|l| l.is_ascii_alphanumeric(), |l| base64_digit(l).is_some() && l != '/', |l| base64_digit(l).is_some()];
    let mut words: Vec<&str> = Vec::new();
    for is_digit in alphabets {
        let runs = text.split(|letter: char| !is_digit(letter));
        words.extend(runs.filter(|run| run.len() >= MIN_ENCODED));
    }
    words.sort_unstable();
    words.dedup();
    let mut all = Vec::new();
    for word in words {
        let base64 = |letters: &mut dyn Iterator<Item = char>| unpacked(letters.filter_map(base64_digit), 6);
        all.push(Decoded::of(&base64(&mut word.chars()), Encoding::Base64));
        all.push(Decoded::of(&base64(&mut word.chars().rev()), Encoding::Base64));
        all.push(Decoded::of(&base64(&mut word.chars().map(rot13)), Encoding::Base64));
        if word.chars().all(|letter| base32_digit(letter).is_some()) {
            all.push(Decoded::of(&unpacked(word.chars().filter_map(base32_digit), 5), Encoding::Base32));
        }
    }
    all.retain(|found| found.is_text);
    all
}

/// Returns what the words that are not common say in base64 if they are one, wherever it begins.
fn spread_base64(clean: &str, letters: &Letters) -> Vec<Decoded> {
    let (mut plain, mut signed) = (String::new(), String::new());
    let mut last_end = 0;
    for piece in letters.pieces.iter().filter(|piece| !piece.is_common && !piece.is_free) {
        let word = &clean[piece.range.clone()];
        let between = clean[last_end..piece.range.start].chars().rev();
        let signs: Vec<_> = between.take_while(|sign| matches!(sign, '+' | '/' | '-' | '_')).collect();
        signed.extend(signs.into_iter().rev());
        plain.push_str(word);
        signed.push_str(word);
        last_end = piece.range.end;
    }
    let mut all = Vec::new();
    for stream in [&plain, &signed].into_iter().filter(|stream| stream.len() >= MIN_ENCODED) {
        for start in 0..4 {
            let digits = stream.chars().filter_map(base64_digit).skip(start);
            all.push(Decoded { is_text: false, ..Decoded::of(&unpacked(digits, 6), Encoding::Base64) });
        }
        if plain == signed {
            break;
        }
    }
    all
}

/// Returns the bytes that digits of `width` bits make; what is left over at the end is padding.
fn unpacked(digits: impl Iterator<Item = u8>, width: u32) -> Vec<u8> {
    let (mut bits, mut held) = (0_u32, 0);
    let mut bytes = Vec::new();
    for digit in digits {
        bits = bits << width | u32::from(digit);
        held += width;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xFF) as u8);
        }
    }
    bytes
}

fn base64_digit(letter: char) -> Option<u8> {
    match letter {
        'A'..='Z' => Some(letter as u8 - b'A'),
        'a'..='z' => Some(letter as u8 - b'a' + 26),
        '0'..='9' => Some(letter as u8 - b'0' + 52),
        '+' | '-' => Some(62),
        '/' | '_' => Some(63),
        _ => None,
    }
}

fn base32_digit(letter: char) -> Option<u8> {
    match letter.to_ascii_uppercase() {
        upper @ 'A'..='Z' => Some(upper as u8 - b'A'),
        digit @ '2'..='7' => Some(digit as u8 - b'2' + 26),
        _ => None,
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn rot13(letter: char) -> char {
    match letter {
        'a'..='m' | 'A'..='M' => char::from(letter as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(letter as u8 - 13),
        _ => letter,
    }
}
