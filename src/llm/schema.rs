//! JSON Schemas: of a Rust type, in the strict form that endpoints enforce, and without descriptions.

use std::time::Duration;

use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::base::bounded::{TooSlow, within};

/// Keywords kept in the strict form, besides the structural ones: those that OpenAI lists as supported. It refuses
/// schemas with some of the others, such as `default`.
const KEPT: [&str; 13] = [
    "type", "enum", "const", "description", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "format",
];

/// String formats supported by endpoints, as listed by OpenAI.
const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Annotations, which do not constrain a value.
const WORDS: [&str; 5] = ["description", "title", "examples", "default", "$comment"];

/// Maximum nesting of objects and lists in a strict form, set by OpenAI.
const STRICT_DEPTH: usize = 10;

/// Maximum number of values in all enumerations of a strict form, set by OpenAI.
const STRICT_CHOICES: usize = 1_000;

/// Openings of look-around in a regular expression, which endpoints refuse.
const LOOK_AROUND: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];

/// Largest schema that is compiled, in bytes of JSON.
const MAX_BYTES: usize = 256 * 1024;

/// Maximum nesting of a schema.
const MAX_DEPTH: usize = 48;

/// Maximum number of objects in a schema, nearly all of which are subschemas.
const MAX_OBJECTS: usize = 4_000;

/// Maximum number of alternatives of a schema examined for one value. References can multiply a few into millions.
const MAX_CHOICES: usize = 1_000;

const COMPILE_TIME: Duration = Duration::from_secs(2);

/// A schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("it has more than {limit} {what}")]
    TooLarge { what: &'static str, limit: usize },
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    #[error("{0}")]
    Invalid(String),
}

/// Compiles a schema, within limits on size, depth, branches and time. References to other documents are refused.
pub(crate) fn compile(schema: &Value) -> Result<Validator, SchemaError> {
    check_size(schema)?;
    // The thread owns its copy, since it may outlive this call.
    let schema = schema.clone();
    let compiled = within(COMPILE_TIME, move || {
        jsonschema::validator_for(&schema).map_err(|error| SchemaError::Invalid(error.to_string()))
    });
    compiled?
}

fn check_size(schema: &Value) -> Result<(), SchemaError> {
    let too_large = |what, limit| Err(SchemaError::TooLarge { what, limit });
    let (mut bytes, mut objects) = (0, 0);
    // An explicit stack: a schema comes from a user or a model and may be nested deeply.
    let mut open = vec![(schema, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return too_large("nested levels", MAX_DEPTH);
        }
        match value {
            Value::Object(members) => {
                objects += 1;
                // About the bytes of the JSON: quotes, colon and comma are the 4.
                bytes += members.keys().map(|name| name.len() + 4).sum::<usize>();
                open.extend(members.values().map(|value| (value, depth + 1)));
            }
            Value::Array(items) => open.extend(items.iter().map(|value| (value, depth + 1))),
            Value::String(text) => bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => bytes += 4,
        }
        if objects > MAX_OBJECTS {
            return too_large("subschemas", MAX_OBJECTS);
        }
        if bytes > MAX_BYTES {
            return too_large("bytes", MAX_BYTES);
        }
    }
    Ok(())
}

/// Returns the schema of a type. Its doc comments become descriptions and are part of the prompt.
pub(crate) fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the strict form of a schema: every property required, no others allowed, only keywords that endpoints
/// support.
///
/// An optional property without a default becomes nullable; [`drop_nulls`] removes such nulls from a reply. Unsupported
/// constraints are dropped, because every reply is checked against the original schema as well. Returns `None` if the
/// schema has no strict form: it is not an object, allows members of arbitrary names, or exceeds the limits of
/// endpoints.
pub(crate) fn strict(schema: &Value) -> Option<Value> {
    let mut form = tightened(schema)?;
    if let Some(definitions) = schema.get("$defs") {
        let each = definitions.as_object()?.iter();
        let each = each
            .map(|(name, schema)| Some((name.clone(), Value::Object(tightened(schema)?))))
            .collect::<Option<Map<_, _>>>()?;
        form.insert("$defs".into(), each.into());
    }
    let form = Value::Object(form);
    let fits = depth(&form) <= STRICT_DEPTH && enumerated(&form) <= STRICT_CHOICES;
    (form.get("type")? == "object" && fits).then_some(form)
}

/// Returns the nesting of objects and lists in a strict form. A reference counts as a separate level.
fn depth(form: &Value) -> usize {
    let own = usize::from(["properties", "items"].iter().any(|key| form.get(key).is_some()));
    let below = |key: &str| match form.get(key) {
        Some(Value::Object(members)) if key != "items" => members.values().map(depth).max().unwrap_or(0),
        Some(Value::Array(choices)) => choices.iter().map(depth).max().unwrap_or(0),
        Some(items) => depth(items),
        None => 0,
    };
    let nested = ["properties", "items", "anyOf"].into_iter().map(below).max().unwrap_or(0);
    (own + nested).max(below("$defs"))
}

/// Returns the number of values of all enumerations in a strict form.
fn enumerated(form: &Value) -> usize {
    match form {
        Value::Object(members) => {
            let own = members.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
            own + members.iter().filter(|(key, _)| *key != "enum").map(|(_, value)| enumerated(value)).sum::<usize>()
        }
        Value::Array(values) => values.iter().map(enumerated).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn tightened(schema: &Value) -> Option<Map<String, Value>> {
    let schema = schema.as_object()?;
    if let Some(reference) = schema.get("$ref") {
        // Endpoints reject other keywords next to a reference.
        let is_local =
            reference.as_str().is_some_and(|reference| reference == "#" || reference.starts_with("#/$defs/"));
        return is_local.then(|| Map::from_iter([("$ref".to_owned(), reference.clone())]));
    }
    // Generators wrap a reference like this to add a description.
    if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return tightened(only);
    }
    let kept = schema.iter().filter(|(key, value)| KEPT.contains(&key.as_str()) && is_enforceable(key, value));
    let mut form: Map<_, _> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(choices) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        // OpenAI accepts `anyOf` but not `oneOf`; the reply is checked against the original.
        let choices = choices.as_array()?.iter().map(|choice| tightened(choice).map(Value::Object));
        form.insert("anyOf".into(), choices.collect::<Option<Vec<_>>>()?.into());
        form.remove("type");
    }
    if let Some(items) = schema.get("items") {
        form.insert("items".into(), tightened(items)?.into());
    }
    let has_choices = form.contains_key("anyOf");
    if is_type(schema, "object") {
        match schema.contains_key("properties") {
            // The choices have the properties.
            false if has_choices => {}
            // Neither side allows properties of the other, so no object would fit.
            true if has_choices => return None,
            _ => form.extend(members(schema)?),
        }
    }
    // A schema without a constraint, or a list of anything, cannot be enforced.
    let says_something = ["type", "enum", "const", "anyOf"].iter().any(|key| form.contains_key(*key));
    let is_whole = !is_type(schema, "array") || has_choices || form.contains_key("items");
    (says_something && is_whole).then_some(form)
}

/// Returns the strict form of an object's properties, or `None` if it allows arbitrary names.
fn members(schema: &Map<String, Value>) -> Option<Map<String, Value>> {
    let is_open = schema.get("additionalProperties").is_some_and(|others| !others.is_boolean())
        || schema.contains_key("patternProperties");
    let properties = schema.get("properties")?.as_object()?;
    if is_open {
        return None;
    }
    let mut strict = Map::new();
    for (name, property) in properties {
        let form = Value::Object(tightened(property)?);
        let is_needed = is_required(schema, name) || property.get("default").is_some();
        strict.insert(name.clone(), if is_needed { form } else { nullable(form) });
    }
    let names: Vec<_> = strict.keys().cloned().collect();
    Some(Map::from_iter([
        ("properties".to_owned(), Value::Object(strict)),
        ("required".to_owned(), names.into()),
        ("additionalProperties".to_owned(), Value::Bool(false)),
    ]))
}

// References are not resolved here: one to a nullable schema gets a second null, which is valid.
fn nullable(form: Value) -> Value {
    if accepts_null(&form, &form) { form } else { json!({ "anyOf": [form, { "type": "null" }] }) }
}

/// Returns whether endpoints enforce a value of this keyword; the reply is checked against all keywords anyway.
fn is_enforceable(key: &str, value: &Value) -> bool {
    match key {
        "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format)),
        "pattern" => value.as_str().is_some_and(|pattern| !LOOK_AROUND.iter().any(|mark| pattern.contains(mark))),
        _ => true,
    }
}

fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|required| required == name))
}

/// Returns whether a schema allows a type, alone or among others.
fn is_type(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    }
}

/// Returns a schema without annotations. Small models follow the shorter schema more often.
pub(crate) fn bare(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| !WORDS.contains(&key.as_str()));
            let bared = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                // A property may be named like an annotation.
                ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                    let named = named.iter().map(|(name, schema)| (name.clone(), bare(schema)));
                    (key.clone(), Value::Object(named.collect()))
                }
                // A value, which may look like a schema.
                ("const" | "enum", _) => (key.clone(), value.clone()),
                _ => (key.clone(), bare(value)),
            };
            Value::Object(kept.map(bared).collect())
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Removes null members that the schema allows to be absent but not to be null.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Value) {
    drop_nulls_of(value, schema, schema);
}

fn drop_nulls_of(value: &mut Value, schema: &Value, root: &Value) {
    for schema in choices(schema, root) {
        match value {
            Value::Object(members) => {
                let Some(properties) = schema.get("properties").and_then(Value::as_object) else { continue };
                let is_needed = |name: &str| schema.as_object().is_some_and(|schema| is_required(schema, name));
                members.retain(|name, member| {
                    let property = properties.get(name);
                    !member.is_null() || is_needed(name) || property.is_none_or(|property| accepts_null(property, root))
                });
                for (name, member) in members {
                    if let Some(property) = properties.get(name) {
                        drop_nulls_of(member, property, root);
                    }
                }
            }
            Value::Array(items) => {
                let Some(each) = schema.get("items") else { continue };
                for item in items {
                    drop_nulls_of(item, each, root);
                }
            }
            _ => {}
        }
    }
}

/// Returns the schema and its alternatives, with references resolved. At most [`MAX_CHOICES`]: references may be
/// cyclic.
fn choices<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![schema];
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        at += 1;
        let referred = schema.get("$ref").and_then(|reference| resolved(reference, root));
        let among = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
        let room = MAX_CHOICES - found.len();
        let deeper: Vec<_> = referred.into_iter().chain(among).take(room).collect();
        found.extend(deeper);
    }
    found
}

fn resolved<'a>(reference: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

/// Returns whether null is among the values of a schema, looking at up to [`MAX_CHOICES`] alternatives.
fn accepts_null(schema: &Value, root: &Value) -> bool {
    let mut open = vec![schema];
    for _ in 0..MAX_CHOICES {
        let Some(schema) = open.pop() else { return false };
        let Some(object) = schema.as_object() else {
            if schema == &Value::Bool(true) {
                return true;
            }
            continue;
        };
        let among = ["anyOf", "oneOf"].iter().find_map(|key| object.get(*key)?.as_array());
        if let Some(target) = object.get("$ref").and_then(|reference| resolved(reference, root)) {
            open.push(target);
        } else if let Some(among) = among {
            open.extend(among.iter().take(MAX_CHOICES));
        } else if is_null_allowed(object) {
            return true;
        }
    }
    false
}

/// Returns whether a schema without alternatives allows null.
fn is_null_allowed(schema: &Map<String, Value>) -> bool {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => only.is_null(),
        (None, Some(several)) => several.contains(&Value::Null),
        (None, None) => !schema.contains_key("type") && !schema.contains_key("$ref") || is_type(schema, "null"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only their schema matters")]
    struct Step {
        /// What was thought.
        thought: String,
        #[serde(default)]
        actions: Vec<Action>,
        confidence: Option<f32>,
        again: Option<Box<Step>>,
    }

    /// What to do.
    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "do", rename_all = "lowercase")]
    #[expect(dead_code, reason = "only their schema matters")]
    enum Action {
        Search {
            query: String,
            limit: u32,
        },
        /// Enough.
        Done,
    }

    fn each_object(schema: &Value, seen: &mut Vec<Value>) {
        match schema {
            Value::Object(members) => {
                if members.get("type") == Some(&json!("object")) {
                    seen.push(schema.clone());
                }
                members.values().for_each(|value| each_object(value, seen));
            }
            Value::Array(items) => items.iter().for_each(|value| each_object(value, seen)),
            _ => {}
        }
    }

    #[test]
    fn strict_form_requires_every_property_and_allows_no_other() {
        let strict = strict(&of::<Wrapper>()).unwrap();
        let mut objects = Vec::new();
        each_object(&strict, &mut objects);
        assert!(objects.len() >= 4, "{strict:#}");
        for object in objects {
            let names: Vec<_> = object["properties"].as_object().unwrap().keys().collect();
            assert_eq!(object["required"], json!(names));
            assert_eq!(object["additionalProperties"], json!(false));
        }
        let text = strict.to_string();
        for word in ["oneOf", "\"title\"", "uint32", "\"default\"", "$schema"] {
            assert!(!text.contains(word), "{word} in {strict:#}");
        }
        assert!(text.contains("What was thought."), "descriptions help the model");
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only their schema matters")]
    struct Wrapper {
        step: Step,
        note: Option<String>,
    }

    #[test]
    fn property_that_may_be_absent_may_be_null_unless_it_has_a_default() {
        let strict = strict(&json!({
            "type": "object",
            "properties": { "a": { "type": "string" }, "b": { "type": "string" }, "c": { "type": "array", "items": { "type": "string" }, "default": [] } },
            "required": ["a"],
        }))
        .unwrap();
        assert_eq!(strict["properties"]["a"], json!({ "type": "string" }));
        assert_eq!(strict["properties"]["b"], json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }));
        assert_eq!(strict["properties"]["c"], json!({ "type": "array", "items": { "type": "string" } }));
    }

    #[test]
    fn choices_may_have_the_properties_of_an_object() {
        let choice =
            |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
        let of = |more: Value| {
            let mut either = json!({ "type": "object", "anyOf": [choice("a"), choice("b")] });
            either.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            strict(&json!({ "type": "object", "properties": { "either": either }, "required": ["either"] }))
        };
        let strict = of(json!({})).unwrap();
        let choices = strict.pointer("/properties/either/anyOf").unwrap();
        assert_eq!(choices[0]["required"], json!(["a"]), "{strict:#}");
        assert_eq!(of(json!({ "properties": { "c": { "type": "string" } } })), None, "no choice allows `c`");
    }

    #[test]
    fn form_that_cannot_be_said_strictly_has_no_strict_form() {
        for schema in [
            json!(true),
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": { "a": {} } }),
            json!({ "type": "object", "properties": { "a": { "$ref": "https://elsewhere.example/a.json" } } }),
            of::<BTreeMap<String, String>>(),
        ] {
            assert_eq!(strict(&schema), None, "{schema}");
        }
    }

    #[test]
    fn form_beyond_the_limits_of_endpoints_has_no_strict_form() {
        let object = |property: Value| json!({ "type": "object", "properties": { "a": property }, "required": ["a"] });
        let nested = |levels: usize| (0..levels).fold(json!({ "type": "string" }), |inner, _| object(inner));
        assert!(strict(&nested(STRICT_DEPTH)).is_some());
        assert_eq!(strict(&nested(STRICT_DEPTH + 1)), None);
        let choices = |number: usize| object(json!({ "enum": (0..number).collect::<Vec<_>>() }));
        assert!(strict(&choices(STRICT_CHOICES)).is_some());
        assert_eq!(strict(&choices(STRICT_CHOICES + 1)), None);
        let pattern = |pattern: &str| strict(&object(json!({ "type": "string", "pattern": pattern }))).unwrap();
        assert_eq!(pattern("^a+$")["properties"]["a"]["pattern"], "^a+$");
        assert_eq!(
            pattern("^(?!b)")["properties"]["a"],
            json!({ "type": "string" }),
            "the reply is checked all the same"
        );
    }

    #[test]
    fn nulls_are_dropped_where_the_form_wants_absence() {
        let schema = of::<Wrapper>();
        let mut value = json!({
            "step": { "thought": "t", "actions": null, "confidence": null, "again": { "thought": "u", "actions": null } },
            "note": null,
            "more": null,
        });
        drop_nulls(&mut value, &schema);
        let expected = json!({
            "step": { "thought": "t", "confidence": null, "again": { "thought": "u" } },
            "note": null,
            "more": null,
        });
        assert_eq!(value, expected);
        assert!(serde_json::from_value::<Wrapper>(value).is_ok());
    }

    #[test]
    fn schema_of_many_branches_is_refused_before_it_is_compiled() {
        fn nested(depth: u32) -> Value {
            if depth == 0 {
                json!({ "type": "string" })
            } else {
                json!({ "anyOf": [nested(depth - 1), nested(depth - 1)] })
            }
        }
        let reason = |schema: &Value| compile(schema).map(drop).unwrap_err().to_string();
        assert_eq!(reason(&nested(12)), "it has more than 4000 subschemas");
        assert!(compile(&nested(8)).is_ok());
        let deep = (0..50).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert_eq!(reason(&deep), "it has more than 48 nested levels");
        let long = json!({ "enum": ["a".repeat(MAX_BYTES + 1)] });
        assert_eq!(reason(&long), "it has more than 262144 bytes");
        assert!(reason(&json!({ "$ref": "https://elsewhere.example/a.json" })).contains("elsewhere.example"));
    }

    #[test]
    fn references_that_multiply_are_followed_up_to_a_limit() {
        let double = |to: usize| json!({ "anyOf": [{ "$ref": format!("#/$defs/d{to}") }, { "$ref": format!("#/$defs/d{to}") }] });
        let mut definitions: Map<String, Value> = (0..40).map(|at| (format!("d{at}"), double(at + 1))).collect();
        definitions.insert("d40".into(), json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": definitions });
        assert_eq!(choices(&schema, &schema).len(), MAX_CHOICES);
        assert!(!accepts_null(&schema, &schema));
        let endless = json!({ "$ref": "#" });
        assert_eq!(choices(&endless, &endless).len(), MAX_CHOICES);
        assert!(!accepts_null(&endless, &endless));
        drop_nulls(&mut json!({ "a": null }), &schema);
    }

    #[test]
    fn bare_form_has_no_explanations_and_keeps_a_property_named_like_one() {
        let schema = json!({
            "title": "T", "description": "D", "type": "object",
            "properties": { "title": { "type": "string", "description": "the title" } },
        });
        let expected = json!({ "type": "object", "properties": { "title": { "type": "string" } } });
        assert_eq!(bare(&schema), expected);
    }
}
