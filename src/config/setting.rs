//! The definition of a setting: its name, valid values, and who may set it.

use figment::value::{Num, Value};

use super::kind::Kind;

/// One setting: one row of [`super::SETTINGS`].
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name with its table, such as `web.fetch`. `MODEL` and `NAME` are placeholders for names the user chooses.
    pub name: &'static str,
    /// Valid values.
    pub kind: Kind,
    /// Description for the manual.
    pub doc: &'static str,
    /// Default as TOML, if it has one.
    pub default: Option<&'static str>,
    /// Behaviour if it is unset and has no default.
    pub unset: &'static str,
    /// Whether there is a flag of the same name.
    pub has_flag: bool,
    /// Whether there is a variable `DR_NAME`.
    pub has_variable: bool,
    /// Whether a project's file may set it.
    pub project: Project,
    /// How several layers combine.
    pub layers: Layers,
}

/// Whether a project's file may set a setting. Such a file may come from a stranger with the folder, so it cannot set
/// anything that contacts a server, costs money or loads a file.
#[derive(Clone, Copy, Debug)]
pub enum Project {
    /// It may.
    May,
    /// It may not.
    MayNot,
    /// Only values that pass the check. The text describes them.
    Only(fn(&Value) -> bool, &'static str),
}

/// How the layers that set a setting combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The last layer wins.
    LastWins,
    /// The strictest layer wins: a project can only add restrictions.
    StrictestWins,
    /// The last layer wins; the project's file may not set it.
    UserOnly,
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
            has_flag: false,
            has_variable: false,
            project: Project::May,
            layers: Layers::LastWins,
        }
    }

    /// Sets the default.
    pub(super) const fn default(self, toml: &'static str) -> Self {
        Self { default: Some(toml), ..self }
    }

    /// Describes the behaviour without a value.
    pub(super) const fn unset(self, text: &'static str) -> Self {
        Self { unset: text, ..self }
    }

    /// Adds a flag and a variable.
    pub(super) const fn flag(self) -> Self {
        Self { has_flag: true, has_variable: true, ..self }
    }

    /// Adds a variable.
    pub(super) const fn variable(self) -> Self {
        Self { has_variable: true, ..self }
    }

    /// Refuses it in a project's file.
    pub(super) const fn user_only(self) -> Self {
        Self { project: Project::MayNot, layers: Layers::UserOnly, ..self }
    }

    /// Lets a project's file set only values that pass a check.
    pub(super) const fn project_only(self, check: fn(&Value) -> bool, values: &'static str) -> Self {
        Self { project: Project::Only(check, values), ..self }
    }

    /// Lets the strictest layer win.
    pub(super) const fn strictest(self) -> Self {
        Self { layers: Layers::StrictestWins, ..self }
    }

    /// Returns the name of its flag, with dashes.
    pub fn flag_name(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// Returns the name of its variable.
    pub fn variable_name(&self) -> String {
        format!("DR_{}", self.name.to_uppercase())
    }

    /// Returns its table; `None` for a top-level setting.
    pub fn table(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(table, _)| table)
    }

    /// Returns whether a project's file may set it to `value`.
    pub(super) fn is_open_to_projects(&self, value: &Value) -> bool {
        match self.project {
            Project::May => true,
            Project::MayNot => false,
            Project::Only(check, _) => check(value),
        }
    }

    /// Returns a valid value, as TOML.
    pub(super) fn example(&self) -> String {
        self.default.map_or_else(|| self.kind.example(), str::to_owned)
    }
}

/// Converts the text of a variable to the kind of value a file would have.
pub(super) fn value_of_text(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Whole { .. } => text.trim().parse::<u64>().map_or_else(|_| text.into(), |whole| Num::from(whole).into()),
        Kind::Number { .. } | Kind::Dollars { .. } => {
            text.trim().parse::<f64>().map_or_else(|_| text.into(), |number| Num::from(number).into())
        }
        Kind::Switch
        | Kind::Bool
        | Kind::Text
        | Kind::Name
        | Kind::Address
        | Kind::Variable
        | Kind::Texts
        | Kind::Names
        | Kind::Time
        | Kind::OneOf(_)
        | Kind::Checked { .. } => text.into(),
    }
}
