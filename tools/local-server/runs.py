#!/usr/bin/env python3
"""Runs `dr` against a real local server at several context windows, and prints a table.

    runs.py [CONTEXT...]

Each row is one command in a fresh project with a copy of fixtures/kb-small. With random weights every model speaks noise;
rows marked `half` get their worker and summariser from a script instead, which finds and notes passages, so that planner,
judge and writer are asked as in a run that succeeds. `dr` must end each run within its limits, with a documented exit code
and valid structure. A run that breaks one of these is marked BROKEN, and the exit code is 1.

    DR               the program (debug/dr in the target folder of cargo)
    DR_LOCAL_TRACE   a folder for the output and the calls of each run
    see server.py for the others
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import server

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
DR = pathlib.Path(os.environ.get("DR") or TARGET / "debug/dr").resolve()
CONTEXTS = [2_048, 8_192, 32_768]
QUESTION = "How long does the siren stay silent, and who is called if nobody silences it?"
COMPARISON = "Compare the red button and the copper button"
MAX_TOKENS = 60_000
MAX_SECONDS = 180
EXITS = {0, 3, 4}
TEXT = {"type": "string"}


def of(schema):
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


SCHEMAS = {
    "flat object": of(TEXT),
    "nested": of(of(of(TEXT))),
    "enum": of({"enum": ["yes", "no", "unknown"]}),
    "list of objects": of({"type": "array", "items": of(TEXT), "maxItems": 3}),
    "pattern": of({**TEXT, "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "number bounds": of({"type": "number", "minimum": 0, "maximum": 1}),
    "list at the top": {"type": "array", "items": TEXT, "minItems": 1},
    "refused by llama.cpp": of({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
}


class Script(http.server.BaseHTTPRequestHandler):
    """A worker that searches, notes the first passage and reports what it noted."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = "\n".join(message["content"] for message in body["messages"])
        form = body.get("response_format", {}).get("json_schema", {}).get("name")
        self.answer({
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": say(form, words)}}],
            "usage": {"prompt_tokens": len(words) // 4, "completion_tokens": 60},
        })

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "local"}]})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def say(form, words):
    passage = re.search(r'<data id="p1">\n(.*?)\n</data>', words, re.S)
    evidence = list(dict.fromkeys(re.findall(r"\bn[0-9]+e[0-9]+\b", words.rsplit("--- task ---")[-1])))
    match form:
        case "skim":
            reply = {"answers": []}
        case "step" if passage is None:
            question = re.search(r"Sub-question: (.*)", words)
            reply = {"thought": "", "actions": [action("search", query=question[1] if question else QUESTION)], "done": False}
        case "step":
            lines = [line.strip() for line in passage[1].splitlines() if len(line) > 20]
            quote = lines[-1] if lines else passage[1].strip()
            aspect = re.search(r"\ba[0-9]+\b", words.rsplit("--- task ---")[-1])
            note = action("note", passage="p1", quote=quote, text=quote, aspect=aspect and aspect[0])
            reply = {"thought": "", "actions": [note], "done": True}
        case "branch_report":
            findings = [{"text": "The notes say so.", "evidence": [one], "aspect": None} for one in evidence]
            reply = {"summary": "The notes say so.", "findings": findings, "confidence": 0.8, "open_questions": []}
        case "digest":
            reply = {"summary": "It is described on the page.", "pieces": [1]}
        case _:
            return "The notes say so. " + " ".join(f"[{one}]" for one in evidence)
    return json.dumps(reply)


def action(tool, **fields):
    return {**dict.fromkeys(["query", "passage", "quote", "text", "aspect"]), **fields, "tool": tool}


@contextlib.contextmanager
def scripted():
    """Serves the scripted worker. Yields its address."""
    script = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    threading.Thread(target=script.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{script.server_address[1]}/v1"
    finally:
        script.shutdown()


class World:
    """A home and an indexed project of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        shutil.copytree(ROOT / "fixtures/kb-small", self.project / "kb")
        self.environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "NO_COLOR": "1"}
        self.dr("index", "kb", "--quiet")

    def set(self, settings):
        path = self.folder / ".config/dr/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings)

    def dr(self, *arguments):
        """Runs dr. Returns the exit code (None if it had to be ended), stdout, stderr and seconds."""
        started = time.monotonic()
        command = [str(DR), *arguments]
        try:
            done = subprocess.run(command, cwd=self.project, env=self.environment, capture_output=True, text=True,
                                  timeout=MAX_SECONDS + 60)
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = None, "", str(late)
        return code, out, err, time.monotonic() - started

    def calls(self):
        """Returns the calls of all runs: key, outcome, usage."""
        with contextlib.closing(sqlite3.connect(self.project / ".dr/state.db")) as journal:
            return journal.execute("SELECT key, outcome, usage, error FROM calls ORDER BY id").fetchall()


def row(world, label, arguments, schema=None):
    """Runs one command and prints its row. Returns whether it ended as it should."""
    state = world.project / ".dr/state.db"
    for file in (state, *state.parent.glob("state.db-*")):
        file.unlink(missing_ok=True)
    more = []
    if schema is not None:
        (world.folder / "schema.json").write_text(json.dumps(schema))
        more = ["--schema", str(world.folder / "schema.json")]
    code, out, err, seconds = world.dr(
        "ask", *arguments, *more, "--fresh", "--yes", "--format", "json", "--max-tokens", str(MAX_TOKENS),
        "--max-time", f"{MAX_SECONDS}s")
    calls = world.calls() if state.exists() else []
    repairs = sum(key.endswith(("/repair", "/small")) for key, *_ in calls)
    usages = [json.loads(usage) for _, _, usage, _ in calls if usage]
    tokens = sum(usage.get("input_tokens", 0) + usage.get("output_tokens", 0) for usage in usages)
    outcomes = {}
    for _, outcome, *_ in calls:
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    complaints = []
    try:
        report = json.loads(out)
        ended = f"{report.get('outcome')}, {report.get('stop_reason')}"
        if schema is not None:
            ended += ", form filled" if "output" in report else ", no form"
    except ValueError:
        report, ended = None, " ".join(err.split())[:120] or "no output"
        complaints.append("no report")
    if code not in EXITS:
        complaints.append(f"exit code {code}")
    if tokens > MAX_TOKENS:
        complaints.append("over its tokens")
    if seconds > MAX_SECONDS + 20:
        complaints.append("over its time")
    if "panicked" in err:
        complaints.append("panic")
    notes = re.findall(r"^note: (.*)", err, re.M)
    broken = f"BROKEN: {', '.join(complaints)}" if complaints else "; ".join(notes)
    states = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"| {label} | {ended} | {code} | {states or 0} | {repairs} | {tokens} | {seconds:.0f} | {broken} |", flush=True)
    if folder := os.environ.get("DR_LOCAL_TRACE"):
        name = re.sub(r"[^a-z0-9]+", "-", label.lower())
        trace = "\n".join([f"exit {code}", err, out, *(json.dumps(call) for call in calls)])
        (pathlib.Path(folder) / f"{name}.txt").write_text(trace)
    return not complaints


def settings(url, context, worker=None):
    text = f'model = "local"\n[models]\nbase_url = "{url}"\n'
    if context is not None:
        text += f"window_tokens = {context}\n"
    if worker is not None:
        text += "".join(f'[models.{role}]\nbase_url = "{worker}"\n' for role in ("worker", "summariser"))
    return text


def rows(world, url, context, worker):
    """Prints the rows of one context window."""
    world.set(settings(url, context))
    code, out, _, seconds = world.dr("doctor", "--model")
    lines = [line for line in out.splitlines() if " model" in line[:20]]
    print(f"\n`dr doctor --model`: exit {code}, {seconds:.0f} s\n\n```text\n" + "\n".join(lines) + "\n```\n", flush=True)
    print("| run | end | exit | calls | repairs | tokens | s | |\n|---|---|---|---|---|---|---|---|", flush=True)
    fine = []
    for mode in ("quick", "iterative", "deep"):
        fine.append(row(world, f"{context} {mode}", ["--mode", mode, QUESTION]))
    fine.append(row(world, f"{context} comparison", [COMPARISON]))
    for name in ("flat object", "list at the top"):
        fine.append(row(world, f"{context} --schema {name}", ["--mode", "quick", QUESTION], SCHEMAS[name]))
    world.set(settings(url, None))
    fine.append(row(world, f"{context} quick, window not set", ["--mode", "quick", QUESTION]))
    world.set(settings(url, context, worker))
    fine.append(row(world, f"{context} half, deep", ["--mode", "deep", QUESTION]))
    for name, schema in SCHEMAS.items():
        fine.append(row(world, f"{context} half, --schema {name}", ["--mode", "quick", QUESTION], schema))
    return all(fine)


def main():
    contexts = [int(context) for context in sys.argv[1:]] or CONTEXTS
    fine = True
    with tempfile.TemporaryDirectory(prefix="dr-local-") as folder, scripted() as worker:
        world = World(pathlib.Path(folder))
        for context in contexts:
            with server.serving(context) as url:
                print(f"\n## Context of {context} tokens")
                fine &= rows(world, url, context, worker)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
