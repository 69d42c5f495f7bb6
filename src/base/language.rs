//! The language of a text, judged by its function words, and those words.

use std::collections::HashSet;
use std::sync::LazyLock;

/// English words without a subject of their own: function words, and the verbs questions are phrased with.
const ENGLISH: &str = "a about above after again against all also am an and any are as at be because been before \
    being below between both but by can cannot could did do does doing done down during each few for from further get \
    give had has have having he her here hers herself him himself his how i if in into is it its itself just let like \
    many may me might more most much must my myself no nor not of off on once only or other our ours ourselves out \
    over own please same shall she should so some such tell than that the their theirs them themselves then there \
    these they this those through to too under until up upon us use used using very via was we were what when where \
    which while who whom whose why will with within without would you your yours yourself yourselves s t d ll re ve m";

/// Other languages that are told apart: those whose words stand apart, with their codes.
const OTHERS: [(&str, &str); 17] = [
    ("cs", "Czech"),
    ("da", "Danish"),
    ("de", "German"),
    ("el", "Greek"),
    ("es", "Spanish"),
    ("fi", "Finnish"),
    ("fr", "French"),
    ("hu", "Hungarian"),
    ("it", "Italian"),
    ("nl", "Dutch"),
    ("no", "Norwegian"),
    ("pl", "Polish"),
    ("pt", "Portuguese"),
    ("ro", "Romanian"),
    ("ru", "Russian"),
    ("sv", "Swedish"),
    ("tr", "Turkish"),
];

/// Words that questions are asked with and that the lists lack.
const ASKING: [(&str, &str); 6] = [
    ("de", "wer wen wem wessen wann warum wieso woher wohin wozu womit viele gibt"),
    ("es", "cuánto cuánta cuántos cuántas cuál cuáles cuándo cómo dónde quién quiénes"),
    ("fr", "combien comment quand où quel quelle quels quelles quoi pourquoi lequel laquelle faut"),
    ("it", "quando quali perché"),
    ("nl", "hoeveel welke welk waar wanneer waarom"),
    ("pt", "quanto quantos quanta quantas quais onde"),
];

/// Fewest different function words that show a language.
const FEWEST: usize = 2;

/// A language and its function words, lower-cased.
pub(crate) struct Language {
    pub(crate) name: &'static str,
    stop_words: HashSet<&'static str>,
}

static LANGUAGES: LazyLock<Vec<Language>> = LazyLock::new(|| {
    let english = Language { name: "English", stop_words: ENGLISH.split_whitespace().collect() };
    let others = OTHERS.iter().filter_map(|(code, name)| {
        let asking = ASKING.iter().filter(|(own, _)| own == code).flat_map(|(_, words)| words.split(' '));
        Some(Language { name, stop_words: stop_words::lookup(code)?.iter().copied().chain(asking).collect() })
    });
    std::iter::once(english).chain(others).collect()
});

impl Language {
    /// Returns the language of a text of these lower-case words: the one with the most function words among them, or `None`
    /// if there are too few. Another language than English needs twice as many as English: a few words of code are function
    /// words somewhere.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<&'static Self> {
        let words: HashSet<&str> = words.into_iter().collect();
        let count = |language: &Self| words.iter().filter(|word| language.stop_words.contains(*word)).count();
        let english = count(Self::english());
        let others = LANGUAGES[1..].iter().map(|language| (count(language), language));
        // Of equals the first.
        let best = others.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let best = best.filter(|(count, _)| *count >= FEWEST.max(2 * english)).map(|(_, language)| language);
        best.or_else(|| (english >= FEWEST).then(Self::english))
    }

    pub(crate) fn english() -> &'static Self {
        &LANGUAGES[0]
    }

    pub(crate) fn is_stop_word(&self, word: &str) -> bool {
        self.stop_words.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_told_by_function_words() {
        let of = |text: &str| Language::of(text.to_lowercase().split(' ')).map_or("", |language| language.name);
        for (text, name) in [
            ("how do i define an enum with data", "English"),
            ("raft vs paxos", ""),
            ("tour de france", ""),
            ("was the tag an error", "English"),
            ("for var i in at", "English"),
            ("was kostet der antrag", "German"),
            ("wie viele tage urlaub habe ich", "German"),
            ("combien de jours de congé ai je", "French"),
            ("cuántos días de vacaciones tengo", "Spanish"),
            ("quanti giorni di ferie ho", "Italian"),
            ("hoeveel vakantiedagen heb ik", "Dutch"),
            ("сколько у меня дней отпуска", "Russian"),
        ] {
            assert_eq!(of(text), name, "{text}");
        }
    }
}
