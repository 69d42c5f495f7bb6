#!/usr/bin/env python3
"""Runs `dr mcp` with clients that others wrote, and prints what each of them saw.

    run.py

- sdk.py: the official Python SDK (`mcp` on PyPI), over stdio and HTTP, in both eras of the protocol
- the command line of the official inspector (`@modelcontextprotocol/inspector` on npm), over stdio and HTTP
- contract.py: the side of OpenAI's Deep Research in its contract with `search` and `fetch`, scripted

Both packages are installed into a folder of cargo's target folder. A client that meets anything else than it should ends
with an error, and so does this script.

    DR    the program (debug/dr in the target folder of cargo)
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
DR = pathlib.Path(os.environ.get("DR") or TARGET / "debug/dr").resolve()
CLIENTS = TARGET / "mcp-clients"
SDK = "mcp==2.3.0"
INSPECTOR = "@modelcontextprotocol/inspector@latest"
TOKEN = "a-token-for-the-clients"


def main():
    python, inspector = installed()
    failed = []
    with project() as (folder, environment):
        stdio = [str(DR), "mcp", "--project", str(folder), "--offline"]
        for era in ["legacy", "auto", "2026-07-28"]:
            client(failed, f"SDK, stdio, {era}", [python, HERE / "sdk.py", era, *stdio], environment)
        client(failed, "inspector, stdio", [inspector, "--cli", *stdio, "--method", "tools/list"], environment, tools)
        call = ["--method", "tools/call", "--tool-name", "search", "--tool-arg", "query=siren"]
        client(failed, "inspector, stdio, search", [inspector, "--cli", *stdio, *call], environment, results)
        with server(folder, environment, "127.0.0.1:0") as url:
            for era in ["legacy", "auto", "2026-07-28"]:
                client(failed, f"SDK, HTTP, {era}", [python, HERE / "sdk.py", era, url], environment)
            http = ["--cli", url, "--transport", "http"]
            client(failed, "inspector, HTTP", [inspector, *http, "--method", "tools/list"], environment, tools)
            client(failed, "inspector, HTTP, search", [inspector, *http, *call], environment, results)
            client(failed, "Deep Research, this machine", [python, HERE / "contract.py", url], environment)
        guarded = {**environment, "DR_MCP_TOKEN": TOKEN}
        with server(folder, guarded, "127.0.0.1:0", "--allow-host", "kb.example") as url:
            args = [python, HERE / "contract.py", url, "kb.example", TOKEN]
            client(failed, "Deep Research, other machines", args, environment)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def installed():
    """Installs the clients, and returns the paths of Python and of the inspector."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    python = CLIENTS / "venv/bin/python"
    if not python.exists():
        venv.create(CLIENTS / "venv", with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", SDK], check=True)
    inspector = CLIENTS / "node_modules/.bin/mcp-inspector"
    if not inspector.exists():
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", CLIENTS, INSPECTOR]
        subprocess.run(npm, check=True)
    return python, inspector


@contextlib.contextmanager
def project():
    """Returns an indexed project, and the environment of a user who has nothing else."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "project")
        shutil.copytree(ROOT / "fixtures/kb-small", folder / "kb")
        environment = {"HOME": name, "PATH": os.environ["PATH"]}
        subprocess.run([DR, "index", "kb", "--quiet"], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        yield folder, environment


@contextlib.contextmanager
def server(folder, environment, *args):
    """Serves a project over HTTP and returns the address."""
    command = [DR, "mcp", "--http", *args]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        if process.wait(10) != 0:
            sys.exit(f"the server ended with {process.returncode}")


def client(failed, name, command, environment, check=lambda said: said):
    """Runs a client and prints what it says."""
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=environment["HOME"])
    try:
        assert run.returncode == 0, f"exit {run.returncode}"
        print(f"== {name}\n{check(run.stdout).rstrip()}", flush=True)
    except Exception as error:
        print(f"== {name}: FAILED: {error}\n{run.stdout}{run.stderr}", flush=True)
        failed.append(name)


def tools(said):
    names = [tool["name"] for tool in json.loads(said)["tools"]]
    assert names[:2] == ["search", "fetch"] and {"ask", "links", "research_resume"} < set(names), names
    return f"tools: {', '.join(names)}"


def results(said):
    result = json.loads(said)
    found = result["structuredContent"]["results"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert found[0]["title"] == "Alarms", found
    return f"search: {len(found)} results, first {found[0]['title']}"


if __name__ == "__main__":
    main()
