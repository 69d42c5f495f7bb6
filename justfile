# List the recipes.
default:
    @just --list

# Check format and lints.
check:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# Run the tests.
test:
    cargo test

# Build the documentation of the code, private items included.
doc:
    cargo doc --no-deps --document-private-items

# Format the code.
fmt:
    cargo fmt

# Damage random files of `.dr` and check that every command continues or says what to do.
damage trials="300" seed="2":
    DR_DAMAGE_TRIALS={{trials}} DR_DAMAGE_SEED={{seed}} cargo test --test it random_damage -- --nocapture

# Fuzz everything that reads untrusted text, for this many seconds each.
fuzz seconds="600" seed="2":
    DR_FUZZ_SECONDS={{seconds}} DR_FUZZ_SEED={{seed}} cargo test --lib -- fuzz fuzzed --nocapture

# Ask the questions of tests/answers offline, print the figures, and list what changed since the last time.
answers file="target/answers.json":
    DR_ANSWERS="$PWD/{{file}}" cargo test --test it answers::figures -- --ignored --nocapture

# Measure the signals of support on sets of questions, one set a line (src/kb/search/fit.rs), and fit its weights.
fit sets cases="target/cases.jsonl":
    #!/bin/sh
    set -eu
    export DR_FIT="{{sets}}" DR_FIT_CASES="$PWD/{{cases}}"
    for step in kb::search::fit::measure research::pick::fit::add_matches kb::search::fit::weights; do
        cargo test --lib -- --exact "$step" --include-ignored --nocapture
    done

# Measure the features of units on sets of questions, one set a line (src/research/pick/fit.rs), and fit their weights.
fit-units sets cases="target/units.jsonl":
    DR_FIT="{{sets}}" DR_FIT_CASES="$PWD/{{cases}}" cargo test --lib -- research::pick::fit --include-ignored --nocapture --test-threads 1

# Run dr against a real llama-server on loopback at these context windows, and print how it handles our schemas.
local-server *contexts:
    cargo build
    tools/local-server/server.py 8192 tools/local-server/schemas.py
    tools/local-server/runs.py {{contexts}}

# Use dr mcp through the official Python SDK, the official inspector, and a script of OpenAI's contract (needs npm).
mcp-clients:
    cargo build
    tools/mcp-clients/run.py

# Index, search and kill dr on real servers of object stores on loopback (needs npm).
object-stores *stores:
    cargo build --features aws,azure,gcs
    tools/object-stores/run.py {{stores}}

# Index, search and fail against a fake of LanceDB's service, `db://`.
remote:
    cargo test --features remote --test it remote

# Review changed snapshots (needs `cargo install cargo-insta`).
snap:
    cargo insta review

# Print how fast dr is on a folder, in a table (release build).
bench folder="kb":
    cargo bench --bench figures -- "{{folder}}"
    cargo bench --bench runs

# Print how fast dr serve is under load, on an indexed folder and a file with a query a line (release build).
bench-serve folder queries:
    cargo bench --bench serve -- "{{folder}}" "{{queries}}"

# Print how an index of this many chunks behaves, made up from the words of a folder (release build).
bench-scale folder *chunks:
    cargo bench --bench scale -- "{{folder}}" {{chunks}}

# Build the binary that is published, with its completion scripts and manual pages beside it.
dist:
    #!/bin/sh
    set -eu
    cargo build --locked --profile dist
    built="${CARGO_TARGET_DIR:-target}/dist"
    mkdir -p "$built/completions"
    for shell in bash zsh fish powershell; do "$built/dr" completions "$shell" > "$built/completions/dr.$shell"; done
    "$built/dr" man "$built/man"
    echo "written to $built: dr, completions, man"

# Record assets/demo.svg, the animation of the README, from a run of the release build.
demo:
    cargo build --release
    tools/demo.py "${CARGO_TARGET_DIR:-target}/release/dr" assets/demo.svg

# Check licences, advisories and sources of the dependencies (needs `cargo install cargo-deny --locked`).
deny:
    cargo deny --locked check

# Check format, tests and lints, as continuous integration does on Linux; CONTRIBUTING.md lists what it runs beyond that.
ci:
    bash .ci/run

# Print the module tree in the order of use, each module with its first line of documentation.
map:
    #!/bin/sh
    set -eu
    # map FILE FOLDER INDENT: the modules FILE declares, whose own files are in FOLDER.
    map() (
        sed -nE 's/^(pub(\([a-z]+\))? )?mod ([a-z0-9_]+);.*/\3/p' "$1" | grep -vx tests | while read -r name; do
            file="$2/$name.rs"
            [ -f "$file" ] || file="$2/$name/mod.rs"
            printf '%-24s %s\n' "$3$name" "$(sed -n 's|^//! ||p' "$file" | head -n 1)"
            map "$file" "$2/$name" "$3  "
        done || true
    )
    map src/lib.rs src ''
