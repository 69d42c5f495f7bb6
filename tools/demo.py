#!/usr/bin/env python3
"""Records a real run of dr as an animated SVG: text and CSS alone, no script. See `just demo`.

Usage: tools/demo.py DR OUTPUT

The commands run in a copy of kb/, on a terminal of 92 columns. Their output appears with the timing of the run; pauses are
shortened to MAX_PAUSE.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

COMMANDS = [
    ["index", "kb"],
    ["search", "what if indexing is killed", "-k", "1"],
    ["ask", "--offline", "Why does dr refuse instead of guessing?"],
    ["ask", "--offline", "What is the weather in Paris?"],
]
COLUMNS, ROWS = 92, 26
MAX_PAUSE, TYPING, READING = 1.2, 0.9, 2.2
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
SGR = re.compile(r"\x1b\[([0-9;]*)m")
OTHER = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-ln-z]|\r")
COLORS = {"31": "r", "32": "g", "33": "y", "34": "b", "35": "m", "36": "c", "91": "r", "92": "g", "93": "y", "96": "c"}


def record(dr, args, folder, environment):
    """Returns the lines of a command, each with the seconds after its start."""
    parent, child = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "200"], stdin=child, check=True)
    started, text, lines = time.monotonic(), "", []
    # Progress is drawn on stderr if that is a terminal; its redrawing would not read well.
    process = subprocess.Popen([dr, *args], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=child, stderr=subprocess.PIPE)
    os.close(child)
    while True:
        ready, _, _ = select.select([parent], [], [], 0.05)
        if ready:
            try:
                data = os.read(parent, 65536)
            except OSError:
                break
            if not data:
                break
            text += data.decode(errors="replace")
            *done, text = text.split("\n")
            lines += [(time.monotonic() - started, OTHER.sub("", line)) for line in done]
        elif process.poll() is not None:
            break
    process.wait()
    if text.strip():
        lines.append((time.monotonic() - started, OTHER.sub("", text)))
    return lines


def wrapped(line):
    """Splits a line at the width of the terminal, as it would be shown."""
    rows, row, width = [], "", 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if SGR.fullmatch(part):
            row += part
            continue
        for letter in part:
            if width == COLUMNS:
                rows.append(row)
                row, width = "", 0
            row, width = row + letter, width + 1
    return rows + [row]


def spans(line):
    """Returns a line as SVG text, with classes for colours and weights."""
    out, classes = [], set()
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        found = SGR.fullmatch(part)
        if not found:
            if part:
                text = escape(part)
                out.append(f'<tspan class="{" ".join(sorted(classes))}">{text}</tspan>' if classes else text)
            continue
        codes = found.group(1) or "0"
        if codes.startswith(("38;", "48;")):
            continue
        for code in codes.split(";"):
            if code in ("0", ""):
                classes = set()
            elif code in ("1", "2", "3"):
                classes = classes | {{"1": "w", "2": "d", "3": "i"}[code]}
            elif code in ("22", "23"):
                classes = classes - ({"w", "d"} if code == "22" else {"i"})
            elif code in COLORS:
                classes = {name for name in classes if name in "wdi"} | {COLORS[code]}
            elif code == "39":
                classes = {name for name in classes if name in "wdi"}
    return "".join(out)


def main():
    dr, output = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    root = Path(__file__).resolve().parent.parent
    rows, now = [], 0.3
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "kb", Path(folder) / "kb")
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        for args in COMMANDS:
            shown = " ".join(f'"{arg}"' if " " in arg else arg for arg in args)
            rows.append((now, f"\x1b[32m$\x1b[0m \x1b[1mdr {shown}\x1b[0m"))
            now, last = now + TYPING, 0.0
            for at, line in record(dr, args, folder, environment):
                now, last = now + min(at - last, MAX_PAUSE), at
                rows += [(now, row) for row in wrapped(line)]
            now += READING
            rows.append((now, ""))
    total = now + 1
    shifts = [(at, place - ROWS + 1) for place, (at, _) in enumerate(rows) if place >= ROWS]
    frames = ["0%{transform:translateY(0)}"]
    frames += [f"{at / total * 100:.2f}%{{transform:translateY({-by * HEIGHT}px)}}" for at, by in shifts]
    end = f"translateY({-shifts[-1][1] * HEIGHT}px)" if shifts else "none"
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    lines = [
        f'<text y="{place * HEIGHT + 13}" style="animation-delay:{at:.2f}s">{spans(line)}</text>'
        for place, (at, line) in enumerate(rows)
        if SGR.sub("", line).strip()
    ]
    output.write_text(
        f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img" aria-label="dr indexes a folder, searches it, answers a question with citations, and refuses another">
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre;opacity:0;animation:show 1ms forwards}}
#all{{animation:scroll {total:.2f}s step-end forwards}}
@keyframes show{{to{{opacity:1}}}}
@keyframes scroll{{{"".join(frames)}100%{{transform:{end}}}}}
@media (prefers-reduced-motion:reduce){{text{{animation:none;opacity:1}}#all{{animation:none;transform:{end}}}}}
.w{{font-weight:700;fill:#fff}}.d{{fill:#8b93a3}}.i{{font-style:italic}}.r{{fill:#ff7b72}}.g{{fill:#7ee787}}.y{{fill:#e3b341}}.b{{fill:#79c0ff}}.m{{fill:#d2a8ff}}.c{{fill:#56d4dd}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{COLUMNS * WIDTH:.0f}" height="{ROWS * HEIGHT}"><g id="all" xml:space="preserve">
{chr(10).join(lines)}
</g></svg>
</svg>
'''
    )


main()
