#!/usr/bin/env python3
"""Prints what a server makes of JSON schemas: those that `dr` sends, and each feature that a user's schema may have.

    server.py 8192 schemas.py

Each schema goes to the server as `response_format` of /chat/completions, several times with different seeds. A schema is

    refused        the server answers with an error, which is printed
    held           every reply that was not cut off follows it
    not held       it was taken, but a reply breaks the keyword; `dr` checks every reply against the whole schema
    unknown        no reply ended within its tokens

The address is DR_LOCAL_URL. Errors are also written to DR_LOCAL_ERRORS, one JSON object a line.
"""

import json
import os
import pathlib
import re
import urllib.error
import urllib.request

URL = os.environ["DR_LOCAL_URL"]
TRIALS = 20
MAX_TOKENS = 1_000
SENT = pathlib.Path(__file__).resolve().parents[2] / "fixtures/schemas.json"


def ask(schema, seed):
    """Returns status and body of one request."""
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    body = {
        "model": "local", "messages": [{"role": "user", "content": "Reply."}], "response_format": form,
        "max_tokens": MAX_TOKENS, "seed": seed,
    }
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(URL + "/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def tried(name, schema, holds):
    """Returns the verdict on one schema, and the server's words."""
    ended = cut = spoilt = 0
    for seed in range(1, TRIALS + 1):
        status, body = ask(schema, seed)
        if status == 500 and "does not match the expected" in json.dumps(body):
            # The schema was taken; llama-server cannot read a reply with bytes that are no character.
            spoilt += 1
            continue
        if status != 200:
            if path := os.environ.get("DR_LOCAL_ERRORS"):
                with open(path, "a") as errors:
                    errors.write(json.dumps({"schema": name, "status": status, "body": body}) + "\n")
            error = body.get("error", body)
            said = error.get("message", error) if isinstance(error, dict) else error
            return "refused", f"{status}: {said}"
        choice = body["choices"][0]
        if choice["finish_reason"] != "stop":
            cut += 1
            continue
        ended += 1
        text = choice["message"]["content"]
        try:
            value = json.loads(text)
        except ValueError:
            return "not held", f"not JSON: {text[:60]}"
        if not holds(value):
            return "not held", json.dumps(value)[:60]
    if ended == 0:
        return "unknown", f"{cut} replies cut off at {MAX_TOKENS} tokens, {spoilt} not readable"
    return "held", f"{ended} of {TRIALS} replies ended"


def has_members(schema):
    """Returns a check that an object has the required members and no others."""
    return lambda value: isinstance(value, dict) and set(value) == set(schema["required"])


def of(schema, **more):
    """Returns an object with one member `a`."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False, **more}


def member(check):
    return lambda value: set(value) == {"a"} and check(value["a"])


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = {"type": "string"}
NESTED = of(of(of(TEXT)))
LIST = {"type": "array", "items": TEXT}
RECURSIVE = {"$ref": "#/$defs/node", "$defs": {"node": of({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})}}
ROOT_RECURSIVE = of({"anyOf": [{"$ref": "#"}, {"type": "null"}]})
MANY = {"type": "object", "properties": {f"m{number}": {"type": "boolean"} for number in range(40)}, "additionalProperties": False,
        "required": [f"m{number}" for number in range(40)]}
DEEP = TEXT
for _ in range(15):
    DEEP = of(DEEP)


def matches(pattern):
    return member(lambda a: re.search(pattern, a) is not None)


FEATURES = [
    ("flat object", of(TEXT), member(lambda a: isinstance(a, str))),
    ("nested objects", NESTED, member(lambda a: isinstance(a["a"]["a"], str))),
    ("15 levels", DEEP, member(lambda a: isinstance(a, dict))),
    ("40 members, all required", MANY, lambda value: len(value) == 40),
    ("optional member", {**of(TEXT), "required": []}, lambda value: set(value) <= {"a"}),
    ("`type: [string, null]`", of({"type": ["string", "null"]}), member(lambda a: a is None or isinstance(a, str))),
    ("`anyOf`", of({"anyOf": [TEXT, {"type": "null"}]}), member(lambda a: a is None or isinstance(a, str))),
    ("`enum`", of({"type": "string", "enum": ["red", "green"]}), member(lambda a: a in ("red", "green"))),
    ("1,500 values of `enum`", of({"enum": [f"v{n}" for n in range(1500)]}), member(lambda a: a.startswith("v"))),
    ("`const`", of({"const": "fixed"}), member(lambda a: a == "fixed")),
    ("list of texts", of(LIST), member(lambda a: isinstance(a, list))),
    ("list of objects", of({"type": "array", "items": of(TEXT)}), member(lambda a: all(set(o) == {"a"} for o in a))),
    ("list at the top", LIST, lambda value: isinstance(value, list)),
    ("`minItems`, `maxItems`", of({**LIST, "minItems": 2, "maxItems": 3}), member(lambda a: 2 <= len(a) <= 3)),
    ("`maxItems: 5000`", of({**LIST, "maxItems": 5000}), member(lambda a: isinstance(a, list))),
    ("`maxItems: 500` of objects of 40 members", of({"type": "array", "items": MANY, "maxItems": 500}),
     member(lambda a: isinstance(a, list))),
    ("`minItems: 3000`", of({**LIST, "minItems": 3000}), member(lambda a: len(a) >= 3000)),
    ("`minItems: 100` of objects of 40 members", of({"type": "array", "items": MANY, "minItems": 100}),
     member(lambda a: len(a) >= 100)),
    ("`uniqueItems`", of({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 2, "maxItems": 2}),
     member(lambda a: len(set(a)) == len(a))),
    ("`minimum`, `maximum` of an integer", of({"type": "integer", "minimum": 1900, "maximum": 2100}),
     member(lambda a: is_integer(a) and 1900 <= a <= 2100)),
    ("`exclusiveMinimum` of an integer", of({"type": "integer", "exclusiveMinimum": 5}), member(lambda a: a > 5)),
    ("`minimum`, `maximum` of a number", of({"type": "number", "minimum": 0, "maximum": 1}),
     member(lambda a: 0 <= a <= 1)),
    ("`minimum: -5` of an integer", of({"type": "integer", "minimum": -5, "maximum": 5}), member(lambda a: -5 <= a <= 5)),
    ("`multipleOf`", of({"type": "integer", "multipleOf": 7}), member(lambda a: a % 7 == 0)),
    ("`pattern` with `^` and `$`", of({**TEXT, "pattern": "^[A-Z]{2}-[0-9]{3}$"}), matches("^[A-Z]{2}-[0-9]{3}$")),
    ("`pattern` without them", of({**TEXT, "pattern": "[A-Z]{2}"}), matches("[A-Z]{2}")),
    ("`pattern` with a group and choices", of({**TEXT, "pattern": "^(v|r)[0-9]+(\\.[0-9]+)?$"}),
     matches(r"^(v|r)[0-9]+(\.[0-9]+)?$")),
    ("`pattern` with `\\d`", of({**TEXT, "pattern": "^\\d{4}$"}), matches(r"^\d{4}$")),
    ("`pattern` with look-ahead", of({**TEXT, "pattern": "^(?=a)[a-z]{3}$"}), matches("^(?=a)[a-z]{3}$")),
    ("`pattern` with a repetition of 5,000", of({**TEXT, "pattern": "^[a-z]{1,5000}$"}), matches("^[a-z]+$")),
    ("`minLength`, `maxLength`", of({**TEXT, "minLength": 3, "maxLength": 5}), member(lambda a: 3 <= len(a) <= 5)),
    ("`minLength: 3000`", of({**TEXT, "minLength": 3000}), member(lambda a: len(a) >= 3000)),
    ("`maxLength: 5000`", of({**TEXT, "maxLength": 5000}), member(lambda a: isinstance(a, str))),
    ("`format: date`", of({**TEXT, "format": "date"}), matches(r"^\d{4}-\d\d-\d\d$")),
    ("`format: uuid`", of({**TEXT, "format": "uuid"}), matches(r"^[0-9a-fA-F-]{36}$")),
    ("`format: email`", of({**TEXT, "format": "email"}), matches(r"^[^@\s]+@[^@\s]+$")),
    ("`format: date-time`", of({**TEXT, "format": "date-time"}), matches(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")),
    ("`$ref` to `$defs`", {**of({"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}}, member(lambda a: isinstance(a, str))),
    ("recursion through `$defs`", RECURSIVE, member(lambda a: a is None or isinstance(a, dict))),
    ("recursion through `#`", ROOT_RECURSIVE, member(lambda a: a is None or isinstance(a, dict))),
    ("`oneOf`", of({"oneOf": [TEXT, {"type": "null"}]}), member(lambda a: a is None or isinstance(a, str))),
    ("`allOf`", of({"allOf": [of(TEXT), {"type": "object", "properties": {"b": TEXT}, "required": ["b"]}]}),
     member(lambda a: set(a) == {"a", "b"})),
    ("`not`", of({"enum": ["a", "b"], "not": {"const": "a"}}), member(lambda a: a != "a")),
    ("members of arbitrary names", {"type": "object", "additionalProperties": {"type": "integer"}},
     lambda value: all(map(is_integer, value.values()))),
    ("`if`, `then`", of(TEXT, **{"if": {"required": ["a"]}, "then": {"properties": {"a": {"const": "x"}}}}),
     member(lambda a: a == "x")),
    ("schema without a type", of({}), lambda value: set(value) == {"a"}),
]


def main():
    rows = [(f"sent by dr: {name}", schema, has_members(schema)) for name, schema in json.loads(SENT.read_text()).items()]
    print("| schema | verdict | said |\n|---|---|---|")
    for name, schema, holds in rows + FEATURES:
        verdict, said = tried(name, schema, holds)
        said = " ".join(said.split()).replace("|", "\\|")
        print(f"| {name} | {verdict} | {said[:150]} |", flush=True)


if __name__ == "__main__":
    main()
