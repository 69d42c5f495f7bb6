"""Plays the side of OpenAI's Deep Research in its contract with a server: `search` and `fetch`, and nothing else.

    contract.py URL [HOST TOKEN]

Written on the standard library from the description of the contract, so that no client library smooths over a difference.
"""

import json
import sys
import urllib.parse
import urllib.request


class Server:
    def __init__(self, url, host=None, token=None):
        self.url, self.number = url, 0
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if host:
            self.headers |= {"Host": host, "Authorization": f"Bearer {token}"}

    def send(self, method, params, is_notice=False):
        self.number += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not is_notice:
            message["id"] = self.number
        request = urllib.request.Request(self.url, json.dumps(message).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            if session := reply.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            text = reply.read().decode()
        if is_notice:
            return None
        lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        messages = [json.loads(line) for line in lines or [text] if line]
        return next(message["result"] for message in messages if message.get("id") == self.number)

    def call(self, tool, **arguments):
        """Returns the structured result, which must be repeated as the only text."""
        result = self.send("tools/call", {"name": tool, "arguments": arguments})
        assert result.get("isError") is not True, result
        assert [part["type"] for part in result["content"]] == ["text"], result["content"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]


def main(url, *who):
    server = Server(url, *who)
    client = {"name": "deep-research", "version": "1"}
    server.send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
    server.send("notifications/initialized", {}, is_notice=True)
    tools = {tool["name"]: tool for tool in server.send("tools/list", {})["tools"]}
    for name, argument in [("search", "query"), ("fetch", "id")]:
        schema = tools[name]["inputSchema"]
        assert schema["required"] == [argument] and schema["properties"][argument]["type"] == "string", schema
        assert tools[name]["annotations"]["readOnlyHint"] is True, "it is called without approval"
    seen = {}
    for query in ["When does the siren sound?", "drip lines and water", "Wasser für die Beete", "zzyzx"]:
        found = server.call("search", query=query)
        assert list(found) == ["results"], found
        for result in found["results"]:
            for key in ["id", "title", "url"]:
                assert isinstance(result[key], str) and result[key], result
            address = urllib.parse.urlsplit(result["url"])
            assert address.scheme and (address.netloc or address.path.startswith("/")), result
            assert not who or address.scheme != "file", "the folders of a machine are not shown to others"
            seen[result["id"]] = result
    for id, result in seen.items():
        fetched = server.call("fetch", id=id)
        assert fetched["id"] == id, fetched
        assert all(isinstance(fetched[key], str) and fetched[key] for key in ["title", "text", "url"]), fetched
        assert isinstance(fetched.get("metadata"), (dict, type(None))), fetched
        assert fetched["url"].split("#")[0] == result["url"].split("#")[0], fetched
    print(f"search and fetch keep the contract: {len(seen)} results, each fetched by its id")


main(*sys.argv[1:])
