"""A host on the Python SDK that runs the session of scenario_test.go.

The first argument is the job as JSON: the server, the steps, and the mode of the SDK, which is
"legacy", "auto" or a revision. The host prints its report as JSON.
"""

import anyio
import mcp_types as types
from mcp import MCPError
from common import connect, JOB, report, server_of


async def call(client, step):
    outcome = {"text": "", "isError": False, "code": 0, "message": "", "cancelled": False, "progress": []}
    with anyio.CancelScope() as scope:

        async def progress(value, total, message):
            outcome["progress"].append(value)
            if step.get("cancelAt") and value >= step["cancelAt"]:
                scope.cancel()

        try:
            result = await client.call_tool(
                step["tool"], step["args"], progress_callback=progress if step.get("progress") else None
            )
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
    agreeing = sum((o["text"], o["code"]) == (outcomes[0]["text"], outcomes[0]["code"]) for o in outcomes)
    return {**outcomes[0], "agreeing": agreeing}


async def main(seen):
    async with connect(client_info=types.Implementation(name="interop", version="1")) as client:
        seen["revision"] = client.protocol_version
        seen["server"] = await server_of(client)
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        for step in JOB["steps"]:
            seen["outcomes"][step["name"]] = await run_step(client, step)
        if JOB["ping"]:
            await client.session.send_ping()


report(main, {"revision": "", "server": "", "tools": [], "outcomes": {}, "failure": ""})
