//! A fixture model that answers any prompt by quoting the text in it.
//!
//! The scripted researcher knows one knowledge base; this one works with any. Its replies are built from the passages,
//! notes and findings in the prompt, so that they pass every check of substance.

#![allow(dead_code, reason = "tests and the example each use a part of it")]

use std::collections::HashSet;

use dr::base::word::WordSplitter;
use dr::research::digest::{SUMMARY, VERBATIM};
use dr::research::evidence::{EvidenceId, marks};
use dr::research::node::{NodeId, SourceHint};
use dr::research::plan::{NodeDraft, PlanDraft};
use dr::research::question::{Aspect, AspectId, Brief, Mode, Question};
use dr::research::rules::{brief_by_rules, plan_by_rules};
use dr::research::sentence::sentences;
use serde_json::{Map, Value, json};

use crate::model_server::Request;
use crate::researcher::{nodes, numbered, task, words_like};

/// Most notes per step.
const MAX_NOTES: usize = 4;

/// Most notes per passage.
const MAX_NOTES_EACH: usize = 2;

/// Most pages opened.
const MAX_OPENED: usize = 3;

/// Most excerpts named per page.
const MAX_PIECES: usize = 4;

/// Most claims per answer.
const MAX_CLAIMS: usize = 8;

/// Words that mark a question as one for the web.
const OUTSIDE: [&str; 14] = [
    "others", "elsewhere", "outside", "web", "public", "published", "industry", "market", "price", "prices", "latest",
    "alternatives", "competitors", "world",
];

pub(crate) fn say(request: &Request) -> String {
    let words = request.said();
    let reader = Reader::of(&words);
    let is_form = |name: &str| request.schema().is_none_or(|schema| schema["properties"].get(name).is_some());
    let value = match request.form() {
        None => return reader.folded(),
        Some("clarification") => json!({ "need": false, "question": "", "verification": "That is clear." }),
        Some("brief") => reader.brief(),
        Some("plan") => reader.plan(),
        Some("skim") => json!({ "answers": [] }),
        Some("step") => reader.step(),
        Some("digest") => reader.digest(),
        Some("branch_report") => reader.branch_report(),
        Some("verdict") => reader.verdict(),
        Some("answer") if is_form("answer") => reader.answer(),
        Some("report") if is_form("sections") => reader.report(),
        Some("outline") => reader.outline(),
        Some("section") => json!({ "text": reader.listed() }),
        Some(_) => request.schema().map_or(Value::Null, |schema| reader.filled(schema, schema, "")),
    };
    value.to_string()
}

/// A claim and the quotes that support it.
#[derive(Clone, Debug)]
struct Claim {
    text: String,
    ids: Vec<String>,
}

/// A parsed prompt.
struct Reader<'a> {
    words: &'a str,
    /// Data blocks of the task: id and text.
    blocks: Vec<(&'a str, &'a str)>,
    aspects: Vec<Aspect>,
    splitter: WordSplitter,
}

impl<'a> Reader<'a> {
    fn of(words: &'a str) -> Self {
        let task = task(words);
        Self { words, blocks: blocks(task), aspects: aspects(task), splitter: WordSplitter::default() }
    }

    /// Returns the rest of the line that starts with a label.
    fn labelled(&self, label: &str) -> Option<&'a str> {
        task(self.words).lines().find_map(|line| line.strip_prefix(label)).map(str::trim)
    }

    fn question(&self) -> &'a str {
        let labels = ["The user's own words: ", "Sub-question: ", "Question: ", "Task: ", "Task of the report: "];
        labels.iter().find_map(|label| self.labelled(label)).unwrap_or("what there is to know")
    }

    fn brief(&self) -> Value {
        let Ok(question) = self.question().parse::<Question>() else {
            return json!({ "task": self.question(), "aspects": [self.question()], "mode": "quick" });
        };
        let brief = brief_by_rules(&question, Mode::Auto, &[]);
        let aspects: Vec<_> = brief.aspects.iter().map(|aspect| &aspect.text).collect();
        json!({ "task": brief.task, "aspects": aspects, "mode": brief.mode })
    }

    /// Plans like the rules, with web nodes if the question needs them.
    fn plan(&self) -> Value {
        let nothing = |why: &str| json!({ "reasoning": why, "new_nodes": [], "updates": [] });
        if self.words.starts_with("You continue the plan") {
            return nothing("What was to be found was found.");
        }
        let Ok(question) = self.question().parse::<Question>() else { return nothing("There is nothing to divide.") };
        let brief = Brief {
            task: self.labelled("Task: ").unwrap_or(question.as_str()).to_owned(),
            question: question.clone(),
            aspects: self.aspects.clone(),
            mode: Mode::Deep,
        };
        let mut plan = plan_by_rules(&brief);
        if plan.new_nodes.is_empty() {
            plan.new_nodes.push(self.node("notes", question.as_str(), SourceHint::Internal));
        }
        let topic = self.splitter.without_stop_words(question.as_str());
        let published = format!("What is published about {topic}?");
        let is_outside = |node: &NodeDraft| node.source_hint != SourceHint::Internal;
        if self.asks_outside() && !plan.new_nodes.iter().any(is_outside) {
            plan.new_nodes.push(self.node("outside", &published, SourceHint::Web));
        }
        // "How do others?" means nothing on its own, and a web worker sees only that.
        let is_vague = |node: &&mut NodeDraft| is_outside(node) && self.stems(&node.question).len() < 3;
        plan.new_nodes.iter_mut().filter(is_vague).for_each(|node| node.question.clone_from(&published));
        plan.reasoning = "One node for each thing that can be looked for by itself.".into();
        json!(PlanDraft { updates: Vec::new(), ..plan })
    }

    fn asks_outside(&self) -> bool {
        let question = self.question().to_lowercase();
        question.split(|letter: char| !letter.is_alphanumeric()).any(|word| OUTSIDE.contains(&word))
    }

    fn node(&self, id: &str, question: &str, source_hint: SourceHint) -> NodeDraft {
        let aspects: Vec<_> = self.aspects.iter().map(|aspect| aspect.id.to_string()).collect();
        let draft = json!({
            "id": id, "question": question, "aspects": aspects, "source_hint": source_hint, "group": id,
            "why": "it is asked for",
        });
        // Cannot fail: a test of the example's plan covers this literal.
        serde_json::from_value(draft).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Searches, opens the pages found, notes the sentences that share most words with the question, then finishes.
    fn step(&self) -> Value {
        let step = |thought: &str, actions: Vec<Value>, done: bool| json!({ "thought": thought, "actions": actions, "done": done });
        if self.calls().any(|call| call.starts_with("notes: ")) {
            return step("That answers it.", Vec::new(), true);
        }
        let pages = self.pages();
        if !pages.is_empty() && !self.calls().any(|call| call.starts_with("open p")) {
            let open = |id: &str| json!({ "tool": "open", "query": null, "passage": id, "quote": null, "text": null, "aspect": null });
            return step("The pages say more.", pages.into_iter().take(MAX_OPENED).map(open).collect(), false);
        }
        let notes = self.notes();
        if !notes.is_empty() {
            return step("These sentences answer it.", notes, true);
        }
        let question = self.question();
        let searched = self.calls().filter(|call| call.starts_with("search ")).count();
        let query = match searched {
            0 => question.to_owned(),
            1 => self.splitter.without_stop_words(question),
            _ => return step("There is nothing to be found.", Vec::new(), true),
        };
        let search =
            json!({ "tool": "search", "query": query, "passage": null, "quote": null, "text": null, "aspect": null });
        step("Nothing is known yet.", vec![search], false)
    }

    /// Returns the earlier steps shown in the prompt.
    fn calls(&self) -> impl Iterator<Item = &'a str> {
        self.blocks.iter().filter(|(id, _)| *id == "call").map(|(_, text)| *text)
    }

    /// Returns the passages that may be search engine snippets, which cannot be checked.
    fn pages(&self) -> Vec<&'a str> {
        if !self.words.contains("by searching") || !self.words.contains("the web (") {
            return Vec::new();
        }
        let (mut found, mut opened, mut is_opened) = (Vec::new(), HashSet::new(), false);
        for (id, text) in &self.blocks {
            match *id {
                "call" => is_opened = text.starts_with("open "),
                id if is_passage(id) && is_opened => drop(opened.insert(id)),
                id if is_passage(id) => found.push(id),
                _ => {}
            }
        }
        found.retain(|id| !opened.contains(id));
        found
    }

    fn notes(&self) -> Vec<Value> {
        let asked = self.stems(self.question());
        let pages = self.pages();
        let mut found = Vec::new();
        for (id, text) in self.blocks.iter().filter(|(id, _)| is_passage(id) && !pages.contains(id)) {
            let text = without_place(text);
            let quotable = sentences(text).into_iter().filter(|sentence| !text[sentence.range.clone()].contains('…'));
            let shared = |words: &str| self.stems(words).intersection(&asked).count();
            let mut best: Vec<_> = quotable.map(|sentence| (shared(&sentence.plain), sentence)).collect();
            best.retain(|(shared, _)| *shared > 0);
            best.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
            found.extend(best.into_iter().take(MAX_NOTES_EACH).map(|(shared, sentence)| (shared, *id, text, sentence)));
        }
        found.sort_by_key(|(shared, ..)| std::cmp::Reverse(*shared));
        let note = |(_, id, text, sentence): (usize, &str, &str, dr::research::sentence::Sentence)| {
            let aspect = self.aspect_of(&sentence.plain);
            json!({
                "tool": "note", "query": null, "passage": id, "quote": &text[sentence.range],
                "text": sentence.plain, "aspect": aspect,
            })
        };
        found.into_iter().take(MAX_NOTES).map(note).collect()
    }

    /// Summarises the best excerpts in words that are not a quote, and names the excerpts.
    fn digest(&self) -> Value {
        let asked = self.stems(self.question());
        let shared = |text: &str| self.stems(text).intersection(&asked).count();
        let numbered = self.blocks.iter().filter_map(|(id, text)| Some((shared(text), id.parse::<u32>().ok()?, *text)));
        let mut best: Vec<_> = numbered.filter(|(shared, ..)| *shared > 0).collect();
        best.sort_by_key(|(shared, ..)| std::cmp::Reverse(*shared));
        best.truncate(MAX_PIECES);
        let first = best.first().map_or("nothing that bears on it", |(_, _, text)| *text);
        let summary: Vec<_> = first.split_whitespace().take(30).collect();
        let pieces: Vec<_> = best.iter().map(|(_, number, _)| number).collect();
        json!({ "summary": format!("The page says in short: {}", summary.join(" ")), "pieces": pieces })
    }

    fn branch_report(&self) -> Value {
        let claims = self.claims();
        json!({
            "summary": prose(&claims, 3),
            "findings": self.findings(&claims),
            "confidence": 0.75,
            "open_questions": [],
        })
    }

    fn verdict(&self) -> Value {
        let missing: Vec<_> = self
            .aspects
            .iter()
            .map(|aspect| aspect.id.to_string())
            .filter(|id| self.words.contains(&format!("aspect {id} has no finding")))
            .collect();
        let done = |id: &String| self.words.contains(&format!("- {id} (done"));
        let relied_on: Vec<_> = nodes(self.words).into_iter().filter(done).collect();
        json!({
            "is_complete": missing.is_empty() && !relied_on.is_empty(),
            "recommend_more_iterations": false,
            "missing_aspects": missing,
            "weak_evidence_areas": [],
            "overall_confidence": 0.75,
            "relied_on": relied_on,
        })
    }

    fn answer(&self) -> Value {
        let claims = self.claims();
        json!({
            "answer": prose(&claims, MAX_CLAIMS),
            "findings": self.findings(&claims[..claims.len().min(MAX_CLAIMS)]),
            "contradictions": [],
            "open_questions": [],
            "limitations": ["This was written by a program that repeats quotes and understands none of them."],
            "confidence": 0.7,
        })
    }

    fn report(&self) -> Value {
        let mut report = self.answer();
        report["sections"] = json!([{ "title": "What was found", "text": self.listed() }]);
        report
    }

    fn outline(&self) -> Value {
        let found: Vec<_> = self.blocks.iter().filter(|(id, _)| id.parse::<NodeId>().is_ok()).collect();
        let per_section = found.len().div_ceil(6).max(1);
        let section = |nodes: &[&(&str, &str)]| {
            let title: String = nodes[0].1.lines().next().unwrap_or("What was found").chars().take(70).collect();
            let findings: Vec<_> = nodes.iter().flat_map(|(_, text)| numbered(text)).collect();
            json!({ "title": title.trim_end_matches('?'), "findings": findings })
        };
        json!({ "sections": found.chunks(per_section).map(section).collect::<Vec<_>>() })
    }

    fn listed(&self) -> String {
        let lines = self.claims().into_iter().map(|claim| format!("- {}", claim.marked()));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Keeps as many cited claims as fit, or the plain text if nothing is cited.
    fn folded(&self) -> String {
        let room = self.words.split("At most ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let mut room: usize = room.unwrap_or(200);
        let claims = self.claims();
        let texts: Vec<_> = if claims.is_empty() {
            self.blocks.iter().flat_map(|(_, text)| sentences(text)).map(|sentence| sentence.plain).collect()
        } else {
            claims.iter().map(Claim::marked).collect()
        };
        let mut kept = Vec::new();
        for text in texts {
            let length = text.split_whitespace().count();
            if length > room {
                break;
            }
            room -= length;
            kept.push(text);
        }
        if kept.is_empty() { "ready".into() } else { kept.join(" ") }
    }

    /// Returns all cited claims, each quote once: the first claim of every node, then the others.
    fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for (id, text) in &self.blocks {
            if is_evidence(id) {
                let quote = text.lines().find_map(|line| line.strip_prefix("Quote: "));
                let first = text.lines().next().unwrap_or_default();
                let text =
                    if first.is_empty() || first.starts_with("Quote: ") { quote.unwrap_or(first) } else { first };
                claims.push(Claim { text: without_aspect(text).to_owned(), ids: vec![(*id).to_owned()] });
            } else {
                claims.extend(text.lines().flat_map(cited));
            }
        }
        let mut known = HashSet::new();
        claims.retain(|claim| {
            claim.ids.iter().any(|id| known.insert(id.clone())) && claim.text.contains(char::is_alphabetic)
        });
        let place = |claim: &Claim| {
            let (node, number) = claim.ids[0].trim_start_matches('n').split_once('e').unwrap_or_default();
            (number.parse::<usize>().unwrap_or(0), node.parse::<usize>().unwrap_or(0))
        };
        claims.sort_by_key(place);
        claims
    }

    fn findings(&self, claims: &[Claim]) -> Vec<Value> {
        let finding =
            |claim: &Claim| json!({ "text": claim.text, "evidence": claim.ids, "aspect": self.aspect_of(&claim.text) });
        claims.iter().map(finding).collect()
    }

    /// Returns the aspect that shares most words with a text, or the first one if none shares any.
    fn aspect_of(&self, text: &str) -> Option<String> {
        let stems = self.stems(text);
        let shared = |aspect: &&Aspect| self.stems(&aspect.text).intersection(&stems).count();
        // `max_by_key` returns the last maximum, so the order is reversed.
        self.aspects.iter().rev().max_by_key(shared).map(|aspect| aspect.id.to_string())
    }

    fn stems(&self, text: &str) -> HashSet<String> {
        self.splitter.key_stems(text).into_iter().collect()
    }

    /// Fills in a caller's schema from the findings.
    fn filled(&self, schema: &Value, whole: &Value, name: &str) -> Value {
        if let Some(place) = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
            return whole.pointer(place).map_or(Value::Null, |schema| self.filled(schema, whole, name));
        }
        if let Some(first) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return first.clone();
        }
        let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array()?.first());
        if let Some(choice) = choices {
            return self.filled(choice, whole, name);
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"].get(0)?.as_str());
        let properties = schema["properties"].as_object();
        match kind {
            Some("array") => json!([self.filled(&schema["items"], whole, name)]),
            Some("integer") => json!(numbers(task(self.words)).max().unwrap_or(1)),
            Some("number") => json!(0.5),
            Some("boolean") => json!(true),
            Some("null") => Value::Null,
            Some("string") => self.claims().first().map_or_else(
                || json!(self.question()),
                |claim| {
                    let is_id = ["evidence", "source", "id"].iter().any(|word| name.contains(word));
                    if is_id { json!(claim.ids[0]) } else { json!(claim.text) }
                },
            ),
            _ => {
                let filled = properties.into_iter().flatten();
                filled
                    .map(|(name, schema)| (name.clone(), self.filled(schema, whole, name)))
                    .collect::<Map<_, _>>()
                    .into()
            }
        }
    }
}

impl Claim {
    fn marked(&self) -> String {
        let text = self.text.trim();
        let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
        format!("{text}{end} [{}]", self.ids.join(", "))
    }
}

/// Returns the first claims as one paragraph.
fn prose(claims: &[Claim], most: usize) -> String {
    claims.iter().take(most).map(Claim::marked).collect::<Vec<_>>().join(" ")
}

/// Returns the text before each citation of a line.
fn cited(line: &str) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let (mut from, mut last) = (0, 0);
    for (range, id) in marks(line) {
        if range.start == last && !claims.is_empty() {
            let known = claims.len() - 1;
            claims[known].ids.push(id.to_string());
            continue;
        }
        let text = line[from..range.start].trim_start_matches(['.', '-', '*', ' ', ',', ';']).trim();
        claims.push(Claim { text: text.to_owned(), ids: vec![id.to_string()] });
        (last, from) = (range.start, range.end);
    }
    claims
}

/// Returns the data blocks, in order.
fn blocks(task: &str) -> Vec<(&str, &str)> {
    let block = |rest: &'_ str| -> Option<(usize, usize, usize)> {
        let quote = rest.find("\">\n")?;
        let end = rest[quote + 3..].find("\n</data>")?;
        Some((quote, quote + 3, quote + 3 + end))
    };
    let starts = task.match_indices("<data id=\"").map(|(at, mark)| &task[at + mark.len()..]);
    starts.filter_map(|rest| block(rest).map(|(id, from, to)| (&rest[..id], &rest[from..to]))).collect()
}

/// Parses the list of aspects (`- a1: cost`).
fn aspects(task: &str) -> Vec<Aspect> {
    let aspect = |line: &str| {
        let (id, text) = line.strip_prefix("- ")?.split_once(": ")?;
        let is_id = id.strip_prefix('a').is_some_and(|number| number.parse::<usize>().is_ok());
        is_id.then(|| Aspect { id: AspectId::named(id), text: text.trim_end_matches("(missing)").trim().to_owned() })
    };
    task.lines().filter_map(aspect).collect()
}

/// Returns the text of a passage without its location and headings.
fn without_place(passage: &str) -> &str {
    let Some((place, mut text)) = passage.split_once('\n').filter(|(place, _)| place.starts_with("From: ")) else {
        return passage;
    };
    // The summary of a page is not part of the page.
    if let Some((_, page)) = text.split_once(VERBATIM).filter(|_| text.starts_with(SUMMARY)) {
        return page.trim_start();
    }
    for heading in place.trim_start_matches("From: ").split(['›', '—']).map(str::trim) {
        text = text.trim_start().trim_start_matches("# ").strip_prefix(heading).unwrap_or(text);
    }
    text
}

/// Removes a trailing aspect id, `(a1)`.
fn without_aspect(text: &str) -> &str {
    let Some((before, last)) = text.trim_end().rsplit_once(" (a") else { return text };
    let is_id = last.strip_suffix(')').is_some_and(|number| number.parse::<usize>().is_ok());
    if is_id { before } else { text }
}

fn numbers(text: &str) -> impl Iterator<Item = i64> {
    words_like(text, |word| word.parse::<i64>().is_ok()).into_iter().filter_map(|word| word.parse().ok())
}

fn is_evidence(id: &str) -> bool {
    id.parse::<EvidenceId>().is_ok()
}

fn is_passage(id: &str) -> bool {
    id.strip_prefix('p').is_some_and(|number| number.parse::<usize>().is_ok())
}
