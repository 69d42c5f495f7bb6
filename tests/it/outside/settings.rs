use super::{greenhouse, set};
use crate::common::{Run, World};

/// A secret that must not be printed, even if it was put into the wrong setting.
const SECRET: &str = "sk-secret-0123456789";

/// Runs `dr` with a user settings file.
fn with(world: &World, settings: &str, args: &[&str]) -> Run {
    set(world, settings);
    let run = world.dr(args);
    assert!(!format!("{run}").contains(SECRET), "{settings}: {run}");
    run
}

/// Returns the path of the user settings file as errors print it.
fn file(world: &World) -> String {
    world.settings_file().display().to_string()
}

#[test]
fn invalid_table_is_reported_with_its_file_in_plain_words() {
    let world = World::empty();
    for (settings, said) in [
        ("[web]\nfetsh = true", "`web.fetsh` in `FILE`: there is no such setting"),
        ("[web]\nfetch = \"sk-secret-0123456789\"", "`web.fetch` in `FILE`: found text, expected `true` or `false`"),
        ("web = 1", "`web` in `FILE`: found `1`, expected a table"),
        (
            "[deep_research]\neffort = \"sk-secret-0123456789\"",
            "`deep_research.effort` in `FILE`: found text, expected one of `none`, `minimal`",
        ),
        ("[deep_research.mcp]\nlabel = \"a\"", "`deep_research.mcp` in `FILE`: `url` is missing"),
        ("[web]\nkey = sk-secret-0123456789", "`FILE`: not TOML at line 2, column 7: "),
    ] {
        let run = with(&world, settings, &["config"]);
        let said = said.replace("FILE", &file(&world));
        assert_eq!(run.exit, Some(2), "{settings}: {run}");
        assert!(run.stderr.starts_with(&format!("error: {said}")), "{said}: {run}");
    }
}

#[test]
fn setting_that_only_a_run_uses_is_checked_by_config_and_doctor() {
    let world = greenhouse();
    for (settings, said, advice) in [
        (
            "[web]\nprovider = \"gopher\"",
            "`[web]` in `FILE` cannot be used: `gopher` is not a search engine",
            "`searxng`",
        ),
        (
            "[web]\nprovider = \"sk-secret-0123456789\"",
            "`[web]` in `FILE` cannot be used: `…` is not a search engine",
            "`searxng`",
        ),
        (
            "[web]\nprovider = \"exa\"\nkey_env = \"sk-secret-0123456789\"",
            "no key for `exa`: `key_env` is not the name of a variable",
            "MY_API_KEY",
        ),
        ("[web]\nallowed_hosts = [\"*\"]", "`*` contains a wildcard", "list every host"),
        ("[web]\nallowed_hosts = [\"*.com\"]", "`*.com` contains a wildcard", "list every host"),
        ("[web]\nallowed_hosts = [\"\"]", "`` is neither a host nor a network", "without `http://`"),
        ("[web]\nallowed_hosts = [\"0.0.0.0/0\"]", "network `0.0.0.0/0` is too wide", "at least `/8`"),
        ("[web]\nallowed_hosts = [\"http://a:sk-secret-0123456789@b\"]", "`…` is neither a host", "without `http://`"),
        (
            "[deep_research]\nmodels = []",
            "`[deep_research]` in `FILE` cannot be used: `models` is empty",
            "`max_jobs = 0`",
        ),
        (
            "[deep_research]\nmodels = [\"sk-secret-0123456789 x\"]",
            "entry 1 of `models` is not a model name",
            "gpt-6-sol",
        ),
        (
            "[deep_research]\nblocked_domains = [\"sk-secret-0123456789@b\"]",
            "`…` is not the name of a host",
            "example.org",
        ),
    ] {
        let config = with(&world, settings, &["config"]);
        let said = said.replace("FILE", &file(&world));
        assert_eq!(config.exit, Some(2), "{settings}: {config}");
        assert!(config.stdout.contains("max_cost"), "what is set is shown all the same: {config}");
        assert!(
            config.stderr.starts_with("error: settings of `[") && config.stderr.contains(&said),
            "{said}: {config}"
        );
        assert!(config.stderr.contains(advice), "{advice}: {config}");
        for flags in [&["doctor"][..], &["doctor", "--offline"]] {
            let doctor = with(&world, settings, flags);
            let said = said.rsplit("` cannot be used: ").next().unwrap();
            assert_eq!(doctor.exit, Some(1), "{settings}: {doctor}");
            assert!(doctor.stdout.contains("trouble") && doctor.stdout.contains(said), "{said}: {doctor}");
        }
    }
}

#[test]
fn endpoint_or_key_that_is_invalid_is_a_usage_error_of_every_command() {
    let question = "What waters the beds?";
    for (name, value) in [
        ("OPENAI_BASE_URL", "nonsense"),
        ("OPENAI_BASE_URL", "file:///etc/passwd"),
        ("OPENAI_BASE_URL", "http://u:p@h/v1"),
        ("OPENAI_API_KEY", "a\nb"),
        ("SEARXNG_URL", "nonsense"),
    ] {
        let world = greenhouse().with_variable(name, value);
        for args in [&["ask", "--fresh", question][..], &["plan", question], &["config"]] {
            let run = world.dr(args);
            assert_eq!(run.exit, Some(2), "{name}={value} {args:?}: {run}");
        }
    }
}

#[test]
fn missing_key_is_a_problem_only_if_it_would_be_used() {
    let settings = "[web]\nprovider = \"exa\"";
    let world = greenhouse();
    let online = with(&world, settings, &["config"]);
    assert_eq!(online.exit, Some(2), "{online}");
    assert!(online.stderr.contains("no key for `exa`: `EXA_API_KEY` is not set"), "{online}");
    with(&world, settings, &["config", "--offline"]).succeeded();
    with(&world, settings, &["doctor", "--offline"]).succeeded();
}

#[test]
fn empty_list_of_models_is_an_error_only_if_jobs_are_enabled() {
    let settings = "[models]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n[deep_research]\nmodels = []\n";
    let world = greenhouse();
    let run = with(&world, settings, &["ask", "What waters the beds?"]);
    assert_eq!((run.exit, run.stdout.as_str()), (Some(2), ""), "{run}");
    assert!(run.stderr.contains("`max_jobs = 0`") && run.stderr.contains("`--no-deep-research`"), "{run}");
    assert!(!world.path(".dr/state.db").exists(), "nothing was begun");
    with(&world, &format!("{settings}max_jobs = 0\n"), &["config"]).succeeded();
    let without = with(&world, settings, &["ask", "--no-deep-research", "What waters the beds?"]);
    assert!(!without.stderr.contains("`models` is empty"), "the hint is right: {without}");
}

#[test]
fn limit_out_of_range_is_an_error_wherever_it_is_set() {
    let world = World::empty();
    for (setting, said) in [
        ("parallel = 0", "`parallel` in `FILE`: found `0`, expected 1 to 64"),
        (
            "[models.worker]\ntimeout_seconds = 0",
            "`models.worker.timeout_seconds` in `FILE`: found `0`, expected 1 or more",
        ),
        ("max_cost = nan", "found `NaN`, expected dollars"),
    ] {
        let run = with(&world, setting, &["config"]);
        let said = said.replace("FILE", &file(&world));
        assert!(run.exit == Some(2) && run.stderr.contains(&said), "{said}: {run}");
    }
    for (name, said) in [("DR_PARALLEL", "expected 1 to 64"), ("DR_SUMMARY_TOKENS", "expected 200 to 100000")] {
        let run = World::empty().with_variable(name, "0").dr(["config"]);
        assert!(run.exit == Some(2) && run.stderr.contains(&format!("error: `{name}`: found `0`, {said}")), "{run}");
    }
    with(&world, "parallel = 64\nsummary_tokens = 200\nmax_cost = inf\nmax_rounds = 1", &["config"]).succeeded();
    for (flag, value, said) in
        [("--parallel", "0", "0 is not in 1..=64"), ("--deep-research-max", "101", "101 is not in 0..=100")]
    {
        let run = World::empty().dr(["ask", flag, value, "Why?"]);
        assert!(run.exit == Some(2) && run.stderr.contains(said), "{run}");
    }
}

#[test]
fn required_topics_are_limited() {
    let long = "a".repeat(301);
    let many = ["--cover", "cost"].repeat(21);
    for (flags, said) in [
        (vec!["--cover", long.as_str()], "error: `--cover`: required topic has 301 characters (at most 300)\n"),
        (many, "error: `--cover`: 21 required topics (at most 20)\n"),
        (vec!["--cover", "?!"], "error: `--cover`: required topic has no words\n"),
    ] {
        let run = World::empty().dr(["ask", "Why?"].into_iter().chain(flags));
        assert_eq!((run.exit, run.stderr.as_str()), (Some(2), said));
    }
}

#[test]
fn keys_in_environment_variables_are_not_printed() {
    let world =
        World::empty().with_variable("TAVILY_API_KEY", SECRET).with_variable("SEARXNG_URL", "http://localhost:8888");
    let config = world.dr(["config"]).succeeded().stdout;
    assert!(config.contains("searxng_url") && config.contains("http://localhost:8888"), "{config}");
    assert!(config.contains("tavily_api_key") && !config.contains(SECRET), "{config}");
}
