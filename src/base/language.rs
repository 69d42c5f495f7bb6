//! The language of a text, judged by its script, its function words and its letters; its stemmer and stop words.

use std::collections::HashSet;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use frostem::{Algorithm, Stemmer};
use rustc_hash::FxHashMap;

use super::script::Script;

/// English words without a subject of their own: function words, and the verbs questions are phrased with. The last
/// ones are ends of contractions, since an apostrophe divides words.
const ENGLISH: &str = "a about above after again against all also am an and any are as at be because been before \
    being below between both but by can cannot could did do does doing done down during each few for from further get \
    give had has have having he her here hers herself him himself his how i if in into is it its itself just let like \
    many may me might more most much must my myself no nor not of off on once only or other our ours ourselves out \
    over own please same shall she should so some such tell than that the their theirs them themselves then there \
    these they this those through to too under until up upon us use used using very via was we were what when where \
    which while who whom whose why will with within without would you your yours yourself yourselves s t d ll re ve m \
        aren couldn didn doesn don hadn hasn haven isn mustn needn shouldn wasn weren wouldn";

/// The languages that are recognized besides English: code, name, script, stemmer, and the letters that English lacks.
/// The first of each script is its main language, which is assumed for a text without function words and for words in a
/// text of another script. Function words alone do not tell Turkish, which uses suffixes where other languages use
/// function words, and short questions have few of them in any language.
const OTHERS: &[(&str, &str, Script, Option<Algorithm>, &str)] = &[
    ("cs", "Czech", Script::Latin, None, "áčďéěíňóřšťúůýž"),
    ("da", "Danish", Script::Latin, Some(Algorithm::Danish), "æøåé"),
    ("de", "German", Script::Latin, Some(Algorithm::German), "äöüß"),
    ("es", "Spanish", Script::Latin, Some(Algorithm::Spanish), "áéíóúüñ"),
    ("fi", "Finnish", Script::Latin, Some(Algorithm::Finnish), "äöå"),
    ("fr", "French", Script::Latin, Some(Algorithm::French), "àâæçéèêëîïôœùûüÿ"),
    ("hu", "Hungarian", Script::Latin, Some(Algorithm::Hungarian), "áéíóöőúüű"),
    ("it", "Italian", Script::Latin, Some(Algorithm::Italian), "àèéìîòù"),
    ("nl", "Dutch", Script::Latin, Some(Algorithm::Dutch), "éèëïóöü"),
    ("no", "Norwegian", Script::Latin, Some(Algorithm::Norwegian), "æøåéòô"),
    ("pl", "Polish", Script::Latin, None, "ąćęłńóśźż"),
    ("pt", "Portuguese", Script::Latin, Some(Algorithm::Portuguese), "áâãàçéêíóôõú"),
    ("ro", "Romanian", Script::Latin, Some(Algorithm::Romanian), "ăâîșşțţ"),
    ("sv", "Swedish", Script::Latin, Some(Algorithm::Swedish), "åäöé"),
    // The dot is left over when `İ` becomes `i`.
    ("tr", "Turkish", Script::Latin, Some(Algorithm::Turkish), "çğıöşüâîû\u{307}"),
    ("ca", "Catalan", Script::Latin, None, "àçéèíïóòúü"),
    ("hr", "Croatian", Script::Latin, None, "čćđšž"),
    ("id", "Indonesian", Script::Latin, None, ""),
    (VIETNAMESE, "Vietnamese", Script::Latin, None, VIETNAMESE_LETTERS),
    ("yo", "Yoruba", Script::Latin, None, "ẹọṣáàéèíìóòúùńǹ"),
    ("ru", "Russian", Script::Cyrillic, Some(Algorithm::Russian), ""),
    // A fifth of Ukrainian texts are taken for Russian, which makes no difference with the same stemmer.
    ("uk", "Ukrainian", Script::Cyrillic, Some(Algorithm::Russian), ""),
    ("bg", "Bulgarian", Script::Cyrillic, Some(Algorithm::Russian), ""),
    ("el", "Greek", Script::Greek, Some(Algorithm::Greek), ""),
    ("ar", "Arabic", Script::Arabic, Some(Algorithm::Arabic), ""),
    ("fa", "Persian", Script::Arabic, None, ""),
    ("he", "Hebrew", Script::Hebrew, None, ""),
    ("hi", "Hindi", Script::Devanagari, None, ""),
    ("mr", "Marathi", Script::Devanagari, None, ""),
    ("ta", "Tamil", Script::Tamil, Some(Algorithm::Tamil), ""),
    ("ko", "Korean", Script::Hangul, None, ""),
    ("ja", "Japanese", Script::Kana, None, ""),
    ("zh", "Chinese", Script::Han, None, ""),
    ("th", "Thai", Script::SoutheastAsian, None, ""),
];

/// Vietnamese, whose words may differ in nothing but tone, which is written as an accent.
const VIETNAMESE: &str = "vi";
const VIETNAMESE_LETTERS: &str = "àáảãạăằắẳẵặâầấẩẫậđèéẻẽẹêềếểễệìíỉĩịòóỏõọôồốổỗộơờớởỡợùúủũụưừứửữựỳýỷỹỵ";

/// Words that questions are asked with and that the lists lack.
const ASKING: &[(&str, &str)] = &[
    ("ar", "كم متى أين كيف لماذا هل ما ماذا من أي يمكن يمكنني يستطيع أستطيع يجب"),
    ("cs", "kolik kdy kde kam jak proč kdo co který která které lze může mohu"),
    ("de", "wer wen wem wessen wann warum wieso woher wohin wozu womit viele gibt"),
    (
        "el",
        "ποιος ποια ποιο ποιοι ποιες τι πώς πότε πού πόσο πόσος πόση πόσα πόσες πόσοι γιατί μπορώ μπορεί επιτρέπεται πρέπει",
    ),
    ("es", "cuánto cuánta cuántos cuántas cuál cuáles cuándo cómo dónde quién quiénes"),
    ("fi", "kuinka milloin missä mihin mitä kuka miksi mikä miten voiko saako"),
    ("fr", "combien comment quand où quel quelle quels quelles quoi pourquoi lequel laquelle faut"),
    ("hi", "क्या कैसे कब कहाँ कौन किसे क्यों कितना कितने कितनी सकता सकते सकती"),
    ("hu", "mennyi hány mikor hol hová hogyan ki mi miért melyik lehet"),
    ("it", "quando quali perché"),
    ("ja", "何 いつ どこ 誰 なぜ どう どの いくら どれ ですか ますか"),
    ("ko", "무엇 무엇을 무엇이 어떻게 언제 어디 어디서 어디에 누가 왜 얼마 얼마나 몇"),
    ("nl", "hoeveel welke welk waar wanneer waarom"),
    ("pl", "ile kiedy gdzie dokąd jak dlaczego kto co który która które czy można"),
    ("pt", "quanto quantos quanta quantas quais onde"),
    ("ro", "cât câtă câți câte când unde cum cine ce care poate"),
    ("ru", "сколько когда где куда как почему зачем кто кому что какой какая какие какое можно нужно"),
    ("sv", "hur när var vart vem vad varför vilken vilket vilka"),
    ("th", "อะไร ใคร เมื่อไร เมื่อไหร่ ไหน ที่ไหน อย่างไร ยังไง ทำไม เท่าไร เท่าไหร่ กี่ ไหม ได้"),
    ("tr", "ne nasıl neden niçin nerede nereye kim kime hangi kaç mı mi mu mü"),
    ("uk", "скільки коли де куди як чому хто кому що який яка які можна"),
    ("zh", "什么 谁 哪里 哪儿 哪 怎么 怎样 如何 为什么 为何 多少 几 几点 时候 可以 能 吗 呢"),
];

/// Words that phrase a question and say nothing of its subject. A folder that lacks them may answer it all the same.
const PHRASING: &[(&str, &str)] = &[
    (
        "de",
        "unterschied unterschiede unterscheiden vergleich vergleiche vergleichen passiert bedeutet funktioniert wählen",
    ),
    (
        "en",
        "able actually afterwards allowed along although among amongst anybody anymore anyone anything anyway around \
         beside besides best better care choose chooses choosing chose chosen compare compared comparison currently \
         deal decide decided describe despite differ difference differences different differs distinguish \
         distinguishes even ever exactly exist exists explain find good handle happen happened happening happens kind \
         kinds know list look make makes matter mean meaning means meant name need needs new often one ones onto \
         particular people per perhaps person persons pick picked possible purpose rather really reason reasons \
         recommended say says separate separates show simply since somebody someone something sort steps still \
         summarise summarize supposed take takes thing things though throughout toward towards understand versus vs \
         want wants way ways whether work works yet",
    ),
    ("es", "diferencia diferencias diferenciar comparar compara elegir elegimos pasa ocurre significa funciona sirve"),
    ("fr", "différence différences comparer compare comparez choisir passe arrive signifie fonctionne sert"),
];

/// Words that phrase an English question together: the first, how many words after it the second may be at most, and
/// the second. In a folder they are rare, so each would weigh more than the subject.
const FRAMES: [(&str, usize, &str); 4] = [
    ("how", 1, "long big large high early late far fast soon old"),
    ("long", 6, "last lasts"),
    ("come comes came", 1, "out"),
    ("leave leaves left", 3, "out"),
];

/// Minimum number of distinct words needed to recognise a language.
const FEWEST: usize = 2;

/// Minimum number of distinct words needed to recognise a language other than the document's. With two, one in 900
/// paragraphs of English documentation was taken for another language, mostly code listings; with four, one in 15,000.
const FEWEST_IN_PARAGRAPH: usize = 4;

/// At least one word in this many tells the language of the document.
const TELLING_WORDS: usize = 10;

pub(crate) struct Language {
    /// ISO 639-1 code.
    pub(crate) code: &'static str,
    pub(crate) name: &'static str,
    pub(crate) script: Script,
    stemmer: Option<Stemmer>,
    /// Those that English lacks.
    letters: &'static str,
    /// Lower-cased. Collected when first asked for, since a search needs those of a language or two.
    stop_words: OnceLock<HashSet<&'static str>>,
    /// Lower-cased words that phrase a question.
    phrasing: OnceLock<HashSet<&'static str>>,
}

impl fmt::Debug for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

static LANGUAGES: LazyLock<Vec<Language>> = LazyLock::new(|| {
    let english = ("en", "English", Script::Latin, Some(Algorithm::English), "");
    let all = std::iter::once(&english).chain(OTHERS);
    let language = |&(code, name, script, stemmer, letters): &(_, _, _, Option<_>, _)| Language {
        code,
        name,
        script,
        stemmer: stemmer.map(Stemmer::new),
        letters,
        stop_words: OnceLock::new(),
        phrasing: OnceLock::new(),
    };
    all.map(language).collect()
});

/// The languages of each function word, by their places in [`LANGUAGES`]. While a folder is indexed, every word of every
/// paragraph is looked up.
static BY_FUNCTION_WORD: LazyLock<FxHashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    // The words are part of the program, so a hash that resists crafted keys would only cost time.
    let mut languages: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for (at, language) in LANGUAGES.iter().enumerate() {
        for word in language.stop_words() {
            languages.entry(word).or_default().push(at);
        }
    }
    languages
});

/// Returns the places of the languages that a word tells.
fn told_by(word: &str) -> impl Iterator<Item = usize> {
    let known = BY_FUNCTION_WORD.get(word).map_or(&[][..], Vec::as_slice);
    let with_letters = if word.is_ascii() { &[][..] } else { LANGUAGES.as_slice() };
    let by_letters = with_letters.iter().enumerate().filter(move |(_, language)| language.has_letters_of(word));
    known.iter().copied().chain(by_letters.map(|(at, _)| at).filter(move |at| !known.contains(at)))
}

/// Returns the words of one language in a list by languages.
fn listed(list: &'static [(&str, &str)], code: &str) -> impl Iterator<Item = &'static str> {
    list.iter().filter(move |(own, _)| *own == code).flat_map(|(_, words)| words.split_whitespace())
}

impl Language {
    /// Returns the language of a text, given its lower-case words: the one that most of them tell. Without enough of
    /// those it is the main language of the script, or `None` for Latin letters. Other languages need twice as many as
    /// English, because common English words and names in code are function words of some language.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<&'static Self> {
        let words: HashSet<&str> = words.into_iter().collect();
        let count = |language: &Self| words.iter().filter(|word| language.is_told_by(word)).count();
        let script = main_script(words.iter().copied())?;
        let english = count(Self::english());
        let fewest = if script == Script::Latin { FEWEST.max(2 * english) } else { 0 };
        // No other has enough where there are too few words for it: most English questions.
        let others = LANGUAGES[1..].iter().filter(|language| language.script == script && words.len() >= fewest);
        // Of equals the first.
        let others = others.map(|language| (count(language), language));
        let best = others.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let best = best.filter(|(count, _)| *count >= fewest).map(|(_, language)| language);
        best.or_else(|| (english >= FEWEST).then(Self::english))
    }

    /// Returns the language of a document, given its lower-case words: of the languages of its script, the one that
    /// most of the text tells; otherwise as [`Self::of`].
    pub(crate) fn of_document<'a>(words: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'static Self> {
        // A few words of English are function words somewhere.
        Self::told_against(Self::english(), FEWEST, words.clone()).or_else(|| Self::of(words))
    }

    /// Returns the language of a paragraph of a document in this language, given its lower-case words.
    pub(crate) fn of_paragraph<'a>(&'static self, words: impl IntoIterator<Item = &'a str>) -> &'static Self {
        Self::told_against(self, FEWEST_IN_PARAGRAPH, words).unwrap_or(self)
    }

    /// Returns the language that most of a text tells, if at least `fewest` different words do, and twice as many as
    /// tell the `likely` language.
    fn told_against<'a>(
        likely: &Self,
        fewest: usize,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'static Self> {
        let words: Vec<&str> = words.into_iter().collect();
        let script = main_script(words.iter().copied())?;
        // All words and different ones that tell each language.
        let mut told = vec![(0, 0); LANGUAGES.len()];
        let mut known = HashSet::new();
        for word in words.iter().filter(|word| word.chars().nth(1).is_some()) {
            let mut is_new = None;
            for at in told_by(word) {
                told[at].0 += 1;
                told[at].1 += usize::from(*is_new.get_or_insert_with(|| known.insert(word)));
            }
        }
        let of_script = LANGUAGES.iter().zip(&told).filter(|(language, _)| language.script == script);
        let (best, (most, distinct)) = of_script.reduce(|best, next| if next.1.0 > best.1.0 { next } else { best })?;
        let of_likely = LANGUAGES.iter().zip(&told).find(|(language, _)| language.code == likely.code);
        let is_clear = best.code == likely.code || of_likely.is_none_or(|(_, (count, _))| *most >= 2 * count);
        (most * TELLING_WORDS >= words.len() && *distinct >= fewest && is_clear).then_some(best)
    }

    /// Returns whether a lower-case word tells the language: a function word, or a word that has letters which English
    /// lacks and this language has.
    fn is_told_by(&self, word: &str) -> bool {
        self.stop_words().contains(word) || self.has_letters_of(word)
    }

    fn has_letters_of(&self, word: &str) -> bool {
        let mut letters = word.chars().filter(|letter| !letter.is_ascii());
        !word.is_ascii() && letters.all(|letter| self.letters.contains(letter))
    }

    /// Returns the language with an ISO 639-1 code, such as `de` or `de-AT`.
    pub(crate) fn with_code(code: &str) -> Option<&'static Self> {
        let code = code.split(['-', '_']).next().unwrap_or_default();
        LANGUAGES.iter().find(|language| language.code.eq_ignore_ascii_case(code))
    }

    pub(crate) fn english() -> &'static Self {
        &LANGUAGES[0]
    }

    pub(crate) fn is_english(&self) -> bool {
        self.code == Self::english().code
    }

    /// Returns whether a lower-case word is a stop word. Vietnamese has none here: it separates syllables by spaces,
    /// and most syllables of its stop words occur in other words too.
    pub(crate) fn is_stop_word(&self, word: &str) -> bool {
        !self.has_tones() && self.stop_words().contains(word)
    }

    /// Returns whether a lower-case word phrases a question and says nothing of its subject.
    pub(crate) fn is_phrasing(&self, word: &str) -> bool {
        self.phrasing.get_or_init(|| listed(PHRASING, self.code).collect()).contains(word)
    }

    /// Returns the positions of those lower-case words of a question that phrase it in pairs: "how long".
    pub(crate) fn framing(&self, words: &[&str]) -> HashSet<usize> {
        let is_in = |word: &str, list: &str| list.split(' ').any(|own| own == word);
        let pairs = |&(first, within, second): &(&'static str, usize, &'static str)| {
            let places = (0..words.len()).filter(move |at| is_in(words[*at], first));
            places.filter_map(move |at| {
                let apart = words[at + 1..].iter().take(within).position(|word| is_in(word, second))?;
                Some([at, at + 1 + apart])
            })
        };
        let frames = FRAMES.iter().filter(|_| self.is_english());
        frames.flat_map(pairs).flatten().collect()
    }

    fn stop_words(&self) -> &HashSet<&'static str> {
        self.stop_words.get_or_init(|| {
            if self.is_english() {
                return ENGLISH.split_whitespace().collect();
            }
            let known = stop_words::lookup(self.code).unwrap_or_default();
            known.iter().copied().chain(listed(ASKING, self.code)).collect()
        })
    }

    /// Returns the stemmer for words in `script`: that of this language if it uses the script, else that of the
    /// script's main language.
    pub(super) fn stemmer_of(&self, script: Script) -> Option<&Stemmer> {
        let of_script = || LANGUAGES.iter().find(|language| language.script == script);
        if self.script == script { self.stemmer.as_ref() } else { of_script()?.stemmer.as_ref() }
    }

    /// Returns whether words of the language may differ only in their accents.
    pub(crate) fn has_tones(&self) -> bool {
        self.code == VIETNAMESE
    }

    /// Returns whether the language writes compounds as one word and finds them better by all of their letters than by
    /// the first: not Dutch, Finnish and Hungarian, see `kb/decisions/languages.md`.
    pub(crate) fn joins_words(&self) -> bool {
        matches!(self.code, "da" | "de" | "no" | "sv")
    }

    /// Converts a word to lower case. In Turkish, `I` becomes `ı` and `İ` becomes `i`.
    pub(super) fn lower_cased(&self, word: &str) -> String {
        if self.code == "tr" { word.replace('I', "ı").replace('İ', "i").to_lowercase() } else { word.to_lowercase() }
    }
}

/// Returns the script of most different words. Kana decides over Han, which Japanese has as well.
fn main_script<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Option<Script> {
    if words.clone().all(str::is_ascii) {
        return words
            .clone()
            .any(|word| word.contains(|letter: char| letter.is_ascii_alphabetic()))
            .then_some(Script::Latin);
    }
    let mut counts: Vec<(Script, usize)> = Vec::new();
    let distinct: HashSet<_> = words.collect();
    for script in distinct.into_iter().map(Script::of_word).filter(|script| *script != Script::Other) {
        match counts.iter_mut().find(|(own, _)| *own == script) {
            Some((_, count)) => *count += 1,
            None => counts.push((script, 1)),
        }
    }
    let has_kana = counts.iter().any(|(script, _)| *script == Script::Kana);
    // Of scripts with as many words the last: the order of a set changes from run to run.
    let (script, _) = counts.into_iter().max_by_key(|(script, count)| (*count, *script as u8))?;
    Some(if script == Script::Han && has_kana { Script::Kana } else { script })
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
            ("penisilini bulan bilim insanı bunu neyin üzerinde gördü", "Turkish"),
            ("how did beyoncé meet jay z", "English"),
            ("hoeveel vakantiedagen heb ik", "Dutch"),
            ("сколько у меня дней отпуска", "Russian"),
            ("резервная копия", "Russian"),
            ("що таке резервна копія і як її зробити", "Ukrainian"),
            ("πόσες ημέρες άδειας έχω", "Greek"),
            ("كم يوما إجازة لدي", "Arabic"),
            ("如何 备份", "Chinese"),
            ("バックアップ の 方法", "Japanese"),
        ] {
            assert_eq!(of(text), name, "{text}");
        }
    }

    #[test]
    fn letters_tell_the_language_of_a_document_with_few_function_words() {
        let of =
            |text: &str| Language::of_document(text.to_lowercase().split(' ')).map_or("", |language| language.name);
        let honey = "düşük nem ve asit sayesinde bal yıllarca bozulmadan saklanabilir kovanda işçi arılar kanat çırparak suyu buharlaştırır";
        assert_eq!(of(honey), "Turkish");
        assert_eq!(of("we met müller and citroën at the café in são paulo"), "English", "names have letters of many");
    }

    #[test]
    fn language_of_a_paragraph_is_the_documents_unless_another_is_clear() {
        let of = |text: &str, document: &str| {
            Language::with_code(document).unwrap().of_paragraph(text.to_lowercase().split(' ')).name
        };
        assert_eq!(of("die häuser sind nicht für den markt", "en"), "German");
        assert_eq!(of("the houses are not for sale", "de"), "English");
        assert_eq!(of("a1 de la 12", "en"), "English");
        assert_eq!(of("det er ikke til salg", "no"), "Norwegian", "much of Danish is Norwegian too");
    }
}
