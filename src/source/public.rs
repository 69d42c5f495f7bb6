//! Public passages, and the parts of them that may leave again.

use super::{Label, Passage};
use crate::base::outbound::Outbound;

/// A passage of a public source, such as a page or what a search engine shows of it.
///
/// ```
/// use dr::source::{Passage, PublicPassage};
///
/// let page = Passage::unread("https://example.org/".to_owned(), "Example".to_owned());
/// let address = PublicPassage::of(&page).unwrap().address();
/// assert_eq!(address.as_str(), "https://example.org/");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PublicPassage<'a>(&'a Passage);

impl<'a> PublicPassage<'a> {
    /// Returns the passage if its label is public.
    pub fn of(passage: &'a Passage) -> Option<Self> {
        (passage.label == Label::Public).then_some(Self(passage))
    }

    /// Returns the address it is opened by.
    #[expect(clippy::disallowed_methods, reason = "the label says that the passage is public")]
    pub fn address(self) -> Outbound {
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
