//! Outgoing text passes a Gate, or becomes Withheld: what internal text says does not leave.
//!
//! ```text
//! free text (question, brief, first plan, public evidence) ─▶ may leave ─┐
//!                                                                        ├─▶ check(outgoing) ─▶ goes, or Withheld
//! internal text (quotes, findings, summaries, headings, paths) ─▶ kept in ┘
//! ```
//!
//! A text is refused when it shares eight words in a row with what is kept in, the key words of such a stretch in their
//! order, or a rare word: one that is neither a common English word nor free. That holds for words that are split, joined,
//! reversed or encoded as well. The gate keeps hashes, no texts.
//!
//! Common are the words the built-in embedder knows as a whole, and what is plainly derived of them; see [`lexicon`].
//!
//! # What it does not catch
//!
//! It compares letters, not meanings. These get out:
//!
//! - facts told in other words, in another language, or in common words and numbers below 1000 (`41.5 million`), as long
//!   as no stretch is repeated;
//! - what is said piece by piece, in one text or several: seven words of an internal text, then others, then seven more;
//! - a rare word of two letters, or of three or four in disguise, and one that falls into two common words with a space
//!   between (`night jar`); a name that is a common English word (`falcon`);
//! - acrostics, every second letter, ciphers other than ROT13 and digits for letters, encryption, compression, Base58,
//!   Base85, Morse, runs of more than 96 letters whose words are cut elsewhere, four encodings within one another;
//! - which of the free words are sent, how many texts, how long and when: a page that lists all numbers below a million
//!   makes them free once it is public evidence.
//!
//! In the other direction: words of languages other than English count as rare, and so does a year.

mod decode;
mod letters;
mod lexicon;

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use self::decode::decoded;
use self::letters::{Letters, Piece, Roll, normalized};
use self::lexicon::Lexicon;

/// Words in a row that tell where they are from.
const RUN_WORDS: usize = 8;

/// Key words in a row that do, if they stretch over [`RUN_WORDS`].
const RUN_KEY_WORDS: usize = 5;

/// Key words that may be put in between, in a row and altogether.
const GAP_KEY_WORDS: usize = 2;

/// Shortest rare word, in letters.
const RARE_LETTERS: usize = 3;

/// Shortest rare word that is looked for within other words and in what may be an encoding, in letters; shorter ones are
/// there by chance.
const HIDDEN_LETTERS: usize = 5;

/// Longest rare word that is put together, in letters.
const MAX_RARE_LETTERS: usize = 48;

/// Longest run that is put together of words cut elsewhere, in letters.
const MAX_RUN_LETTERS: usize = 96;

/// A longer word may be several, in letters.
const LONG_WORD_LETTERS: usize = 16;

/// Encodings within one another that are looked through.
const MAX_DEPTH: usize = 3;

/// Key words a text must have to be worth asking.
const MIN_KEY_WORDS: usize = 2;

/// Hashes of stretches of text.
type Hashes = HashSet<u64, BuildHasherDefault<AsIs>>;

/// Knows what may leave and what may not.
///
/// Takes some 15 to 30 bytes for a word of internal text.
#[derive(Default)]
pub struct Gate {
    free: Known,
    kept: Known,
    /// Words that may leave in any order.
    own_words: Hashes,
    own_stems: Hashes,
}

/// Stretches of texts.
#[derive(Default)]
struct Known {
    /// Whole words and codes; of kept-in text rare ones alone.
    words: Hashes,
    /// [`RUN_WORDS`] in a row.
    runs: Hashes,
    /// Key words in a row that stretch over as much.
    key_runs: Hashes,
    /// Key words next to each other.
    key_pairs: Hashes,
}

/// A text may not leave. What it says is not told, so that this may be shown and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("text {reason}")]
pub struct Withheld {
    /// What it was refused for.
    pub reason: Reason,
}

/// Why a text may not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It repeats internal text.
    SharedRun {
        /// Words in a row that both have.
        words: usize,
    },
    /// It has the key words of internal text in their order.
    Paraphrase {
        /// Key words that both have.
        words: usize,
    },
    /// It has a name, number or code of internal text.
    RareWord,
    /// It has one of these in disguise.
    Encoded {
        /// The outermost disguise.
        encoding: Encoding,
    },
}

/// How words can be disguised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Last letter or last word first.
    Reversed,
    /// Letters moved by half the alphabet.
    Rot13,
    /// Digits for letters.
    Leetspeak,
    /// `%41`, `&#65;`, `\u0041`.
    Escapes,
    /// Either alphabet.
    Base64,
    /// In either case.
    Base32,
    /// Hexadecimal digits.
    Hex,
    /// Numbers of letters: decimal, octal, binary, or places in the alphabet.
    Numbers,
    /// Host names of other scripts.
    Punycode,
}

impl Gate {
    /// Returns a gate that knows nothing: all may leave.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the words of a text leave, in any order: for the question and what was made of it before anything was
    /// retrieved.
    pub fn may_leave(&mut self, text: &str) {
        let letters = self.free.learn(text, |_, _| true);
        self.own_words.extend(letters.pieces.iter().map(|piece| letters.hash(piece)));
        self.own_words.extend(letters.parts().map(Roll::of));
        self.own_stems.extend(letters.pieces.iter().map(|piece| piece.stem));
    }

    /// Lets the words of a text leave, and what it says in its order: for public evidence. With enough of it any
    /// internal sentence could be put together of public words; that one may still not leave.
    pub fn seen_in_public(&mut self, text: &str) {
        self.free.learn(text, |_, _| true);
    }

    /// Keeps a text in: a quote, passage, finding or heading, a path, a summary of any.
    pub fn keep_in(&mut self, text: &str) {
        let lexicon = Lexicon::get();
        self.kept.learn(text, |word, piece| piece.is_none_or(|piece| !piece.is_common) && lexicon.is_rare(word));
    }

    /// Tells whether a text may leave.
    ///
    /// # Errors
    ///
    /// Returns what the text was refused for; it may then be asked with [`Self::reduced`] or not at all.
    pub fn check(&self, outgoing: &str) -> Result<(), Withheld> {
        match self.find(&normalized(outgoing), MAX_DEPTH) {
            Some(reason) => Err(Withheld { reason }),
            None => Ok(()),
        }
    }

    /// Returns the words of `text` that may leave and the stop words between them, in their order; none where fewer than
    /// two key words are left.
    ///
    /// What is returned passes [`Self::check`].
    pub fn reduced(&self, text: &str) -> Option<String> {
        let clean = normalized(text);
        let letters = self.letters(&clean);
        let free = |piece: &Piece| piece.is_free || piece.is_stop;
        let own = |piece: &Piece| piece.is_own || piece.is_stop;
        let candidates: [&dyn Fn(&Piece) -> bool; 3] = [&free, &own, &|piece| piece.is_own];
        candidates.into_iter().find_map(|may_leave| {
            let kept: Vec<_> = letters.pieces.iter().filter(|piece| may_leave(piece)).collect();
            let is_key = |piece: &&Piece| !piece.is_stop;
            let first = kept.iter().position(is_key)?;
            let last = kept.iter().rposition(is_key)?;
            let key: HashSet<_> = kept.iter().filter(|piece| is_key(piece)).map(|piece| piece.stem).collect();
            let words: Vec<_> = kept[first..=last].iter().map(|piece| &clean[piece.range.clone()]).collect();
            let reduced = words.join(" ");
            (key.len() >= MIN_KEY_WORDS && self.check(&reduced).is_ok()).then_some(reduced)
        })
    }

    /// Returns the words of a normalised text, each with whether it may leave.
    fn letters(&self, clean: &str) -> Letters {
        let mut letters = Letters::of(clean);
        for at in 0..letters.pieces.len() {
            let hash = letters.hash(&letters.pieces[at]);
            let piece = &mut letters.pieces[at];
            piece.is_own = self.own_words.contains(&hash);
            piece.is_free = piece.is_own || self.free.words.contains(&hash);
        }
        letters
    }

    fn find(&self, clean: &str, depth: usize) -> Option<Reason> {
        let letters = self.letters(clean);
        let plain = || self.find_run(&letters).or_else(|| self.find_rare(&letters, RARE_LETTERS));
        plain()
            .or_else(|| self.find_paraphrase(&letters))
            .or_else(|| self.find_disguised(&letters))
            .or_else(|| self.find_encoded(clean, &letters, depth))
    }

    /// Looks at the text backwards and with other letters.
    fn find_disguised(&self, letters: &Letters) -> Option<Reason> {
        let backwards = letters.reversed();
        let disguised = |encoding, view: &Letters| {
            let found = self.find_run(view).or_else(|| self.find_rare(view, HIDDEN_LETTERS));
            found.map(|_| Reason::Encoded { encoding })
        };
        disguised(Encoding::Reversed, &backwards)
            .or_else(|| disguised(Encoding::Reversed, &letters.words_reversed()))
            .or_else(|| disguised(Encoding::Reversed, &backwards.words_reversed()))
            .or_else(|| disguised(Encoding::Rot13, &letters.rot13()))
            .or_else(|| disguised(Encoding::Rot13, &backwards.rot13()))
            .or_else(|| letters.unleet().iter().find_map(|view| disguised(Encoding::Leetspeak, view)))
    }

    /// Decodes what can be decoded, and looks again.
    fn find_encoded(&self, clean: &str, letters: &Letters, depth: usize) -> Option<Reason> {
        if depth == 0 {
            return None;
        }
        decoded(clean, letters).into_iter().find_map(|found| {
            let text = normalized(&found.text);
            let reason = if found.is_text {
                self.find(&text, depth - 1)
            } else {
                let letters = self.letters(&text);
                self.find_run(&letters).or_else(|| self.find_rare(&letters, HIDDEN_LETTERS))
            };
            reason.map(|_| Reason::Encoded { encoding: found.encoding })
        })
    }

    /// Finds words in a row that are kept in, wherever the words are cut.
    fn find_run(&self, letters: &Letters) -> Option<Reason> {
        let is_kept = |roll: &Roll| self.kept.runs.contains(&roll.hash()) && !self.free.runs.contains(&roll.hash());
        let is_odd = |piece: &Piece| {
            let is_part = !letters.is_disguised && !piece.is_common;
            is_part || piece.len() == 1 || piece.len() > LONG_WORD_LETTERS
        };
        let mut longest: usize = 0;
        for (start, window) in letters.windows() {
            let (mut roll, mut is_cut, mut is_own) = (Roll::default(), false, true);
            for (count, piece) in (1..).zip(window) {
                roll.extend(letters.word(piece));
                is_cut |= is_odd(piece);
                is_own &= piece.is_own;
                if roll.len() > MAX_RUN_LETTERS && count != RUN_WORDS || count > RUN_WORDS && !is_cut {
                    break;
                }
                if (count == RUN_WORDS || is_cut) && !is_own && is_kept(&roll) {
                    longest = longest.max(self.run_length(letters, start));
                }
            }
        }
        let within = |piece: &Piece| {
            let is_long = piece.len() > LONG_WORD_LETTERS && !piece.is_own;
            is_long
                && Roll::starts(letters.word(piece))
                    .any(|stretch| Roll::grown(stretch, MAX_RUN_LETTERS).any(|roll| is_kept(&roll)))
        };
        if longest == 0 && letters.pieces.iter().any(within) {
            longest = RUN_WORDS;
        }
        (longest > 0).then_some(Reason::SharedRun { words: longest })
    }

    /// Returns how many words from `start` are in runs that are kept in; at least one run.
    fn run_length(&self, letters: &Letters, start: usize) -> usize {
        let runs = letters.pieces[start..].windows(RUN_WORDS);
        let more = runs.skip(1).take_while(|run| self.kept.runs.contains(&letters.hash_all(run))).count();
        RUN_WORDS + more
    }

    /// Finds a rare word of at least `least` letters that is kept in: whole, in pieces, or within another word.
    fn find_rare(&self, letters: &Letters, least: usize) -> Option<Reason> {
        let is_kept = |roll: &Roll| {
            roll.len() >= least && self.kept.words.contains(&roll.hash()) && !self.free.words.contains(&roll.hash())
        };
        // Backwards and the like, common words make rare ones by chance.
        let is_strict = least > RARE_LETTERS;
        let is_odd = |piece: &Piece| !piece.is_common || letters.word(piece).iter().all(char::is_ascii_digit);
        let joined = letters.windows().any(|(_, window)| {
            let mut roll = Roll::default();
            let (mut is_own, mut is_any_odd, mut is_glued, mut is_short) = (true, false, true, true);
            for (count, piece) in (1..).zip(window) {
                roll.extend(letters.word(piece));
                is_own &= piece.is_own;
                is_any_odd |= is_odd(piece);
                is_glued &= count == 1 || piece.is_glued;
                is_short &= piece.len() <= 2;
                let is_by_chance = is_strict && !is_glued && !is_odd(piece) && piece.len() > 2;
                if roll.len() > MAX_RARE_LETTERS || is_by_chance {
                    return false;
                }
                let is_whole = count == 1 && !piece.is_free && !(is_strict && piece.is_common);
                let is_joined = count > 1 && !is_own && (is_any_odd || is_glued || is_short);
                if (is_whole || is_joined) && is_kept(&roll) {
                    return true;
                }
            }
            false
        });
        let hidden = |piece: &Piece| {
            let may_hide = piece.len() > HIDDEN_LETTERS && !piece.is_common && !piece.is_free;
            may_hide
                && Roll::starts(letters.word(piece)).any(|stretch| {
                    Roll::grown(stretch, MAX_RARE_LETTERS).any(|roll| roll.len() >= HIDDEN_LETTERS && is_kept(&roll))
                })
        };
        (joined || letters.pieces.iter().any(hidden)).then_some(Reason::RareWord)
    }

    /// Finds the key words of a stretch that is kept in, with few others in between.
    fn find_paraphrase(&self, letters: &Letters) -> Option<Reason> {
        let keys: Vec<_> = letters.pieces.iter().filter(|piece| !piece.is_stop).map(|piece| piece.stem).collect();
        let found =
            (0..keys.len()).filter_map(|start| self.longest_key_run(&keys, start, &mut vec![keys[start]], 0)).max();
        found.map(|words| Reason::Paraphrase { words })
    }

    /// Returns the length of the longest run of key words that is kept in and begins with `run`, which ends at `last`.
    fn longest_key_run(&self, keys: &[u64], last: usize, run: &mut Vec<u64>, gaps: usize) -> Option<usize> {
        let mut longest = None;
        if run.len() >= RUN_KEY_WORDS {
            let hash = combined(run);
            let is_own = run.iter().all(|stem| self.own_stems.contains(stem));
            let is_kept = self.kept.key_runs.contains(&hash) && !self.free.key_runs.contains(&hash);
            longest = (is_kept && !is_own).then_some(run.len());
        }
        if run.len() == RUN_WORDS {
            return longest;
        }
        for gap in 0..=GAP_KEY_WORDS - gaps {
            let Some(next) = keys.get(last + 1 + gap) else { break };
            if self.kept.key_pairs.contains(&combined(&[run[run.len() - 1], *next])) {
                run.push(*next);
                longest = longest.max(self.longest_key_run(keys, last + 1 + gap, run, gaps + gap));
                run.pop();
            }
        }
        longest
    }
}

impl Known {
    /// Adds what a text has: of its words, and of the codes and parts in them, those that `is_wanted`.
    fn learn(&mut self, text: &str, is_wanted: impl Fn(&[char], Option<&Piece>) -> bool) -> Letters {
        let clean = normalized(text);
        let letters = Letters::of(&clean);
        let whole = letters.pieces.iter().map(|piece| (letters.word(piece), Some(piece)));
        let more = letters.parts().chain(letters.codes()).map(|word| (word, None));
        let wanted = whole.chain(more).filter(|(word, piece)| is_wanted(word, *piece));
        self.words.extend(wanted.map(|(word, _)| Roll::of(word)));
        self.runs.extend(letters.pieces.windows(RUN_WORDS).map(|run| letters.hash_all(run)));
        self.learn_key_words(&letters);
        letters
    }

    fn learn_key_words(&mut self, letters: &Letters) {
        let keys: Vec<_> = letters.pieces.iter().enumerate().filter(|(_, piece)| !piece.is_stop).collect();
        let stems: Vec<_> = keys.iter().map(|(_, piece)| piece.stem).collect();
        self.key_pairs.extend(stems.windows(2).map(combined));
        for start in 0..keys.len() {
            let stretches = |end: &usize| keys[*end].0 + 1 - keys[start].0 >= RUN_WORDS;
            let end = (start + RUN_KEY_WORDS - 1..keys.len()).find(stretches);
            self.key_runs.extend(end.map(|end| combined(&stems[start..=end])));
        }
    }
}

fn combined(hashes: &[u64]) -> u64 {
    let mut roll = Roll::default();
    for hash in hashes {
        roll.push_hash(*hash);
    }
    roll.hash()
}

/// Takes a hash for what it is.
#[derive(Clone, Copy, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Withheld {
    /// Returns what the user can do about it.
    pub fn hint(&self) -> String {
        "name it in the question, or let internal text leave for this run".into()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedRun { words } => write!(f, "shares {words} words in a row with internal text"),
            Self::Paraphrase { words } => write!(f, "has {words} key words of internal text in their order"),
            Self::RareWord => f.write_str("has a name, number or code of internal text"),
            Self::Encoded { encoding } => write!(f, "has words of internal text in disguise ({encoding})"),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reversed => "reversed",
            Self::Rot13 => "ROT13",
            Self::Leetspeak => "leetspeak",
            Self::Escapes => "escapes",
            Self::Base64 => "base64",
            Self::Base32 => "base32",
            Self::Hex => "hex",
            Self::Numbers => "numbers",
            Self::Punycode => "punycode",
        })
    }
}

#[cfg(test)]
mod tests;
