"""A guest on the Python SDK, which visits the everything server.

The first argument is the job as JSON: the server, and the features that the guest supports. The guest
prints its report as JSON. See guest_test.go for both. The SDK has no tasks.
"""

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from common import connect, JOB, report, server_of

MODERN = "2026-07-28"
ABLE, WORDS = JOB["able"], JOB["words"]
received = {"questions": [], "log": [], "events": []}


async def elicit(ctx, params):
    if params.mode == "url":
        received["questions"].append(f"visit {params.url}: {params.message}")
        return types.ElicitResult(action="accept")
    kinds = params.requested_schema["properties"]
    received["questions"].append(f"form name:{kinds['name']['type']} age:{kinds['age']['type']}: {params.message}")
    return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})


async def sample(ctx, params):
    first = params.messages[0]
    received["questions"].append(f"sample {first.role} up to {params.max_tokens}: {first.content.text}")
    return types.CreateMessageResult(
        role="assistant", model="test-model", stop_reason="endTurn", content=types.TextContent(text="hello")
    )


async def roots(ctx):
    return types.ListRootsResult(
        roots=[types.Root(uri="file:///projects/a", name="Project A"), types.Root(uri="file:///projects/b")]
    )


async def log(params):
    received["log"].append(f"{params.level} {params.logger} {params.data}")


async def notified(message):
    if JOB["mode"] == MODERN:
        return  # watch reads the events of the subscription
    if isinstance(message, types.ResourceUpdatedNotification):
        received["events"].append(f"updated {message.params.uri}")
    elif isinstance(message, types.ToolListChangedNotification):
        received["events"].append("tools changed")


async def wait_for_length(notes, length):
    """Waits until notes has length elements."""
    with anyio.fail_after(20):
        while len(notes) < length:
            await anyio.sleep(0.001)


async def pages(fetch, member, name):
    names, cursor = [], None
    while True:
        page = await fetch(cursor=cursor)
        names += [str(getattr(item, name)) for item in getattr(page, member)]
        cursor = page.next_cursor
        if cursor is None:
            return sorted(names)


def contents(result):
    first = result.contents[0]
    return f"{first.mime_type or ''} {getattr(first, 'text', None) or first.blob}"


def lines(result):
    return [f"{m.role}: {m.content.text}" for m in result.messages]


async def code(call):
    try:
        await call
        return 0
    except MCPError as error:
        return error.error.code


async def list_all(client, seen):
    seen["tools"] = await pages(client.list_tools, "tools", "name")
    seen["resources"] = await pages(client.list_resources, "resources", "uri")
    seen["templates"] = await pages(client.list_resource_templates, "resource_templates", "uri_template")
    seen["prompts"] = await pages(client.list_prompts, "prompts", "name")


async def read(client, seen):
    seen["read"] = {uri: contents(await client.read_resource(uri)) for uri in (WORDS["greetingURI"], WORDS["itemURI"], WORDS["logoURI"])}
    seen["prompt"] = lines(await client.get_prompt("greet", {"name": "Ada", "style": "formal"}))
    seen["codes"] = {
        "missing resource": await code(client.read_resource(WORDS["missingItem"])),
        "missing argument": await code(client.get_prompt("greet")),
        "unknown prompt": await code(client.get_prompt("no_such_prompt")),
    }
    greet = types.PromptReference(name="greet")

    async def complete(ref, name, value, known=None):
        return (await client.complete(ref, {"name": name, "value": value}, known)).completion.values

    seen["completion"] = {
        "style": await complete(greet, "style", "f"),
        "id": await complete(types.ResourceTemplateReference(uri=WORDS["itemTemplate"]), "id", "1"),
        "name": await complete(greet, "name", ""),
    }
    if ABLE["context"]:
        seen["completion"]["name, formal"] = await complete(greet, "name", "", {"style": "formal"})


async def text(client, tool, args=None, **options):
    result = await client.call_tool(tool, args or {}, **options)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.content[0].text}")
    return result.content[0].text


async def call_slow(client):
    """Makes a call of the tool slow that ends, and one that is canceled."""

    async def ignore(value, total, message):
        pass

    done = await text(client, "slow", {"steps": 3, "delay_ms": 1}, progress_callback=ignore)
    seen = []
    with anyio.CancelScope() as scope:

        async def progress(value, total, message):
            seen.append(f"progress {value:g}")
            if len(seen) == 2:
                scope.cancel()

        await text(client, "slow", {"steps": 1000, "delay_ms": 20}, progress_callback=progress)
    end = "given up" if scope.cancelled_caught else "not canceled"
    return [done, *seen[:2], end, await text(client, "cancelled", {} if ABLE["cancel"] else {"for_ms": 100})]


async def respond(client, seen):
    answers = seen["answers"] = {}
    if ABLE["elicit"]:
        answers["ask"] = await text(client, "ask")
        answers["asked prompt"] = ", ".join(lines(await client.get_prompt("asked")))
        answers["asked resource"] = contents(await client.read_resource(WORDS["askedURI"]))
    for tool in ("visit", "sample", "roots"):
        if ABLE[tool]:
            answers[tool] = await text(client, tool)


async def logs(client):
    if client.protocol_version == MODERN:
        await text(client, "log", meta={"io.modelcontextprotocol/logLevel": "info"})
    else:
        await client.set_logging_level("info")
        await text(client, "log")
    await wait_for_length(received["log"], 2)


async def changes(client):
    await text(client, "touch", {"uri": "test://a"})
    await text(client, "touch", {"uri": WORDS["greetingURI"]})
    await wait_for_length(received["events"], 1)
    await text(client, "extend")
    await wait_for_length(received["events"], 2)


async def watch(client):
    if client.protocol_version != MODERN:
        await client.subscribe_resource(WORDS["greetingURI"])
        return await changes(client)
    async with client.listen(tools_list_changed=True, resource_subscriptions=[WORDS["greetingURI"]]) as subscription:

        async def follow():
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    received["events"].append(f"updated {event.uri}")
                elif isinstance(event, ToolsListChanged):
                    received["events"].append("tools changed")

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await changes(client)
            group.cancel_scope.cancel()


async def main(seen):
    options = {"client_info": types.Implementation(name="interop", version="1"), "message_handler": notified}
    options["logging_callback"] = log
    if ABLE["elicit"]:
        options["elicitation_callback"] = elicit
    if ABLE["sample"]:
        options["sampling_callback"] = sample
    if ABLE["roots"]:
        options["list_roots_callback"] = roots
    async with connect(**options) as client:
        seen["revision"] = client.protocol_version
        seen["server"], seen["instructions"] = await server_of(client), client.instructions
        await list_all(client, seen)
        await read(client, seen)
        seen["slow"] = await call_slow(client)
        await respond(client, seen)
        if ABLE["log"]:
            await logs(client)
        seen["log"], seen["questions"] = received["log"], received["questions"]
        if ABLE["subscribe"]:
            await watch(client)
        seen["events"] = received["events"]


report(main, {"tasks": {}, "failure": ""})
