//! Scholarly works as Crossref, `OpenAlex`, Europe PMC and arXiv report them, with their titles for a list of sources.

use super::provider::{WebHit, page};

/// Authors named before "et al.".
const MAX_AUTHORS: usize = 3;

/// Longest title, in characters, so that what follows it fits into a hit's title.
const MAX_TITLE_CHARS: usize = 180;

/// A scholarly work. Fields that an engine does not report are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScholarlyWork {
    /// Address of a page about it, if it has another than its DOI's.
    pub(super) url: Option<String>,
    pub(super) title: String,
    /// Names as they are printed, in their order.
    pub(super) authors: Vec<String>,
    /// Day, month or year of publication, such as `2024-05-01` or `2024`.
    pub(super) published: String,
    /// Journal, conference or archive.
    pub(super) venue: String,
    /// DOI, with or without the address of its resolver.
    pub(super) doi: String,
    pub(super) summary: String,
}

impl ScholarlyWork {
    /// Returns the work as a search result, titled as a source is cited. Returns `None` if it has no title or no
    /// address.
    pub(super) fn hit(&self) -> Option<WebHit> {
        if self.title.trim().is_empty() {
            return None;
        }
        let doi = self.doi.trim().trim_start_matches("https://doi.org/").trim_start_matches("http://dx.doi.org/");
        let of_doi = (!doi.is_empty()).then(|| format!("https://doi.org/{doi}"));
        let url = self.url.clone().or(of_doi)?;
        page(&url, &self.cited(doi), &self.summary, Some(&self.published))
    }

    /// Returns title, authors, venue, year and DOI: `Title. A. Author et al., Venue, 2024, doi:10.1/x`.
    fn cited(&self, doi: &str) -> String {
        let title: String = self.title.trim().trim_end_matches('.').chars().take(MAX_TITLE_CHARS).collect();
        let mut authors = self.authors.iter().take(MAX_AUTHORS).map(String::as_str).collect::<Vec<_>>().join(", ");
        if self.authors.len() > MAX_AUTHORS {
            authors.push_str(" et al.");
        }
        let year = self.published.get(..4).unwrap_or_default();
        let doi = if doi.is_empty() { String::new() } else { format!("doi:{doi}") };
        let parts = [authors.as_str(), &self.venue, year, &doi].map(str::trim);
        let known = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        if known.is_empty() { title } else { format!("{title}. {known}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_titled_as_it_is_cited_and_opens_at_its_page_or_its_doi() {
        let work = ScholarlyWork {
            title: "On valves.".into(),
            authors: ["A. Lovelace", "C. Babbage", "M. Somerville", "J. Herschel"].map(String::from).to_vec(),
            published: "1843-09-01".into(),
            venue: "Memoirs".into(),
            doi: "https://doi.org/10.1/v".into(),
            ..ScholarlyWork::default()
        };
        let hit = work.hit().unwrap();
        let cited = "On valves. A. Lovelace, C. Babbage, M. Somerville et al., Memoirs, 1843, doi:10.1/v";
        assert_eq!((hit.title.as_str(), hit.url.as_str()), (cited, "https://doi.org/10.1/v"));
        assert_eq!(hit.published.as_deref(), Some("1843-09-01"));
        let bare = ScholarlyWork {
            title: "On beds".into(),
            url: Some("https://a.example/1".into()),
            ..ScholarlyWork::default()
        };
        let hit = bare.hit().unwrap();
        assert_eq!((hit.title.as_str(), hit.url.as_str(), hit.published), ("On beds", "https://a.example/1", None));
        assert_eq!(ScholarlyWork { title: "No address".into(), ..ScholarlyWork::default() }.hit(), None);
        assert_eq!(ScholarlyWork { doi: "10.1/v".into(), ..ScholarlyWork::default() }.hit(), None, "no title");
    }
}
