"""A server on FastMCP, and a host that runs the session of scenario_test.go.

The first argument is the role. The second argument is JSON: the texts of surface_test.go for the
role "server", the job for the role "walk". The server has only the tools, resources and prompts that
FastMCP implements itself. It leaves the rest to the Python SDK, which peer.py tests.
"""

import json
import os
import socket
import sys
import threading
import traceback
from dataclasses import dataclass

import anyio
import mcp_types as types
from fastmcp import Client, Context, FastMCP
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ResourceError, ToolError
from mcp import MCPError

ROLE, JOB = sys.argv[1], json.loads(sys.argv[2])


def serve():
    server = FastMCP("fastmcp", version="1.0.0", instructions=JOB["instructions"])
    state = {"cancelled": 0, "wake": anyio.Event()}

    @dataclass
    class Sum:
        sum: int

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool(annotations={"readOnlyHint": True})
    def sum(a: int, b: int) -> Sum:
        return Sum(a + b)

    @server.tool
    def fail(message: str) -> str:
        raise ToolError(message)

    @server.tool
    async def slow(steps: int, delay_ms: int, ctx: Context) -> str:
        try:
            for i in range(1, steps + 1):
                await anyio.sleep(delay_ms / 1000)
                await ctx.report_progress(i, steps, "a step")
        except anyio.get_cancelled_exc_class():
            state["cancelled"] += 1
            state["wake"].set()
            raise
        return f"done after {steps} steps"

    @server.tool
    async def cancelled() -> str:
        if state["cancelled"] == 0:
            state["wake"] = anyio.Event()
            with anyio.move_on_after(10):
                await state["wake"].wait()
        if state["cancelled"] == 0:
            return "nothing was cancelled"
        state["cancelled"] -= 1
        return "cancelled"

    @server.tool
    def crash() -> str:
        os._exit(JOB["crashStatus"])

    @server.resource(JOB["greetingURI"], mime_type="text/plain")
    def greeting() -> str:
        return JOB["greetingText"]

    @server.resource(JOB["itemTemplate"], mime_type="text/plain")
    def item(id: str) -> str:
        if id == "none":
            raise ResourceError("unknown item")
        return f"item {id}"

    @server.prompt
    def greet(name: str, style: str = "friendly") -> str:
        return f"Greet {name} in a {style} way."

    if not JOB.get("listen"):
        server.run(show_banner=False)
        return
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"listening url=http://127.0.0.1:{sock.getsockname()[1]}", file=sys.stderr, flush=True)

    def wait_for_end():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait_for_end, daemon=True).start()
    server.run("http", show_banner=False, path="/mcp", sockets=[sock], log_level="warning")


async def call(client, step):
    outcome = {"text": "", "isError": False, "code": 0, "message": "", "cancelled": False, "progress": []}
    with anyio.CancelScope() as scope:

        async def progress(value, total, message):
            outcome["progress"].append(value)
            if step.get("cancelAt") and value >= step["cancelAt"]:
                scope.cancel()

        options = {"progress_handler": progress} if step.get("progress") else {}
        try:
            result = await client.call_tool(step["tool"], step["args"], raise_on_error=False, **options)
            outcome["text"] = result.content[0].text if result.content else ""
            outcome["isError"] = result.is_error
            if result.structured_content is not None:
                outcome["structured"] = result.structured_content
        except MCPError as error:
            outcome["code"], outcome["message"] = error.error.code, error.error.message
    outcome["cancelled"] = scope.cancelled_caught
    return outcome


async def run_step(client, step):
    if not step.get("parallel"):
        return await call(client, step)
    outcomes = []

    async def one():
        outcomes.append(await call(client, step))

    async with anyio.create_task_group() as group:
        for _ in range(step["parallel"]):
            group.start_soon(one)
    agreeing = len([o for o in outcomes if (o["text"], o["code"]) == (outcomes[0]["text"], outcomes[0]["code"])])
    return {**outcomes[0], "agreeing": agreeing}


async def walk():
    seen = {"revision": "", "server": "", "tools": [], "outcomes": {}, "failure": ""}
    if JOB.get("url"):
        transport = StreamableHttpTransport(JOB["url"])
    else:
        transport = StdioTransport(JOB["command"], JOB["args"], env=dict(os.environ), keep_alive=False)
    try:
        with anyio.fail_after(40):
            async with Client(transport, client_info=types.Implementation(name="interop", version="1")) as client:
                session = client.session
                seen["revision"] = session.protocol_version
                seen["server"] = session.server_info.name
                seen["tools"] = [tool.name for tool in await client.list_tools()]
                for step in JOB["steps"]:
                    seen["outcomes"][step["name"]] = await run_step(client, step)
    except BaseException:
        seen["failure"] = traceback.format_exc()
    json.dump(seen, sys.stdout)


if ROLE == "server":
    serve()
else:
    anyio.run(walk)
