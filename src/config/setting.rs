//! The definition of a setting: its name, valid values, and who may set it.

use figment::value::{Num, Value};
use serde_json::Value as Json;

use super::kind::{Kind, duration, whole};
use crate::base::line::grouped;

/// One setting: one row of [`super::SETTINGS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Name with its table, such as `web.fetch`. `MODEL`, `NAME` and `PATH` are placeholders for names the user
    /// chooses.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its purpose, for `dr config --json` and the manual.
    pub(crate) doc: &'static str,
    /// Default as TOML, if it has one.
    pub(crate) default: Option<&'static str>,
    /// Behaviour if it is unset and has no default. `{}` stands for the value of `in_force`.
    unset: &'static str,
    /// Returns the default of the code that applies it.
    in_force: Option<fn() -> Json>,
    /// Whether a flag has the same name.
    pub(crate) has_flag: bool,
    /// Whether there is a variable `DR_NAME`.
    pub(crate) has_variable: bool,
    /// What a project's file may do with it.
    pub(crate) project: Project,
}

/// What a project's file may do with a setting. Such a file may come with the folder from someone else, so it cannot
/// set anything that contacts a server or loads a file, and it cannot loosen the user's restrictions. Settings that
/// decide the price of a call need the user's trust in the folder, as a key in its `.env` does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Project {
    /// It may set any value, which replaces that of the user.
    May,
    /// It may set any value if the user trusts its folder, else none.
    IfTrusted,
    /// It may not set it.
    MayNot,
    /// It may set values that pass the check. The text describes them.
    Only(fn(&Value) -> bool, &'static str),
    /// The stricter of its value and the user's applies.
    Stricter(Strictness),
}

/// Which of two values of a setting is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    True,
    /// The lower amount or time.
    Lower,
}

impl Strictness {
    /// Returns whether `new` is looser than `old`. Both are valid values of the setting.
    fn is_looser(self, new: &Value, old: &Value) -> bool {
        match self {
            Self::True => old.to_bool() == Some(true) && new.to_bool() == Some(false),
            Self::Lower => match (new.as_str(), old.as_str()) {
                (Some(new), Some(old)) => duration(new) > duration(old),
                _ => whole(new) > whole(old),
            },
        }
    }
}

impl Setting {
    /// Returns a setting that any file may set, without default, flag or variable.
    pub(super) const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            doc,
            default: None,
            unset: "–",
            in_force: None,
            has_flag: false,
            has_variable: false,
            project: Project::May,
        }
    }

    pub(super) const fn default(self, toml: &'static str) -> Self {
        Self { default: Some(toml), ..self }
    }

    /// Describes the behaviour without a value.
    pub(super) const fn unset(self, text: &'static str) -> Self {
        Self { unset: text, ..self }
    }

    /// Takes the default from the code that applies it. A text of [`Self::unset`] after this one has it at `{}`.
    pub(super) const fn in_force(self, value: fn() -> Json) -> Self {
        Self { unset: "{}", in_force: Some(value), ..self }
    }

    /// Adds a flag and a variable.
    pub(super) const fn flag(self) -> Self {
        Self { has_flag: true, has_variable: true, ..self }
    }

    pub(super) const fn variable(self) -> Self {
        Self { has_variable: true, ..self }
    }

    /// Refuses it in a project's file.
    pub(super) const fn user_only(self) -> Self {
        Self { project: Project::MayNot, ..self }
    }

    /// Refuses it in a project's file unless the user trusts its folder.
    pub(super) const fn if_trusted(self) -> Self {
        Self { project: Project::IfTrusted, ..self }
    }

    /// Lets a project's file set only values that pass a check.
    pub(super) const fn project_only(self, check: fn(&Value) -> bool, values: &'static str) -> Self {
        Self { project: Project::Only(check, values), ..self }
    }

    /// Lets a project's file make it stricter.
    pub(super) const fn stricter(self, strictness: Strictness) -> Self {
        Self { project: Project::Stricter(strictness), ..self }
    }

    /// Returns whether a part of its name is chosen by the user.
    pub(crate) fn has_placeholder(&self) -> bool {
        self.name.split('.').any(|part| ["MODEL", "NAME", "PATH"].contains(&part))
    }

    /// Returns the name of its flag, with dashes.
    pub(crate) fn flag_name(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    pub(crate) fn variable_name(&self) -> String {
        format!("DR_{}", self.name.to_uppercase())
    }

    /// Returns its purpose and its valid values.
    pub(crate) fn description(&self) -> String {
        let bounds = self.kind.bounds();
        if bounds.is_empty() { self.doc.to_owned() } else { format!("{}: {bounds}", self.doc) }
    }

    /// Returns the behaviour if it is unset and has no default.
    pub(super) fn unset_text(&self) -> String {
        self.in_force.map_or_else(|| self.unset.to_owned(), |value| self.unset.replace("{}", &stated(&value())))
    }

    /// Returns its table; `None` for a top-level setting.
    pub(crate) fn table(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(table, _)| table)
    }

    /// Returns whether a project's file may set it to `value`.
    pub(super) fn is_open_to_projects(&self, value: &Value, is_trusted: bool) -> bool {
        match self.project {
            // A looser value is no error: `Layer::no_looser_than` drops it.
            Project::May | Project::Stricter(_) => true,
            Project::IfTrusted => is_trusted,
            Project::MayNot => false,
            Project::Only(check, _) => check(value),
        }
    }

    /// Returns whether the user's value takes precedence over a project's.
    pub(super) fn keeps(&self, users: &Value, projects: &Value) -> bool {
        matches!(self.project, Project::Stricter(strictness) if strictness.is_looser(projects, users))
    }

    /// Returns a valid value, as TOML.
    pub(super) fn example(&self) -> String {
        self.default.map_or_else(|| self.kind.example(), str::to_owned)
    }
}

/// Formats a default for the manual: a whole number grouped, a word or switch in backticks.
fn stated(value: &Json) -> String {
    match (value.as_u64(), value.as_str()) {
        (Some(number), _) => grouped(number),
        (None, Some(word)) => format!("`{word}`"),
        (None, None) => format!("`{value}`"),
    }
}

/// Converts the text of a variable to the kind of value a file would have.
pub(super) fn value_of_text(kind: Kind, text: &str) -> Value {
    match kind {
        // A text that is not a number stays text, so that the check of its kind reports the expected values.
        Kind::Whole { .. } => text.trim().parse::<u64>().map_or_else(|_| text.into(), |whole| Num::from(whole).into()),
        Kind::Number { .. } | Kind::Dollars { .. } => {
            text.trim().parse::<f64>().map_or_else(|_| text.into(), |number| Num::from(number).into())
        }
        _ => text.into(),
    }
}
