//! Links of a page: the addresses it names, which may be opened because it is public.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::readable::Readable;
use super::url::{WebUrl, named_in};
use crate::base::word::WordSplitter;

/// Maximum number of links kept of a page.
const MAX_LINKS: usize = 100;

/// Maximum number of links shown with a page.
const MAX_SHOWN: usize = 8;

/// Bytes at the start of a text that are searched for addresses outside of links. Bounds the time a hostile page takes.
const MAX_TEXT_BYTES: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageLink {
    /// The words that are linked, on one line.
    pub(crate) text: String,
    pub(crate) url: WebUrl,
}

/// Returns the links of the page at `url` in its order, each address once, without the page itself.
pub(super) fn links_of(url: &WebUrl, page: &Readable) -> Vec<PageLink> {
    let base = page.base.as_deref().and_then(|base| url.join(base).ok()).unwrap_or_else(|| url.clone());
    let references = page.references.iter();
    let linked =
        references.filter_map(|(text, target)| Some(PageLink { text: text.clone(), url: base.join(target).ok()? }));
    let text = &page.text[..page.text.floor_char_boundary(MAX_TEXT_BYTES)];
    let named = named_in(text).into_iter();
    let named = named.filter_map(|address| Some(PageLink { text: String::new(), url: address.parse().ok()? }));
    let mut known = HashSet::from([url.canonical()]);
    linked.chain(named).filter(|link| known.insert(link.url.canonical())).take(MAX_LINKS).collect()
}

/// Returns the links to show to a reader with this question: those whose words share most key words with it.
pub(crate) fn links_on<'a>(links: &'a [PageLink], question: &str) -> Vec<&'a PageLink> {
    let splitter = WordSplitter::default();
    let wanted = splitter.key_stems(question);
    let shared = |link: &PageLink| splitter.key_stems(&link.text).iter().filter(|stem| wanted.contains(stem)).count();
    let mut ranked: Vec<_> = links.iter().map(|link| (shared(link), link)).filter(|(shared, _)| *shared > 0).collect();
    ranked.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    ranked.into_iter().map(|(_, link)| link).take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::super::readable::{plain, readable};
    use super::*;

    fn links(page: &Readable) -> Vec<(String, String)> {
        let links = links_of(&"https://example.org/a/b".parse().unwrap(), page);
        links.into_iter().map(|link| (link.text, link.url.to_string())).collect()
    }

    fn pair(text: &str, url: &str) -> (String, String) {
        (text.to_owned(), url.to_owned())
    }

    #[test]
    fn visible_links_of_the_main_part_are_resolved_and_kept_once() {
        let page = readable(
            "<nav><a href='/home'>Home</a></nav><p>See the <a href='../c?id=1#top'>other  <b>page</b></a>, \
             <a href='/c?id=1'>again</a>, <a href='https://else.example/x'>elsewhere</a>, <a href='b'>this page</a>, \
             <a href='mailto:me@example.org'>mail</a>, <a href='javascript:x()'>run</a>, \
             <a href='/hidden' hidden>hidden</a>, or https://plain.example/y.</p>",
        );
        assert_eq!(
            links(&page.unwrap()),
            [
                pair("other page", "https://example.org/c?id=1"),
                pair("elsewhere", "https://else.example/x"),
                pair("", "https://plain.example/y"),
            ]
        );
        let based = readable("<head><base href='https://base.example/d/'></head><p><a href='e'>e</a></p>").unwrap();
        assert_eq!(links(&based), [pair("e", "https://base.example/d/e")]);
    }

    #[test]
    fn links_of_markdown_are_found() {
        let text =
            "See [the *guide*](/guide.md) and [more][1], or <https://auto.example/>.\n\n[1]: https://more.example/z\n";
        assert_eq!(
            links(&plain(text)),
            [
                pair("the guide", "https://example.org/guide.md"),
                pair("more", "https://more.example/z"),
                pair("https://auto.example/", "https://auto.example/"),
            ]
        );
    }

    #[test]
    fn page_without_end_has_few_links_soon() {
        let page = plain(&"http://a.example/".repeat(200_000));
        assert!(links(&page).len() <= MAX_LINKS);
    }

    #[test]
    fn links_that_bear_on_the_question_are_shown_best_first() {
        let link =
            |text: &str| PageLink { text: text.into(), url: format!("https://example.org/{text}").parse().unwrap() };
        let links = ["imprint", "greenhouse", "watering greenhouse beds", "cookies"].map(link);
        let shown: Vec<_> =
            links_on(&links, "How are greenhouse beds watered?").into_iter().map(|link| &link.text).collect();
        assert_eq!(shown, ["watering greenhouse beds", "greenhouse"]);
        let many: Vec<_> = (0..20).map(|number| link(&format!("beds{number} greenhouse"))).collect();
        assert_eq!(links_on(&many, "greenhouse").len(), MAX_SHOWN);
    }
}
