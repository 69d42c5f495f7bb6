//! `robots.txt` as specified by RFC 9309.

/// The product token of `dr` in `robots.txt`.
const NAME: &str = "dr";

/// Limit on the number of rules; further ones are ignored.
const MAX_RULES: usize = 10_000;

/// Limit on the length of a pattern; a rule with a longer one is ignored.
const MAX_PATTERN_BYTES: usize = 2_048;

/// The rules of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Robots {
    /// The rules that apply to `dr`; empty if everything is allowed.
    Rules(Vec<Rule>),
    /// The file could not be fetched, so nothing may be, as RFC 9309 requires.
    Unknown,
}

/// An `allow` or `disallow` rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pattern: String,
    is_allowed: bool,
}

impl Robots {
    /// Returns the rules of a site without `robots.txt`, which allow everything.
    pub(super) fn silent() -> Self {
        Self::Rules(Vec::new())
    }

    /// Parses the file and keeps the group for `dr`, or else the group for `*`.
    pub(super) fn read(text: &str) -> Self {
        let (mut own, mut common) = (Vec::new(), Vec::new());
        let (mut is_own, mut is_common, mut in_names, mut has_own) = (false, false, false, false);
        for line in text.trim_start_matches('\u{feff}').lines() {
            let Some((key, value)) = line.split('#').next().unwrap_or_default().split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if key == "user-agent" {
                // Consecutive names share the rules that follow; the first name after a rule begins another group.
                if !in_names {
                    (is_own, is_common, in_names) = (false, false, true);
                }
                is_own |= product(value).eq_ignore_ascii_case(NAME);
                is_common |= value == "*";
                has_own |= is_own;
                continue;
            }
            if !matches!(key.as_str(), "allow" | "disallow") {
                continue;
            }
            in_names = false;
            // A rule without a path has no effect.
            if value.is_empty() || value.len() > MAX_PATTERN_BYTES || own.len() + common.len() >= MAX_RULES {
                continue;
            }
            let rule = Rule { pattern: encoded(value), is_allowed: key == "allow" };
            if is_own {
                own.push(rule.clone());
            }
            if is_common {
                common.push(rule);
            }
        }
        Self::Rules(if has_own { own } else { common })
    }

    /// Returns whether a page may be fetched; `path` includes the query.
    ///
    /// The longest matching pattern wins; at equal length, `allow` wins over `disallow`.
    pub(super) fn allows(&self, path: &str) -> bool {
        let Self::Rules(rules) = self else { return false };
        let path = encoded(path);
        let fitting = rules.iter().filter(|rule| fits(&rule.pattern, &path));
        fitting.max_by_key(|rule| (rule.pattern.len(), rule.is_allowed)).is_none_or(|rule| rule.is_allowed)
    }
}

/// Returns the product token of a user agent, without its version.
fn product(name: &str) -> &str {
    name.split(|letter: char| !(letter.is_ascii_alphabetic() || matches!(letter, '-' | '_'))).next().unwrap_or_default()
}

/// Normalises percent-encoding, so that equivalent paths and patterns compare equal.
fn encoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut text = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        at += if number.is_some() { 3 } else { 1 };
        match (number, number.unwrap_or(byte)) {
            (Some(_), byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => text.push(char::from(byte)),
            (None, byte) if byte.is_ascii_graphic() => text.push(char::from(byte)),
            (_, byte) => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns whether a pattern matches the beginning of a path. `*` matches anything, and `$` at the end anchors the
/// match.
///
/// Every `*` matches as little as possible without backtracking, so the time is at most the product of both lengths.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, to_end) = pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true));
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return !to_end || rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    if to_end { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(text: &str, path: &str) -> bool {
        Robots::read(text).allows(path)
    }

    #[test]
    fn longest_matching_pattern_wins() {
        let text =
            "User-agent: *\nDisallow: /private/ # not here\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow: /q?";
        for (path, expected) in [
            ("/", true),
            ("/private/", false),
            ("/private/open/x", true),
            ("/a/b.pdf", false),
            ("/a/b.pdf?x", true),
            ("/q?x=1", false),
            ("/q", true),
        ] {
            assert_eq!(allows(text, path), expected, "{path}");
        }
    }

    #[test]
    fn group_for_dr_replaces_the_group_for_all() {
        let text = "user-agent: other\nuser-agent: DR/1.0\nallow: /a\n\ndisallow: /b\n\nuser-agent: *\ndisallow: /";
        assert!(allows(text, "/a") && allows(text, "/c") && !allows(text, "/b"));
        assert!(!allows("user-agent: drake\nallow: /\nuser-agent: *\ndisallow: /", "/a"), "another name");
        assert!(allows("user-agent: dr\ndisallow:\nuser-agent: *\ndisallow: /", "/a"), "nothing is disallowed");
    }

    #[test]
    fn percent_encoding_does_not_change_the_outcome() {
        assert!(!allows("user-agent: *\ndisallow: /caf%c3%A9", "/café"));
        assert!(!allows("user-agent: *\ndisallow: /%61dmin", "/admin"));
        assert!(allows("user-agent: *\ndisallow: /a%2Fb", "/a/b"));
    }

    #[test]
    fn missing_file_allows_and_unreachable_file_disallows() {
        assert!(Robots::silent().allows("/a"));
        assert!(!Robots::Unknown.allows("/a"));
        assert!(allows("<html>not found</html>", "/a"));
    }

    #[test]
    fn pattern_of_many_stars_is_matched_without_backtracking() {
        let pattern = format!("/{}b", "*a".repeat(900));
        assert!(allows(&format!("user-agent: *\ndisallow: {pattern}"), &format!("/{}", "a".repeat(2_000))));
    }

    proptest! {
        #[test]
        fn no_file_stops_the_reader(text in "(?s).{0,200}", path in "(?s).{0,80}") {
            let _ = allows(&format!("user-agent: *\ndisallow: /{text}"), &path);
        }
    }
}
