//! Leaves out passages that repeat a better one, such as those of another version of a page.

use std::collections::HashSet;

use crate::base::word::WordSplitter;
use crate::kb::index::ChunkRow;

/// Share of a passage's words in a better one, from which it counts as a repetition.
const REPEATED: f32 = 0.9;

/// The parts of a passage used for comparison.
struct Compared<'a> {
    heading: Option<&'a str>,
    words: HashSet<String>,
    /// Stems of the query in its text or path.
    asked: HashSet<String>,
}

impl<'a> Compared<'a> {
    fn of(path: &str, heading: Option<&'a str>, text: &str, stems: &[String], splitter: &WordSplitter) -> Self {
        // Link targets name the version of a page, which is not a difference in content.
        let words = text.split_whitespace().filter(|word| !word.contains('/'));
        let words = words.map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase());
        let own = splitter.stems(&format!("{path} {text}"));
        Self {
            heading,
            words: words.filter(|word| !word.is_empty()).collect(),
            asked: stems.iter().filter(|stem| own.contains(*stem)).cloned().collect(),
        }
    }

    /// Returns whether this passage adds nothing to `better`. A number that only it has may be the answer, and
    /// so may a word of the query.
    #[expect(clippy::cast_precision_loss, reason = "a passage has few words")]
    fn repeats(&self, better: &Self) -> bool {
        let new: Vec<_> = self.words.difference(&better.words).collect();
        let has_number = || new.iter().any(|word| word.contains(|letter: char| letter.is_ascii_digit()));
        self.heading == better.heading
            && !self.words.is_empty()
            && new.len() as f32 <= (1.0 - REPEATED) * self.words.len() as f32
            && self.asked.is_subset(&better.asked)
            && !has_number()
    }
}

/// Returns the passages, sorted best first, that do not repeat a better one. `stems` are those of the query.
pub(super) fn distinct<'a>(rows: &[&'a ChunkRow], stems: &[String], splitter: &WordSplitter) -> Vec<bool> {
    let mut kept: Vec<Compared<'_>> = Vec::new();
    let is_kept = |row: &&'a ChunkRow| {
        let heading = row.heading_path.last().map(String::as_str);
        let compared = Compared::of(&row.path, heading, &row.text, stems, splitter);
        let is_new = !kept.iter().any(|better| compared.repeats(better));
        if is_new {
            kept.push(compared);
        }
        is_new
    };
    rows.iter().map(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Restricts scripts to those signed by a publisher you trust, as on [this page](a/b?view=5.1).";

    fn repeats(path: &str, text: &str, query: &str) -> bool {
        let splitter = WordSplitter::default();
        let stems = splitter.key_stems(query);
        let better = Compared::of("7/Policy.md", Some("AllSigned"), TEXT, &stems, &splitter);
        Compared::of(path, Some("AllSigned"), text, &stems, &splitter).repeats(&better)
    }

    #[test]
    fn another_version_of_a_passage_repeats_it() {
        assert!(repeats("5/Policy.md", &TEXT.replace("view=5.1", "view=7"), "signed scripts"));
        assert!(repeats("5/Policy.md", &TEXT.replace(" you", ""), "signed scripts"));
    }

    #[test]
    fn passage_with_a_number_or_a_word_of_the_query_of_its_own_is_kept() {
        assert!(!repeats("5/Policy.md", &TEXT.replace("a publisher", "3 publishers"), "signed scripts"));
        assert!(!repeats("5/Policy.md", &TEXT.replace("publisher", "vendor"), "scripts of a vendor"));
        assert!(!repeats("desktop/Policy.md", TEXT, "signed scripts on a desktop"));
    }

    #[test]
    fn passage_below_another_heading_is_kept() {
        let splitter = WordSplitter::default();
        let of = |heading| Compared::of("a.md", Some(heading), TEXT, &[], &splitter);
        assert!(!of("RemoteSigned").repeats(&of("AllSigned")));
    }
}
