//! Renders a document as HTML with one passage highlighted, so that a reader can look up the context of a quote.
//!
//! A document is untrusted. Its HTML is shown as text, its images are reduced to their description, and its links are
//! removed unless they lead to web pages.

use std::ops::Range;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use super::citation::safe_url;

/// Returns Markdown as HTML. Each block begins with its line number; the bytes in `marked` are marked.
pub(crate) fn markdown(text: &str, marked: Option<&Range<usize>>) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let parser = Parser::new_ext(text, options | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS).into_offset_iter();
    let mut events = Vec::new();
    let (mut depth, mut line, mut counted) = (0_usize, 1, 0);
    // Removed links, whose end tags are removed too.
    let mut dropped = Vec::new();
    for (event, range) in parser {
        if depth == 0 && matches!(event, Event::Start(_) | Event::Rule | Event::Html(_)) {
            // Counted from the previous block, so that the text is read once.
            line += text[counted..range.start.max(counted)].matches('\n').count();
            counted = range.start.max(counted);
            events.push(raw(format!("<span class=\"line\" id=\"L{line}\">{line}</span>")));
        }
        depth = match &event {
            Event::Start(_) => depth + 1,
            Event::End(_) => depth.saturating_sub(1),
            _ => depth,
        };
        match event {
            Event::Start(Tag::Link { link_type, dest_url, id, .. }) => {
                let is_safe = safe_url(&dest_url).is_some();
                dropped.push(!is_safe);
                if is_safe {
                    events.push(Event::Start(Tag::Link { link_type, dest_url, title: CowStr::Borrowed(""), id }));
                }
            }
            Event::End(TagEnd::Link) => {
                if dropped.pop() == Some(false) {
                    events.push(Event::End(TagEnd::Link));
                }
            }
            Event::Start(Tag::Image { .. } | Tag::HtmlBlock) | Event::End(TagEnd::Image | TagEnd::HtmlBlock) => {}
            Event::Text(shown) | Event::Html(shown) | Event::InlineHtml(shown) => {
                push_marked(&mut events, text, &shown, &range, marked);
            }
            Event::Code(_) if marked.is_some_and(|marked| overlap(marked, &range)) => {
                events.extend([raw("<mark>".to_owned()), event, raw("</mark>".to_owned())]);
            }
            event => events.push(event),
        }
    }
    let mut shown = String::with_capacity(text.len() * 2);
    html::push_html(&mut shown, events.into_iter());
    shown
}

/// Returns a text that is not Markdown as HTML, line by line.
pub(crate) fn plain(text: &str, marked: Option<&Range<usize>>) -> String {
    let mut events = Vec::new();
    push_marked(&mut events, text, text, &(0..text.len()), marked);
    let mut shown = String::from("<pre class=\"page\">");
    html::push_html(&mut shown, events.into_iter());
    shown.push_str("</pre>");
    shown
}

fn raw(tag: String) -> Event<'static> {
    Event::InlineHtml(tag.into())
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Adds the text at `range` of the document, and highlights the part in `marked`.
fn push_marked(
    events: &mut Vec<Event<'_>>,
    text: &str,
    shown: &str,
    range: &Range<usize>,
    marked: Option<&Range<usize>>,
) {
    let add = |events: &mut Vec<Event<'_>>, part: &str| events.push(Event::Text(part.to_owned().into()));
    let Some(marked) = marked.filter(|marked| overlap(marked, range)) else { return add(events, shown) };
    let is_verbatim = text.get(range.clone()) == Some(shown);
    // If the text differs from the document, as with an entity, all of it is highlighted.
    let (from, to) = if is_verbatim {
        (marked.start.max(range.start) - range.start, marked.end.min(range.end) - range.start)
    } else {
        (0, shown.len())
    };
    add(events, &shown[..from]);
    events.push(raw("<mark>".to_owned()));
    add(events, &shown[from..to]);
    events.push(raw("</mark>".to_owned()));
    add(events, &shown[to..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_is_marked_in_its_block_and_blocks_have_their_lines() {
        let text = "# Beds\n\nWater *them* at night. Not at noon.\n\n- one\n- two\n";
        let at = text.find("Water").unwrap();
        let shown = markdown(text, Some(&(at..at + "Water *them* at night.".len())));
        assert!(shown.contains("<span class=\"line\" id=\"L3\">3</span>"), "{shown}");
        assert!(
            shown.contains("<mark>Water </mark><em><mark>them</mark></em><mark> at night.</mark> Not at noon."),
            "{shown}"
        );
        assert!(shown.contains("id=\"L5\""), "{shown}");
    }

    #[test]
    fn document_runs_and_loads_nothing() {
        let text = "<script>alert(1)</script>\n\n![a picture](https://example.org/a.png) [go](javascript:alert(1)) \
                    <img src=x onerror=alert(1)> [site](https://example.org/)\n\n\"><b>\n";
        let shown = markdown(text, Some(&(0..text.len())));
        for bad in ["<script", "<img", "javascript:", "<b>"] {
            assert!(!shown.contains(bad), "{bad}: {shown}");
        }
        assert!(shown.contains("<a href=\"https://example.org/\">") && shown.contains("a picture"), "{shown}");
        let page = plain("a <b> & c", Some(&(2..5)));
        assert_eq!(page, "<pre class=\"page\">a <mark>&lt;b&gt;</mark> &amp; c</pre>");
    }
}
