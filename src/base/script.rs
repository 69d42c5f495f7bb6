//! Scripts, by which words are split and stemmed.

use std::sync::LazyLock;

use icu_segmenter::options::WordBreakInvariantOptions;
use icu_segmenter::{WordSegmenter, WordSegmenterBorrowed};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Script {
    Latin,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    Devanagari,
    Tamil,
    /// Korean syllables.
    Hangul,
    /// Chinese characters.
    Han,
    /// Japanese syllables.
    Kana,
    /// Thai, Lao, Burmese and Khmer, which put no spaces between words.
    SoutheastAsian,
    /// Every other script, and digits.
    Other,
}

impl Script {
    pub(crate) fn of(letter: char) -> Self {
        match u32::from(letter) {
            0x41..=0x5A | 0x61..=0x7A | 0xAA | 0xBA | 0xC0..=0x24F | 0x1E00..=0x1EFF | 0xFF21..=0xFF5A => Self::Latin,
            0x370..=0x3FF | 0x1F00..=0x1FFF => Self::Greek,
            0x400..=0x52F => Self::Cyrillic,
            0x590..=0x5FF | 0xFB1D..=0xFB4F => Self::Hebrew,
            0x600..=0x6FF | 0x750..=0x77F | 0x8A0..=0x8FF | 0xFB50..=0xFDFF | 0xFE70..=0xFEFF => Self::Arabic,
            0x900..=0x97F => Self::Devanagari,
            0xB80..=0xBFF => Self::Tamil,
            0xE00..=0xEFF | 0x1000..=0x109F | 0x1780..=0x17FF => Self::SoutheastAsian,
            0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7A3 => Self::Hangul,
            0x3005..=0x3007 | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x3_FFFF => Self::Han,
            0x3040..=0x30FF | 0x31F0..=0x31FF | 0xFF66..=0xFF9F => Self::Kana,
            _ => Self::Other,
        }
    }

    /// Returns the script of the first letter of a word.
    pub(crate) fn of_word(word: &str) -> Self {
        word.chars().map(Self::of).find(|script| *script != Self::Other).unwrap_or(Self::Other)
    }

    /// Returns whether the script puts no spaces between words.
    pub(crate) fn is_unspaced(self) -> bool {
        matches!(self, Self::Han | Self::Kana | Self::SoutheastAsian)
    }

    /// Returns whether each letter is about a syllable or a word.
    pub(crate) fn is_ideographic(self) -> bool {
        matches!(self, Self::Han | Self::Kana)
    }

    /// Returns whether combining marks are letters of the script, such as vowels, and not accents.
    pub(crate) fn has_mark_letters(self) -> bool {
        // The marks of kana distinguish voiced syllables. The meaning of marks in other scripts is unknown here.
        matches!(self, Self::Devanagari | Self::Tamil | Self::SoutheastAsian | Self::Kana | Self::Other)
    }
}

/// Returns the fraction of a text's letters in some scripts, or 1 if it has no letters.
#[expect(clippy::cast_precision_loss, reason = "texts are far shorter than 2^24 letters")]
pub(crate) fn share_of(text: &str, scripts: &[Script]) -> f32 {
    if scripts.contains(&Script::Latin) && text.is_ascii() {
        return 1.0;
    }
    let (mut letters, mut own) = (0_usize, 0_usize);
    for letter in text.chars().filter(|letter| letter.is_alphabetic()) {
        letters += 1;
        own += usize::from(scripts.contains(&Script::of(letter)));
    }
    if letters == 0 { 1.0 } else { own as f32 / letters as f32 }
}

/// Returns the ends of the words of a text without spaces, in bytes, the first of which is 0.
pub(super) fn breaks(text: &str) -> impl Iterator<Item = usize> {
    static SEGMENTER: LazyLock<WordSegmenterBorrowed<'static>> =
        LazyLock::new(|| WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()));
    SEGMENTER.segment_str(text)
}
