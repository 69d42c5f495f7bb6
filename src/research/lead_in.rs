//! Finds the lead-ins of lists: the sentences before them that end with a colon, and the items that have a list of
//! their own. Without its lead-in an item may say the opposite of what it means: "On-demand mode is a poor choice if:".

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::sentence::{every_sentence, is_end};

/// Longest lead-in, in bytes. A longer sentence is no name for what follows it.
const MAX_BYTES: usize = 400;

/// Number of words shown of an item with a list of its own, if it does not end with a colon.
const PARENT_WORDS: usize = 12;

/// Number of lists around a position whose lead-ins are returned, the innermost.
const MAX_LISTS: usize = 2;

/// Returns the lead-ins of the lists around a position in a Markdown document, outermost first.
pub(super) fn lead_ins(document: &str, at: usize) -> Vec<String> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut lead_ins = Vec::new();
    // Start of the text that a list would follow directly.
    let mut before = None;
    let mut is_nested = false;
    for (event, range) in Parser::new_ext(document, options).into_offset_iter().take_while(|(_, own)| own.start <= at) {
        match event {
            Event::Start(Tag::List(_)) => {
                let text = before.take().map(|from| &document[from..range.start]);
                if range.contains(&at) {
                    let of_item = |text| if is_nested { parent(text) } else { None };
                    lead_ins.extend(text.and_then(|text| last_if_open(text).or_else(|| of_item(text))));
                    is_nested = true;
                }
            }
            Event::Start(Tag::Paragraph | Tag::Item) => before = Some(range.start),
            Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::Table(_))
            | Event::End(TagEnd::List(_) | TagEnd::BlockQuote(_))
            | Event::Rule => before = None,
            _ => {}
        }
    }
    lead_ins.split_off(lead_ins.len().saturating_sub(MAX_LISTS))
}

/// Returns the last sentence of a text, without Markdown, if it ends with a colon.
fn last_if_open(text: &str) -> Option<String> {
    let last = every_sentence(text).pop()?.plain;
    (ends_open(&last) && last.len() <= MAX_BYTES).then_some(last)
}

/// Returns the first words of an item as a lead-in, without Markdown.
fn parent(item: &str) -> Option<String> {
    let first = every_sentence(item).into_iter().next()?.plain;
    let words: Vec<_> = first.split_whitespace().take(PARENT_WORDS).collect();
    let is_whole = words.len() == first.split_whitespace().count();
    let said = words.join(" ");
    Some(if is_whole { format!("{}:", said.trim_end_matches(is_end)) } else { format!("{said} …:") })
}

/// Returns whether a text ends with a colon, so that it is not complete without what follows.
pub(super) fn ends_open(text: &str) -> bool {
    text.trim_end().trim_end_matches(['*', '_']).ends_with([':', '：'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(document: &str, words: &str) -> Vec<String> {
        lead_ins(document, document.find(words).unwrap())
    }

    #[test]
    fn item_has_the_sentences_with_a_colon_before_its_list_and_the_lists_around_it() {
        let document = "---\ntitle: x\n---\n# Modes\n\nIt has modes. **On-demand** mode is a good option if:\n\n- loads are new\n\n  \
            and high\n- you have:\n  - peaks\n  - [ ] gaps\n\nIt is paid by use.\n\nSteps:\n1. Open it.\n2. Close it.\n";
        let good = "On-demand mode is a good option if:";
        for words in ["loads are new", "- loads", "and high", "you have"] {
            assert_eq!(of(document, words), [good], "{words}");
        }
        for words in ["peaks", "gaps"] {
            assert_eq!(of(document, words), [good, "you have:"], "{words}");
        }
        assert_eq!(of(document, "Close it"), ["Steps:"]);
        for words in ["It has modes", "On-demand", "It is paid", "Steps"] {
            assert_eq!(of(document, words), [] as [String; 0], "{words}: not in a list");
        }
    }

    #[test]
    fn text_that_does_not_end_with_a_colon_or_stand_right_above_the_list_is_no_lead_in() {
        for document in [
            "It has two modes.\n\n- one\n",
            "It has modes:\n\n## Modes\n\n- one\n",
            "It has modes:\n\n```\nx\n```\n\n- one\n",
            "It has modes:\n\n| a |\n|---|\n| b |\n\n- one\n",
            "It has modes:\n\n- two\n\n1. one\n",
            "> It has modes:\n\n- one\n",
            "It has modes:\n\n---\n\n- one\n",
            &format!("It has {} modes:\n\n- one\n", "many ".repeat(90)),
        ] {
            assert_eq!(of(document, "one"), [] as [String; 0], "{document}");
        }
        assert_eq!(of("> It has modes:\n>\n> - one\n", "one"), ["It has modes:"], "in a quotation");
    }

    #[test]
    fn item_of_a_nested_list_has_the_item_that_it_belongs_to() {
        let long = "have one of the people named below close the valve, the guard or the smith, before noon.";
        let document = format!("Steps:\n\n1. Open it.\n2. If it leaks, {long}\n   - the guard\n3. Go.\n   - home\n");
        let parent = "If it leaks, have one of the people named below close the …:";
        assert_eq!(of(&document, "- the guard"), ["Steps:", parent]);
        assert_eq!(of(&document, "home"), ["Steps:", "Go:"]);
    }

    proptest! {
        #[test]
        fn position_in_any_document_has_lead_ins_that_end_with_a_colon(
            document in "([a-z:*_`.!> \n|#-]|- |1\\. |:\n\n- |é|。){0,200}", at in 0usize..400
        ) {
            prop_assert!(lead_ins(&document, at).iter().all(|lead_in| ends_open(lead_in)));
        }
    }
}
