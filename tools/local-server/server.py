#!/usr/bin/env python3
"""Runs a command with a real model server on loopback: llama-server of llama.cpp.

    server.py CONTEXT COMMAND...

CONTEXT is the context window in tokens. The command finds the address in DR_LOCAL_URL. The server ends with it.

    DR_LLAMA_SERVER    a llama-server to use. Without it, one is built from the source package of llama-cpp-python on
                       PyPI (80 MB, then 10 to 60 minutes on two cores).
    DR_LOCAL_WEIGHTS   a GGUF to serve. Without it, a model of random weights is made (noise.py).
    DR_LOCAL_FOLDER    folder of what is built (~/.cache/dr-local-server).
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(os.environ.get("DR_LOCAL_FOLDER") or pathlib.Path.home() / ".cache/dr-local-server")
SOURCE = "llama-cpp-python==0.3.36"
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_OPENMP": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "ON", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_UI": "OFF", "LLAMA_OPENSSL": "OFF",
}
NOISE = "noise.gguf"
# Time for real weights to be read from a slow disk.
START_SECONDS = 300


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr, **options)


def tool(name, *packages):
    """Returns a program of the virtual environment, after installing packages into it."""
    folder = FOLDER / "venv"
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    if packages:
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", *packages)
    return folder / "bin" / name


def llama_server():
    """Returns the path of llama-server, which is built if need be."""
    if named := os.environ.get("DR_LLAMA_SERVER"):
        return pathlib.Path(named)
    built = FOLDER / "build/bin/llama-server"
    if built.exists():
        return built
    FOLDER.mkdir(parents=True, exist_ok=True)
    python = tool("python", "cmake", "ninja")
    run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", FOLDER, SOURCE)
    [package] = FOLDER.glob("llama_cpp_python-*.tar.gz")
    run("tar", "xzf", package, "-C", FOLDER)
    [source] = FOLDER.glob("llama_cpp_python-*/vendor/llama.cpp")
    path = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    settings = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    run(tool("cmake"), "-G", "Ninja", "-S", source, "-B", FOLDER / "build", *settings, env=path)
    run(tool("cmake"), "--build", FOLDER / "build", "--target", "llama-server", env=path)
    return built


def weights():
    """Returns the path of the weights, which are made if none are named."""
    if named := os.environ.get("DR_LOCAL_WEIGHTS"):
        return pathlib.Path(named)
    made = FOLDER / NOISE
    if not made.exists() or made.stat().st_mtime < (HERE / "noise.py").stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        run(tool("python", "gguf", "numpy"), HERE / "noise.py", made)
    return made


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(context):
    """Serves the weights with a context window of so many tokens. Yields the address."""
    port = free_port()
    served = weights()
    # Waiting for a second thread takes longer than the whole computation of the small model.
    threads = ["--threads", 1] if served.name == NOISE else []
    command = [llama_server(), "--model", served, "--ctx-size", context, "--host", "127.0.0.1", "--port", port,
               "--alias", "local", "--seed", 1, "--offline", *threads]
    log_path = FOLDER / f"server-{context}.log"
    FOLDER.mkdir(parents=True, exist_ok=True)
    # The server ends with this process, also where that is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with open(log_path, "w") as log:
        server = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    try:
        wait(f"http://127.0.0.1:{port}/health", server, log_path)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait(address, server, log):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"llama-server ended with {server.returncode}; see {log}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(address, timeout=2) as response:
                if response.status == 200:
                    return
        time.sleep(0.2)
    sys.exit(f"llama-server did not start in {START_SECONDS} s; see {log}")


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    with serving(int(sys.argv[1])) as url:
        sys.exit(subprocess.run(sys.argv[2:], env={**os.environ, "DR_LOCAL_URL": url}).returncode)
