//! A text as letters and digits alone, with where its words begin and end.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::HIDDEN_LETTERS;
use super::lexicon::Lexicon;
use crate::base::line::is_invisible;

/// Letters that look like others, each before the one it looks like.
const LOOKALIKES: &str = "аaеeоoрpсcуyхxіiјjѕsһhԁdԛqԝwАAВBЕEЅSІIЈJКKМMНHОOРPСCТTУYХXαaεeιiκkνvοoρpτtυuχxΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧX\
    ᴀaʙbᴄcᴅdᴇeꜰfɢgʜhɪiᴊjᴋkʟlᴍmɴnᴏoᴘpʀrꜱsᴛtᴜuᴠvᴡwʏyᴢzıiɡgɑaøoØOłlŁLđdĐD";

static PLAIN: LazyLock<HashMap<char, char>> =
    LazyLock::new(|| LOOKALIKES.chars().zip(LOOKALIKES.chars().skip(1)).step_by(2).collect());

/// Returns `text` without marks on its letters and invisible characters, and each letter in its plainest form.
pub(super) fn normalized(text: &str) -> String {
    if text.is_ascii() {
        return text.chars().filter(|letter| is_kept(*letter)).collect();
    }
    text.chars()
        .filter(|letter| is_kept(*letter))
        .nfkd()
        .filter(|letter| !is_combining_mark(*letter) && !is_invisible(*letter))
        .map(plain)
        .nfkc()
        .collect()
}

fn is_kept(letter: char) -> bool {
    !is_invisible(letter) && (!letter.is_control() || letter.is_whitespace())
}

/// Returns the letter that another one stands for.
fn plain(letter: char) -> char {
    let from = |first: u32| char::from_u32(u32::from(letter) - first + u32::from('a')).unwrap_or(letter);
    match u32::from(letter) {
        0..=0x7F => letter,
        0x1F150..=0x1F169 => from(0x1F150),
        0x1F170..=0x1F189 => from(0x1F170),
        0x1F1E6..=0x1F1FF => from(0x1F1E6),
        _ => PLAIN.get(&letter).copied().unwrap_or(letter),
    }
}

/// The letters and digits of a text, lower-cased, and its words.
#[derive(Clone, Default)]
pub(super) struct Letters {
    /// All of them, without what is between words.
    chars: Vec<char>,
    /// Its words, in their order.
    pub(super) pieces: Vec<Piece>,
    /// Whether these are other letters than were written.
    pub(super) is_disguised: bool,
    /// Where words are put together of others, as in `FooBar`.
    parts: Vec<Range<usize>>,
    /// Where words are parts of something longer, as in `foo@bar.org`.
    codes: Vec<Range<usize>>,
}

/// A word.
#[derive(Clone)]
pub(super) struct Piece {
    /// Where it stands among the letters.
    place: Range<usize>,
    /// Where it stands in the normalised text, in bytes.
    pub(super) range: Range<usize>,
    /// Hash of its stem.
    pub(super) stem: u64,
    /// Whether it says nothing about what a text is about.
    pub(super) is_stop: bool,
    /// Whether it is a common word.
    pub(super) is_common: bool,
    /// Whether no white space is between it and the word before, but something that joins words.
    pub(super) is_glued: bool,
    /// Whether the user said it.
    pub(super) is_own: bool,
    /// Whether it may leave.
    pub(super) is_free: bool,
}

impl Piece {
    /// Returns its letters' number.
    pub(super) fn len(&self) -> usize {
        self.place.len()
    }
}

impl Letters {
    /// Returns the letters of a normalised text.
    pub(super) fn of(clean: &str) -> Self {
        let lexicon = Lexicon::get();
        let mut all = Self::default();
        let mut last_end = 0;
        for word in lexicon.splitter.words(clean) {
            let start = all.chars.len();
            let text = &clean[word.range.clone()];
            all.chars.extend(text.chars().flat_map(char::to_lowercase).filter(|letter| letter.is_alphanumeric()));
            all.add_parts(text, start);
            let between = &clean[last_end..word.range.start];
            last_end = word.range.end;
            let lower: String = all.chars[start..].iter().collect();
            all.pieces.push(Piece {
                place: start..all.chars.len(),
                range: word.range,
                stem: Roll::of_text(&word.stem),
                is_stop: lexicon.splitter.is_stop_word(&lower),
                is_common: lexicon.is_common(&word.stem),
                is_glued: matches!(between, "." | "_" | "@" | ":" | "::" | "://" | ""),
                is_own: false,
                is_free: false,
            });
        }
        all.add_codes(clean);
        all
    }

    /// Notes where capitals and digits begin new words in a word that starts at `start`.
    fn add_parts(&mut self, text: &str, start: usize) {
        let letters: Vec<_> = text.chars().collect();
        if letters.len() != self.chars.len() - start {
            return;
        }
        let is_cut = |at: &usize| {
            let (before, here, after) = (letters[at - 1], letters[*at], letters.get(at + 1));
            let is_capital = here.is_uppercase() && (!before.is_uppercase() || after.is_some_and(|a| a.is_lowercase()));
            is_capital || before.is_numeric() != here.is_numeric()
        };
        let mut cuts: Vec<_> = (1..letters.len()).filter(is_cut).collect();
        if cuts.is_empty() {
            return;
        }
        cuts.insert(0, 0);
        cuts.push(letters.len());
        self.parts.extend(cuts.windows(2).map(|cut| start + cut[0]..start + cut[1]));
    }

    /// Notes what is written without white space, of several words, with digits or signs that join.
    fn add_codes(&mut self, clean: &str) {
        let mut first = 0;
        for at in 1..=self.pieces.len() {
            let is_end = self.pieces.get(at).is_none_or(|piece| {
                clean[self.pieces[at - 1].range.end..piece.range.start].contains(char::is_whitespace)
            });
            if !is_end {
                continue;
            }
            let pieces = &self.pieces[first..at];
            let place = pieces[0].place.start..pieces[pieces.len() - 1].place.end;
            let has_digits = self.chars[place.clone()].iter().any(char::is_ascii_digit);
            let is_joined = pieces[1..].iter().any(|piece| piece.is_glued);
            if pieces.len() > 1 && place.len() > HIDDEN_LETTERS && (has_digits || is_joined) {
                self.codes.push(place);
            }
            first = at;
        }
    }

    /// Returns the letters of a word.
    pub(super) fn word(&self, piece: &Piece) -> &[char] {
        &self.chars[piece.place.clone()]
    }

    /// Returns the words that other words are put together of.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[char]> {
        self.parts.iter().map(|place| &self.chars[place.clone()])
    }

    /// Returns what words are parts of.
    pub(super) fn codes(&self) -> impl Iterator<Item = &[char]> {
        self.codes.iter().map(|place| &self.chars[place.clone()])
    }

    /// Returns the words from each word on, with the place of that word.
    pub(super) fn windows(&self) -> impl Iterator<Item = (usize, &[Piece])> {
        (0..self.pieces.len()).map(|start| (start, &self.pieces[start..]))
    }

    /// Returns the hash of a word.
    pub(super) fn hash(&self, piece: &Piece) -> u64 {
        Roll::of(self.word(piece))
    }

    /// Returns the hash of words in a row.
    pub(super) fn hash_all(&self, pieces: &[Piece]) -> u64 {
        let mut roll = Roll::default();
        for piece in pieces {
            roll.extend(self.word(piece));
        }
        roll.hash()
    }

    /// Returns the text with the last letter first.
    pub(super) fn reversed(&self) -> Self {
        let mut view = self.disguised(|letter| letter);
        view.chars.reverse();
        view.pieces.reverse();
        let length = view.chars.len();
        let mut was_glued = false;
        for piece in &mut view.pieces {
            piece.place = length - piece.place.end..length - piece.place.start;
            std::mem::swap(&mut piece.is_glued, &mut was_glued);
        }
        view
    }

    /// Returns the text with the last word first.
    pub(super) fn words_reversed(&self) -> Self {
        let mut view = self.disguised(|letter| letter);
        view.pieces.reverse();
        view
    }

    /// Returns the text with the letters moved by half the alphabet.
    pub(super) fn rot13(&self) -> Self {
        self.disguised(|letter| match letter {
            'a'..='m' => char::from(letter as u8 + 13),
            'n'..='z' => char::from(letter as u8 - 13),
            _ => letter,
        })
    }

    /// Returns the text with the letters that digits look like, in both readings of `1`; none where there are no words
    /// of letters and digits.
    pub(super) fn unleet(&self) -> Vec<Self> {
        let is_mixed = |piece: &Piece| {
            let word = self.word(piece);
            word.iter().any(char::is_ascii_digit) && !word.iter().all(char::is_ascii_digit)
        };
        if !self.pieces.iter().any(is_mixed) {
            return Vec::new();
        }
        let read = |one: char| {
            self.disguised(|letter| match letter {
                '0' => 'o',
                '1' => one,
                '3' => 'e',
                '4' => 'a',
                '5' => 's',
                '7' => 't',
                '8' => 'b',
                _ => letter,
            })
        };
        vec![read('i'), read('l')]
    }

    /// Returns the text with other letters; whether a word is common is still that of the word as written.
    fn disguised(&self, letter: impl Fn(char) -> char) -> Self {
        let chars = self.chars.iter().map(|old| letter(*old)).collect();
        Self { chars, pieces: self.pieces.clone(), is_disguised: true, parts: Vec::new(), codes: Vec::new() }
    }
}

/// A hash that grows with the letters, the same wherever words are cut. Nothing depends on its being hard to
/// guess: two texts of one hash are one refusal too many.
#[derive(Clone, Copy, Default)]
pub(super) struct Roll {
    hash: u64,
    length: usize,
}

impl Roll {
    /// Returns the hash of a word.
    pub(super) fn of(word: &[char]) -> u64 {
        let mut roll = Self::default();
        roll.extend(word);
        roll.hash()
    }

    fn of_text(text: &str) -> u64 {
        let mut roll = Self::default();
        text.chars().for_each(|letter| roll.push(letter));
        roll.hash()
    }

    /// Returns what remains of a word from each of its letters on.
    pub(super) fn starts(word: &[char]) -> impl Iterator<Item = &[char]> {
        (0..word.len()).map(|start| &word[start..])
    }

    /// Returns the hashes of the beginnings of a stretch, up to `max_letters`.
    pub(super) fn grown(stretch: &[char], max_letters: usize) -> impl Iterator<Item = Self> {
        stretch.iter().take(max_letters).scan(Self::default(), |roll, letter| {
            roll.push(*letter);
            Some(*roll)
        })
    }

    /// Adds letters.
    pub(super) fn extend(&mut self, word: &[char]) {
        for letter in word {
            self.push(*letter);
        }
    }

    fn push(&mut self, letter: char) {
        self.push_hash(u64::from(letter));
    }

    /// Adds a hash.
    pub(super) fn push_hash(&mut self, hash: u64) {
        // Odd and without a pattern, so that each step can be undone and spreads what it is given.
        self.hash = (self.hash.rotate_left(23) ^ hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.length += 1;
    }

    /// Returns the hash of what was added.
    pub(super) fn hash(&self) -> u64 {
        let hash = (self.hash ^ self.hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        hash ^ hash >> 32
    }

    /// Returns how much was added.
    pub(super) fn len(&self) -> usize {
        self.length
    }
}
