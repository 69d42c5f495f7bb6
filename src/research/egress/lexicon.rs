//! Which words are too common to tell where a text is from.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::RARE_LETTERS;
use crate::base::word::WordSplitter;
use crate::kb::embed::common_words;

/// Shortest number that tells something, in digits.
const RARE_DIGITS: usize = 4;

/// What words of their own begin with.
const PREFIXES: [&str; 16] = [
    "un", "re", "non", "de", "pre", "over", "under", "sub", "super", "multi", "inter", "mis", "dis", "auto", "meta",
    "out",
];

/// What stems of words of their own end with.
const SUFFIXES: [&str; 9] = ["er", "or", "abl", "ibl", "less", "ness", "ful", "wise", "ist"];

/// Shortest word that another one is derived from, in letters.
const MIN_ROOT: usize = 4;

/// What the vocabulary lacks and everybody who writes about computers says.
const COMPUTING: &str = "admin allocator async autocomplete backend backlog backport benchmark bitmap boolean bootloader bugfix \
    bytecode callback changelog checkbox checkout checksum cli codebase config coroutine cron csv dataset \
    datastore deadlock debug debugger decode deprecate deserialize devops dns docker dropdown encode endpoint \
    enum enums failover filename filesystem firewall firmware frontend getter git github gitlab gpu granularity \
    hardcoded hashing hostname iterator javascript json kubernetes latency lifecycle linter linting localhost \
    login logout lookup macros malware markdown metrics microservice middleware mutable mutex namespace nosql \
    npm nullable offline onboarding orchestrate overflow param parse parser performant plugin postgres \
    preprocess prod programmatically ransomware readme readonly redirect refactor regex repo reusable rollback \
    rollout rpc runtime sandbox scalability scalable scheduler schema sdk semver serialize serverless setter \
    shard signup snapshot spreadsheet ssh stateful stateless stderr stdin stdout struct subclass subdirectory \
    subnet substring symlink sysadmin tcp telemetry terraform throughput timeout timestamp tls tokenizer \
    toolchain tooltip traversal troubleshoot tuple tuples tutorial udp unittest uptime url urls username utf \
    validate variadic virtualization vm vpn webhook websocket whitelist whitespace widget wifi workaround \
    workflow workload workspace yaml";

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let splitter = WordSplitter::default();
    let stems = common_words()
        .chain(COMPUTING.split_whitespace())
        .flat_map(|word| splitter.words(word))
        .map(|word| word.stem)
        .collect();
    Lexicon { splitter, stems }
});

/// The common words of English.
pub(super) struct Lexicon {
    /// Splits texts as the rest of the program does.
    pub(super) splitter: WordSplitter,
    stems: HashSet<String>,
}

impl Lexicon {
    /// Returns the one there is; it is made when it is first asked for, which takes some 10 ms.
    pub(super) fn get() -> &'static Self {
        &LEXICON
    }

    /// Tells whether a word, by its stem, is common.
    pub(super) fn is_common(&self, stem: &str) -> bool {
        if stem.chars().all(|letter| letter.is_ascii_digit()) {
            stem.len() < RARE_DIGITS
        } else {
            self.stems.contains(stem) || self.is_derived(stem)
        }
    }

    /// Tells whether a common word is in a stem, with something that makes other words of it before or after.
    fn is_derived(&self, stem: &str) -> bool {
        let is_root = |root: &str| root.len() >= MIN_ROOT && self.stems.contains(root);
        let rest = PREFIXES.iter().filter_map(|prefix| stem.strip_prefix(prefix));
        rest.chain(SUFFIXES.iter().filter_map(|suffix| stem.strip_suffix(suffix))).any(is_root)
    }

    /// Tells whether a lower-case word is rare.
    pub(super) fn is_rare(&self, word: &[char]) -> bool {
        let text: String = word.iter().collect();
        let is_common = || self.splitter.words(&text).iter().all(|word| self.is_common(&word.stem));
        word.len() >= RARE_LETTERS && !is_common()
    }
}
