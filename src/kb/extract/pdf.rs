//! Reads the lines of text of a PDF in the order in which its pages draw them.
//!
//! Typesetting programs draw column by column and line by line, so drawing order is reading order. A glyph that
//! begins where the previous one ends continues its line; spaces are gaps, since TeX draws none. See
//! `kb/decisions/pdf-parser.md` for the choice of the library.

use std::collections::{HashMap, HashSet};

use hayro_interpret::font::{Glyph, GlyphRun};
use hayro_interpret::hayro_cmap::BfString;
use hayro_interpret::hayro_syntax::object::array::ArrayIter;
use hayro_interpret::hayro_syntax::object::{Array, Dict, MaybeRef, ObjectIdentifier};
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use hayro_interpret::kurbo::{Affine, BezPath, Point, Rect, Vec2};
use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache,
    InterpreterSettings, SoftMask, interpret_page,
};
use unicode_normalization::UnicodeNormalization;

use super::pages::{Line, PdfPage, written};
use super::{Extracted, Refusal};
use crate::base::line::printable;

/// Maximum number of bytes of text: that of a document.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

const MAX_PAGES: usize = 10_000;

/// Replaces a glyph without a letter.
const UNKNOWN: char = '\u{fffd}';

/// Units of a glyph in an em.
const UNITS_PER_EM: f64 = 1_000.0;

/// Widths and distances in ems. Spaces between words are a third of an em, and down to a fifth in justified text,
/// while letters of a word are moved by less than a tenth.
const WORD_GAP: f64 = 0.15;
/// A glyph further off the line begins a new one; superscripts and subscripts are nearer.
const LINE_DISTANCE: f64 = 0.6;
/// A glyph that begins further back begins a new line. Accents go back by less.
const BACKWARDS: f64 = 1.0;
/// A glyph drawn twice at about the same place is bold.
const SAME_PLACE: f64 = 0.1;

/// Reads the text of a PDF.
///
/// # Errors
///
/// Returns the reason why there is none. A crafted file can make it panic, or use all available memory and time.
pub(crate) fn read(bytes: Vec<u8>) -> Result<Extracted, Refusal> {
    let pdf = Pdf::new(bytes).map_err(refusal)?;
    let pages = pdf.pages();
    let cache = InterpreterCache::new();
    let (mut read, mut size, mut has_image) = (Vec::new(), 0, false);
    let numbers = numbers(&pdf);
    for (page, place) in pages.iter().zip(1..).take(MAX_PAGES) {
        let number = page.raw().obj_id().and_then(|id| numbers.get(&id).copied()).unwrap_or(place);
        // Nothing is painted, so the size of the canvas does not matter.
        let bounds = Rect::new(0.0, 0.0, 1.0, 1.0);
        let settings = InterpreterSettings::default();
        let mut context = Context::new(Affine::IDENTITY, bounds, &cache, pdf.xref(), settings);
        let mut reader = PdfPageReader::new(MAX_TEXT_BYTES - size);
        interpret_page(page, &mut context, &mut reader);
        size += reader.size;
        has_image |= reader.has_image;
        if size >= MAX_TEXT_BYTES {
            return Err(Refusal::TooLong { limit: MAX_TEXT_BYTES });
        }
        read.push(PdfPage { number, lines: reader.finish() });
    }
    if read.is_empty() {
        return Err(Refusal::Damaged);
    }
    let letters = || read.iter().flat_map(|page| &page.lines).flat_map(|line| line.text.chars());
    let (unknown, known) = letters().fold((0, 0), |(unknown, known), letter| match letter {
        UNKNOWN => (unknown + 1, known),
        letter if letter.is_alphanumeric() => (unknown, known + 1),
        _ => (unknown, known),
    });
    if known == 0 && unknown == 0 {
        // Without an image, it is empty or damaged.
        return Err(if has_image { Refusal::Scanned { pages: read.len() } } else { Refusal::Empty });
    }
    if unknown > known {
        return Err(Refusal::Unmapped);
    }
    let title = pdf.metadata().title.as_deref().map(decoded).unwrap_or_default();
    Ok(written(read, &title))
}

/// Returns the numbers of pages. The parser yields each page once, but a file may show a page several times, such as
/// an empty one, which is counted each time.
fn numbers(pdf: &Pdf) -> HashMap<ObjectIdentifier, u32> {
    let (mut numbers, mut seen, mut count) = (HashMap::new(), HashSet::new(), 0);
    let xref = pdf.xref();
    let root = || xref.get::<Dict<'_>>(xref.root_id())?.get::<Dict<'_>>(b"Pages".as_slice());
    let mut open: Vec<_> = root().as_ref().and_then(kids).into_iter().collect();
    // No recursion, and each node once: a hostile file may nest its pages a million levels deep, or in cycles.
    while let Some(node) = open.last_mut() {
        let Some(kid) = node.next() else {
            open.pop();
            continue;
        };
        let MaybeRef::Ref(id) = kid else {
            count += 1;
            continue;
        };
        let id = ObjectIdentifier::from(id);
        if !seen.contains(&id)
            && let Some(dict) = xref.get::<Dict<'_>>(id)
            && let Some(below) = kids(&dict)
        {
            open.push(below);
        } else if numbers.contains_key(&id) || !seen.contains(&id) {
            count += 1;
            numbers.entry(id).or_insert(count);
        }
        seen.insert(id);
        if count as usize >= MAX_PAGES {
            break;
        }
    }
    numbers
}

/// Returns the pages, and nodes of pages, below a node.
fn kids<'a>(node: &Dict<'a>) -> Option<ArrayIter<'a>> {
    node.get::<Array<'a>>(b"Kids".as_slice()).map(|kids| kids.raw_iter())
}

fn refusal(error: LoadPdfError) -> Refusal {
    match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected | DecryptionError::UnsupportedAlgorithm) => {
            Refusal::Encrypted
        }
        LoadPdfError::Decryption(DecryptionError::MissingIDEntry | DecryptionError::InvalidEncryption)
        | LoadPdfError::Invalid => Refusal::Damaged,
    }
}

/// Decodes a text of the document itself: UTF-16 or UTF-8 after a byte order mark, otherwise about Latin-1.
fn decoded(bytes: &[u8]) -> String {
    if let Some(bytes) = bytes.strip_prefix(&[0xfe, 0xff]) {
        let units: Vec<_> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

/// Collects the lines of a page as its glyphs are drawn.
struct PdfPageReader {
    lines: Vec<Line>,
    line: Option<Drawn>,
    /// Bytes read so far, and the maximum.
    size: usize,
    most: usize,
    has_image: bool,
}

/// A line being drawn.
struct Drawn {
    text: String,
    start: Point,
    /// Where the last glyph begins and ends.
    last: Point,
    end: Point,
    /// Height of an em, the largest of the line.
    size: f64,
    /// Direction of writing, of length 1.
    direction: Vec2,
}

impl PdfPageReader {
    fn new(most: usize) -> Self {
        Self { lines: Vec::new(), line: None, size: 0, most, has_image: false }
    }

    fn draw(&mut self, letters: &str, transform: Affine, advance: f64) {
        let at = |x: f64, y: f64| transform * Point::new(x, y);
        let origin = at(0.0, 0.0);
        let (em, along) = (at(0.0, UNITS_PER_EM) - origin, at(UNITS_PER_EM, 0.0) - origin);
        let (size, width) = (em.hypot(), along.hypot());
        // A glyph that is infinitely small or far away is invisible to readers.
        if !(size.is_normal() && width.is_normal() && origin.is_finite()) || self.size >= self.most {
            return;
        }
        let direction = along / width;
        let end = at(advance, 0.0);
        let distance = self.line.as_ref().map(|line| line.distance(origin, size, direction));
        match (distance, &mut self.line) {
            (Some(Distance::Drawn), Some(line)) if line.text.ends_with(letters) => return,
            (Some(Distance::Drawn | Distance::Next), Some(line)) => line.text.push_str(letters),
            (Some(Distance::Word), Some(line)) => {
                line.text.push(' ');
                line.text.push_str(letters);
            }
            _ => {
                self.end_line();
                self.line = Some(Drawn { text: letters.to_owned(), start: origin, last: origin, end, size, direction });
            }
        }
        if let Some(line) = &mut self.line {
            (line.last, line.end, line.size) = (origin, end, line.size.max(size));
        }
        self.size += letters.len();
    }

    fn end_line(&mut self) {
        let Some(line) = self.line.take() else { return };
        let text = cleaned(&line.text);
        if !text.is_empty() {
            let Drawn { start, size, direction, .. } = line;
            self.lines.push(Line { text, x: start.x, y: start.y, size, is_upright: direction.x > 0.9 });
        }
    }

    fn finish(mut self) -> Vec<Line> {
        self.end_line();
        self.lines
    }
}

/// The position of a glyph relative to the line before it.
enum Distance {
    /// At the place of its last glyph.
    Drawn,
    /// Right after it.
    Next,
    /// After a space.
    Word,
    /// Elsewhere.
    Line,
}

impl Drawn {
    fn distance(&self, origin: Point, size: f64, direction: Vec2) -> Distance {
        let em = size.max(self.size);
        let gap = origin - self.end;
        let (along, across) = (gap.dot(self.direction), gap.cross(self.direction).abs());
        if direction.dot(self.direction) < 0.9 {
            Distance::Line
        } else if (origin - self.last).hypot() < SAME_PLACE * size {
            Distance::Drawn
        } else if across > LINE_DISTANCE * em || along < -BACKWARDS * em {
            Distance::Line
        } else if along > WORD_GAP * size.min(self.size) {
            Distance::Word
        } else {
            Distance::Next
        }
    }
}

/// Returns a line in searchable form: ligatures as letters, one kind of space, no invisible characters.
fn cleaned(text: &str) -> String {
    let mut letters = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{fb00}' => letters.push_str("ff"),
            '\u{fb01}' => letters.push_str("fi"),
            '\u{fb02}' => letters.push_str("fl"),
            '\u{fb03}' => letters.push_str("ffi"),
            '\u{fb04}' => letters.push_str("ffl"),
            '\u{fb05}' | '\u{fb06}' => letters.push_str("st"),
            // Private-use characters have a meaning only in their own font.
            '\u{e000}'..='\u{f8ff}' => letters.push(UNKNOWN),
            letter if letter.is_whitespace() || letter.is_control() => letters.push(' '),
            letter => letters.push(letter),
        }
    }
    // A soft hyphen is a hyphen at the end of a line; elsewhere it is invisible.
    let letters = letters.trim_end().strip_suffix('\u{ad}').map_or_else(|| letters.clone(), |line| format!("{line}-"));
    let words = printable(&letters.replace('\u{ad}', ""));
    words.split_whitespace().collect::<Vec<_>>().join(" ").nfc().collect()
}

impl Device<'_> for PdfPageReader {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}

    fn push_clip_path(&mut self, _: &ClipPath) {}

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        for glyph in run.glyphs() {
            let advance = match &**glyph {
                Glyph::Outline(glyph) => glyph.advance_width(),
                Glyph::Type3(glyph) => glyph.advance_width(),
            };
            // About the width of a letter, for fonts that do not state it.
            let advance = advance.map_or(UNITS_PER_EM / 2.0, f64::from);
            let transform = props.transform * glyph.transform();
            match glyph.as_unicode() {
                Some(BfString::Char(letter)) => self.draw(letter.encode_utf8(&mut [0; 4]), transform, advance),
                Some(BfString::String(letters)) => self.draw(&letters, transform, advance),
                None => self.draw(UNKNOWN.encode_utf8(&mut [0; 4]), transform, advance),
            }
        }
    }

    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {
        self.has_image = true;
    }

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}
