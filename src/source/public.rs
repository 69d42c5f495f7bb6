//! Public passages, and the parts of them that may leave again.

use super::{Label, Passage};
use crate::base::outbound::Outbound;

/// A passage of a public source, such as a page or what a search engine shows of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicPassage<'a>(&'a Passage);

impl<'a> PublicPassage<'a> {
    /// Returns the passage if its label is public.
    pub(crate) fn of(passage: &'a Passage) -> Option<Self> {
        (passage.label == Label::Public).then_some(Self(passage))
    }

    /// Returns the address it is opened by.
    #[expect(clippy::disallowed_methods, reason = "the label says that the passage is public")]
    pub(crate) fn address(self) -> Outbound {
        Outbound::vouched(self.0.id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passage_of_the_knowledge_base_is_not_public() {
        let mut page = Passage::unread("https://example.org/".into(), "Example".into());
        assert_eq!(PublicPassage::of(&page).unwrap().address().as_str(), "https://example.org/");
        page.label = Label::Internal;
        assert!(PublicPassage::of(&page).is_none());
    }
}
