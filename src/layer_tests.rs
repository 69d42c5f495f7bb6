//! Tests of the order of modules: which layer may use which, and each file only siblings declared before it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::slice;
use std::sync::LazyLock;

use regex::{Captures, Regex};

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// A module of tests ends at the next line that begins with its closing brace.
static COMMENT_OR_TESTS: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?m)^\s*//.*$|^#\[cfg\((?:all\()?test[,)].*\n(?:#.*\n)*(?:pub\S* )?mod \w+(?:;| \{(?s:.*?)\n\})")
});
static BRACES: LazyLock<Regex> = LazyLock::new(|| regex(r"([\w:]+::)\{([^{}]*)\}"));
static DECLARATION: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^(?:pub\S* )?mod (\w+);"));
static IMPORT: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^(?:pub\S* )?use [^;]+;"));
static RENAMED: LazyLock<Regex> = LazyLock::new(|| regex(r"\w+ as (\w+)"));
static PATH: LazyLock<Regex> = LazyLock::new(|| regex(r"\w+(?:::\w+)+"));

/// A module of the crate, without its comments and tests.
struct Module {
    /// The paths in its code, from the root of the crate.
    uses: Vec<Vec<String>>,
    /// The modules it declares, in order.
    declared: Vec<String>,
    /// The position in `declared` of the module that each name is, or is imported from.
    origins: BTreeMap<String, usize>,
}

impl Module {
    fn read(path: &[String]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let folder = path.iter().fold(source, |folder, name| folder.join(name));
        let files = [folder.with_extension("rs"), folder.join("mod.rs"), folder.join("lib.rs")];
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
        let code = written_out(&COMMENT_OR_TESTS.replace_all(&text, ""));
        let declared: Vec<_> = DECLARATION.captures_iter(&code).map(|found| found[1].to_owned()).collect();
        let mut origins = BTreeMap::new();
        for import in IMPORT.find_iter(&code) {
            for imported in paths(path, &RENAMED.replace_all(import.as_str(), "$1")) {
                let Some([module, .., name]) = imported.strip_prefix(path) else { continue };
                origins.extend(declared.iter().position(|other| other == module).map(|at| (name.clone(), at)));
            }
        }
        origins.extend(declared.iter().cloned().enumerate().map(|(at, name)| (name, at)));
        Self { uses: paths(path, &code), declared, origins }
    }
}

/// Each module by its path from the root: `kb::search` is at `["kb", "search"]`.
static MODULES: LazyLock<BTreeMap<Vec<String>, Module>> = LazyLock::new(|| {
    let mut modules = BTreeMap::new();
    let mut unread = vec![Vec::<String>::new()];
    while let Some(path) = unread.pop() {
        let module = Module::read(&path);
        unread.extend(module.declared.iter().map(|name| [&path[..], slice::from_ref(name)].concat()));
        modules.insert(path, module);
    }
    modules
});

/// Writes out the braces of paths: `a::{b, c::{d, e}}` becomes `a::b, a::c::d, a::c::e`.
fn written_out(code: &str) -> String {
    let mut code = code.to_owned();
    while BRACES.is_match(&code) {
        let list = |found: &Captures<'_>| {
            let paths = found[2].split(',').map(|item| format!("{}{}", &found[1], item.trim()));
            paths.collect::<Vec<_>>().join(", ")
        };
        code = BRACES.replace_all(&code, list).into_owned();
    }
    code
}

/// Returns the paths in the code of a module, from the root of the crate.
fn paths(module: &[String], code: &str) -> Vec<Vec<String>> {
    let from_root = |written: &str| {
        let mut path = module.to_vec();
        for name in written.split("::") {
            match name {
                "crate" => path.clear(),
                "super" => drop(path.pop()),
                "self" => {}
                name => path.push(name.to_owned()),
            }
        }
        path
    };
    PATH.find_iter(code).map(|written| from_root(written.as_str())).collect()
}

#[test]
fn paths_are_found_inside_of_braces() {
    let code = "use crate::{kb::{Hit, chunk::{self, Unit}}, llm};\nuse super::line;\nfn f() -> self::c::Role {}";
    let found = paths(&["a".to_owned(), "b".to_owned()], &written_out(code));
    let found: Vec<_> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["kb::Hit", "kb::chunk", "kb::chunk::Unit", "llm", "a::line", "a::b::c::Role"]);
}

/// The table of `ARCHITECTURE.md`: each layer, and the layers above it that it may use.
const LAYERS: [(&str, &str); 13] = [
    ("base", ""),
    ("traces", "base"),
    ("kb", "base"),
    ("llm", "base"),
    ("source", "base traces kb llm"),
    ("research", "base kb llm source"),
    ("run", "base traces kb llm source research"),
    ("render", "base kb llm source research"),
    ("config", "base traces kb llm source research run"),
    ("engine", "base traces kb llm source research run render config"),
    ("mcp", "base render engine"),
    ("serve", "base render engine mcp"),
    ("cli", "base traces render engine mcp serve"),
];

#[test]
fn each_layer_uses_only_the_layers_it_may() {
    let root: &[String] = &[];
    assert_eq!(MODULES[root].declared, LAYERS.map(|(name, _)| name), "the order of `lib.rs`");
    for (path, module) in &*MODULES {
        let Some(layer) = path.first() else { continue };
        let (_, may_use) = LAYERS.iter().find(|(name, _)| name == layer).unwrap();
        for used in module.uses.iter().filter_map(|used| used.first()) {
            let is_allowed = used == layer || may_use.split(' ').any(|other| other == used);
            assert!(is_allowed, "`{}` uses `{used}`", path.join("::"));
        }
    }
}

/// Folders are siblings, too, and no two use each other.
#[test]
fn file_uses_only_siblings_that_are_declared_before_it() {
    let (mut seen, mut late) = (0, BTreeSet::new());
    for (path, module) in &*MODULES {
        for used in &module.uses {
            // The innermost module around both declares the siblings: the one of the user and the one it uses.
            let shared = path.iter().zip(used).take_while(|(own, other)| own == other).count();
            let (Some(user), Some(name)) = (path.get(shared), used.get(shared)) else { continue };
            let Module { declared, origins, .. } = &MODULES[&path[..shared]];
            let Some(&sibling) = origins.get(name).filter(|sibling| declared[**sibling] != *user) else { continue };
            seen += 1;
            if sibling > origins[user] {
                let (path, used) = (path.join("::"), used.join("::"));
                late.insert(format!("`{path}` uses `{used}`: declare `{}` before `{user}`", declared[sibling]));
            }
        }
    }
    assert!(late.is_empty(), "{}", late.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(seen > 1000, "{seen} uses were seen");
}
