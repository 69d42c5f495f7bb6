//! The schemas that the steps of a run send, kept in `fixtures/schemas.json`.
//!
//! `tools/local-server/schemas` sends that file to a real server, so a schema changes only together with it. After such
//! a change run the test with `INSTA_UPDATE=always`, and the script.

use serde_json::{Map, Value};

use super::{brief, compress, digest, plan, rerank, skim, verdict, worker, writer};
use crate::llm::schema;

#[test]
fn every_schema_of_a_step_has_a_strict_form_and_is_the_one_tried_with_real_servers() {
    let forms = [
        ("clarification", schema::of::<brief::Clarification>()),
        ("brief", schema::of::<brief::BriefDraft>()),
        ("plan", schema::of::<plan::PlanDraft>()),
        ("skim", schema::of::<skim::SkimDraft>()),
        ("step", schema::of::<worker::StepDraft>()),
        ("digest", schema::of::<digest::DigestDraft>()),
        ("order", schema::of::<rerank::OrderDraft>()),
        ("branch_report", schema::of::<compress::ReportDraft>()),
        ("verdict", schema::of::<verdict::VerdictDraft>()),
        ("outline", schema::of::<writer::OutlineDraft>()),
        ("section", schema::of::<writer::SectionDraft>()),
        ("report", schema::of::<writer::WholeDraft>()),
        ("answer", schema::of::<writer::WriteDraft>()),
        ("answer_with_sections", schema::of::<writer::SummaryDraft>()),
    ];
    let strict = |form: Value| schema::strict(&form).unwrap_or_else(|| panic!("no strict form: {form}"));
    let sent: Map<_, _> = forms.into_iter().map(|(name, form)| (name.to_owned(), strict(form))).collect();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/schemas.json");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(file, format!("{:#}\n", Value::Object(sent.clone()))).unwrap();
    }
    let kept: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for (name, form) in &sent {
        assert_eq!(kept.get(name), Some(form), "{name}");
    }
    assert_eq!(kept.len(), sent.len());
}
