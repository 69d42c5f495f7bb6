//! Quotes of earlier runs, shown to the skim of a later one.

use futures::future::BoxFuture;
use tempfile::TempDir;

use super::super::journal::CallState;
use super::super::orchestrator::Sources;
use super::*;
use crate::kb::embed::builtin_for_tests;
use crate::llm::call::CallKey;
use crate::research::skim::SkimPassage;
use crate::researcher::ScriptedSource;
use crate::source::{Documents, Found, Passage, Place, Source, SourceError, SourceFile};

/// The topics, of which one file has changed, and another is not searched.
struct Partly {
    changed: &'static str,
    left_out: &'static str,
}

impl Documents for Partly {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        ScriptedSource.open(id)
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        let is_changed = matches!(place, Place::Kb { path, .. } if path == self.changed);
        if is_changed { Box::pin(async { SourceFile::Changed }) } else { ScriptedSource.read(place) }
    }
}

impl Source for Partly {
    fn name(&self) -> &'static str {
        "kb"
    }

    fn scope(&self) -> String {
        "some files of kb".into()
    }

    fn version(&self) -> String {
        "2".into()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let mut found = ScriptedSource.search(query, limit).await?;
            found.passages.retain(|hit| !matches!(&hit.place, Place::Kb { path, .. } if path == self.left_out));
            Ok(found)
        })
    }
}

/// Returns a world with a memory, which is in the folder.
async fn with_memory(folder: &TempDir) -> World {
    let recall = Recall::open(folder.path(), builtin_for_tests(), Arc::new(|error| panic!("{error}"))).await;
    World { recall, ..World::new(Researcher { nodes: 1, more_nodes: 0 }) }
}

/// Lets an earlier run find quotes on topics.
async fn earlier_run(world: &World, bits: u64, topics: usize) {
    let model = ScriptedModel::new(Researcher { nodes: topics, more_nodes: 0 }, Duration::ZERO);
    let resources = Resources { models: Some(model.models()), ..world.resources() };
    let question = "What is said of the topics, and how are they described?".parse().unwrap();
    let run = Orchestrator::start(RunId::random(bits), question, world.settings(), resources);
    run.await.unwrap().conduct().await.unwrap();
}

/// Asks a question that is similar to what earlier runs quoted.
async fn ask(settings: RunSettings, resources: Resources) -> Result<StopReason, RunError> {
    let question = "How are the topics described in full, each as an item of many?".parse().unwrap();
    Orchestrator::start(World::run(), question, settings, resources).await?.conduct().await
}

/// Returns what the run was shown of earlier runs: the path and the origin of each quote, one list for each record.
async fn shown(world: &World) -> Vec<Vec<(String, String)>> {
    let results = world.store.journal().lookup_results(&World::run()).await.unwrap();
    let lists = results.iter().filter_map(|result| serde_json::from_str::<Vec<SkimPassage>>(result).ok());
    let about = |shown: SkimPassage| {
        let Place::Kb { path, .. } = shown.passage.place else { panic!("a page was shown: {shown:#?}") };
        assert!(shown.passage.text.starts_with("Topic ") && shown.passage.id == path.trim_end_matches(".md"));
        (path, shown.origin.unwrap())
    };
    lists.map(|list| list.into_iter().map(about).collect()).collect()
}

#[tokio::test]
async fn quotes_of_earlier_runs_are_shown_if_they_are_true_and_the_run_may_find_them() {
    let folder = tempfile::tempdir().unwrap();
    let world = with_memory(&folder).await;
    earlier_run(&world, 9, 6).await;
    let resources = Resources {
        sources: Sources {
            internal: Arc::new(Partly { changed: "topic-2.md", left_out: "topic-4.md" }),
            ..world.resources().sources
        },
        ..world.resources()
    };
    ask(world.settings(), resources).await.unwrap();
    let [list] = shown(&world).await.try_into().unwrap();
    let mut paths: Vec<_> = list.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["topic-1.md", "topic-3.md", "topic-5.md", "topic-6.md"]);
    assert!(list.iter().all(|(_, origin)| origin == "found by run 0000000000000009 on 1970-01-01"), "{list:?}");
}

#[tokio::test]
async fn no_quote_of_an_earlier_run_is_shown_unless_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let world = with_memory(&folder).await;
    earlier_run(&world, 9, 2).await;
    ask(RunSettings { reuse: false, ..world.settings() }, world.resources()).await.unwrap();
    assert_eq!(shown(&world).await, Vec::<Vec<_>>::new());
}

#[tokio::test]
async fn resumed_run_is_shown_what_it_was_shown_before_whatever_was_found_since() {
    let folder = tempfile::tempdir().unwrap();
    let whole = with_memory(&folder).await;
    earlier_run(&whole, 9, 2).await;
    let journal = whole.store.journal().clone();
    journal.kill_after(i64::MAX);
    ask(whole.settings(), whole.resources()).await.unwrap();
    let writes = i64::MAX - journal.writes_left();
    let mut interrupted = 0;
    for survived in (0..writes).step_by(5) {
        let folder = tempfile::tempdir().unwrap();
        let world = with_memory(&folder).await;
        earlier_run(&world, 9, 2).await;
        world.store.journal().kill_after(survived);
        let killed = ask(world.settings(), world.resources()).await;
        assert!(killed.is_err(), "killed after {survived} of {writes} writes, and went on");
        world.store.journal().kill_after(i64::MAX);
        let before = shown(&world).await;
        if before.is_empty() {
            continue;
        }
        interrupted += 1;
        earlier_run(&world, 10, 3).await;
        world.resume(None).await.unwrap();
        assert_eq!(shown(&world).await, before, "killed after {survived} writes");
        let calls = world.store.journal().calls(&World::run()).await.unwrap();
        let skims = calls.iter().filter(|call| call.key == CallKey::new("skim") && call.state() == CallState::Replied);
        assert_eq!(skims.count(), 1, "killed after {survived} writes");
    }
    assert!(interrupted > 1, "{interrupted} of {writes}");
}
