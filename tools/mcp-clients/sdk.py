"""Uses `dr mcp` through the official Python SDK. The SDK checks structured results against the schemas of the tools.

    sdk.py ERA URL
    sdk.py ERA PROGRAM ARGUMENT...

ERA is `legacy` (a handshake), `auto`, or a version of the protocol without a handshake.
"""

import asyncio
import sys

from mcp import StdioServerParameters
from mcp.client.client import Client

QUESTION = "When does the siren sound?"


async def main(era, target):
    if not target[0].startswith("http"):
        target = [StdioServerParameters(command=target[0], args=target[1:])]
    async with Client(target[0], mode=era) as client:
        tools = (await client.list_tools()).tools
        print(f"{len(tools)} tools, protocol {client.protocol_version}")

        found = await call(client, "search", query="siren")
        first = found["results"][0]
        fetched = await call(client, "fetch", id=first["id"])
        assert fetched["id"] == first["id"] and "siren" in fetched["text"].lower(), fetched
        read = await call(client, "read", id="guide/alarms.md:1-3")
        assert (read["line_start"], read["line_end"]) == (1, 3), read
        print(f"search, fetch, read: {first['title']} at {first['url'].rsplit('/', 1)[-1]}")
        expanded = await call(client, "search", query="siren", expand=True)
        links = await call(client, "links", id="guide/alarms.md")
        check = (await call(client, "links"))["check"]
        outline = expanded["results"][0]["context"]["outline"]
        print(f"links: {len(outline)} headings, {len(links['document']['links'])} links, {len(check['broken'])} broken")

        told = []

        async def progress(step, total, message):
            told.append((step, message))

        answer = await client.call_tool("ask", {"question": QUESTION}, progress_callback=progress)
        answer = answer.structured_content
        assert answer["outcome"] == "answered" and answer["citations"], answer
        assert told == sorted(told) and len(told) > 2, told
        print(f"ask: {answer['outcome']}, {len(answer['citations'])} citations, {len(told)} steps of progress")

        run = (await call(client, "research_start", question=QUESTION, fresh=True))["run_id"]
        status = {"state": "running"}
        while status["state"] == "running":
            status = await call(client, "research_status", run_id=run)
        result = await call(client, "research_result", run_id=run)
        print(f"research: {status['state']}, {result['outcome']}")

        resources = (await client.list_resources()).resources
        document = await client.read_resource(resources[0].uri)
        assert f"dr://runs/{run}" in [str(resource.uri) for resource in resources], resources
        report = await client.read_resource(f"dr://runs/{run}")
        assert report.contents[0].text.startswith("# "), report
        prompt = await client.get_prompt("research", {"question": QUESTION})
        assert QUESTION in prompt.messages[0].content.text, prompt
        print(f"{len(resources)} documents and reports, the first of {len(document.contents[0].text)} characters; a report; a prompt")

        refused = await client.call_tool("read", {"id": "../../etc/passwd"})
        assert refused.is_error, refused
        print(f"refused: {refused.content[0].text.splitlines()[0]}")


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


asyncio.run(main(sys.argv[1], sys.argv[2:]))
