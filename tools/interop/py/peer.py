"""A server on the Python SDK (package mcp), which supports both eras.

It has the tools, resources and prompts of surface_test.go. Its first argument is JSON with the texts
of that file. If the member "listen" is set, it listens on a free loopback port, writes its URL to
standard error, and exits at the end of standard input. Otherwise it serves standard input and
output.
"""

import json
import os
import sys
import threading
import warnings

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")  # the server uses logging and roots, which are deprecated

WORDS = json.loads(sys.argv[1])
MODERN = "2026-07-28"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
GREETING = {"uri": WORDS["greetingURI"], "mimeType": "text/plain", "text": WORDS["greetingText"]}

bus = InMemorySubscriptionBus()
extended = False
sessions = {}  # the state of each legacy session, by the id of its connection
cancelled = 0
wake = anyio.Event()


class Session:
    """The log level and the subscriptions of a legacy session."""

    def __init__(self, session):
        self.session, self.level, self.subscribed = session, "debug", set()


def legacy(ctx):
    """Returns the state of a legacy session, or None in the modern era."""
    if ctx.protocol_version == MODERN:
        return None
    key = id(ctx.session._connection)
    if key not in sessions:
        sessions[key] = Session(ctx.session)
    return sessions[key]


def text(value):
    return types.CallToolResult(content=[types.TextContent(text=value)])


def obj(properties, required=None):
    return {"type": "object", "properties": properties, "required": required or list(properties)}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


async def echo(ctx, args, params):
    return text(args["text"])


async def add(ctx, args, params):
    if not all(isinstance(args.get(n), int) for n in ("a", "b")):
        result = text("a and b have to be integers")
        result.is_error = True
        return result
    sum_ = {"sum": args["a"] + args["b"]}
    return types.CallToolResult(content=[types.TextContent(text=json.dumps(sum_))], structured_content=sum_)


async def fail(ctx, args, params):
    result = text(args["message"])
    result.is_error = True
    return result


async def slow(ctx, args, params):
    global cancelled, wake
    steps = args["steps"]
    try:
        for i in range(1, steps + 1):
            await anyio.sleep(args["delay_ms"] / 1000)
            await ctx.session.report_progress(i, steps, "a step")
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        wake.set()
        raise
    return text(f"done after {steps} steps")


async def was_cancelled(ctx, args, params):
    global cancelled, wake
    if cancelled == 0:
        wake = anyio.Event()
        with anyio.move_on_after(10):
            await wake.wait()
    if cancelled == 0:
        return text("nothing was cancelled")
    cancelled -= 1
    return text("cancelled")


async def log(ctx, args, params):
    session = legacy(ctx)
    for message in WORDS["logged"]:
        level = message["level"]
        if session and LEVELS.index(level) < LEVELS.index(session.level):
            continue
        await ctx.session.send_log_message(level, message["text"], "surface", related_request_id=ctx.request_id)
    return text("logged")


async def media(ctx, args, params):
    return types.CallToolResult(
        content=[
            types.TextContent(text="text"),
            types.ImageContent(data=WORDS["pixel"], mime_type="image/png"),
            types.AudioContent(data=WORDS["pixel"], mime_type="audio/wav"),
            types.ResourceLink(uri=WORDS["greetingURI"], name="greeting"),
            types.EmbeddedResource(resource=types.TextResourceContents.model_validate(GREETING)),
        ]
    )


async def crash(ctx, args, params):
    os._exit(WORDS["crashStatus"])


async def extend(ctx, args, params):
    global extended
    extended = True
    await bus.publish(ToolsListChanged())
    for session in sessions.values():
        await session.session.send_tool_list_changed()
    return text("extended")


async def touch(ctx, args, params):
    uri = args["uri"]
    await bus.publish(ResourceUpdated(uri=uri))
    for session in sessions.values():
        if uri in session.subscribed:
            await session.session.send_resource_updated(uri)
    return text("touched")


async def ask(ctx, params, request, legacy_ask):
    """Sends an input request. Returns the response, or the result that the handler must return."""
    if ctx.protocol_version != MODERN:
        return await legacy_ask(), None
    answers = params.input_responses or {}
    if "question" not in answers:
        return None, types.InputRequiredResult(input_requests={"question": request}, request_state=WORDS["state"])
    if params.request_state != WORDS["state"]:
        raise MCPError(types.INVALID_PARAMS, f"requestState = {params.request_state!r}")
    return answers["question"], None


async def ask_form(ctx, params):
    form = types.ElicitRequestFormParams(message=WORDS["askMessage"], requested_schema=WORDS["askSchema"])
    answer, required = await ask(
        ctx,
        params,
        types.ElicitRequest(params=form),
        lambda: ctx.session.elicit_form(WORDS["askMessage"], WORDS["askSchema"], related_request_id=ctx.request_id),
    )
    if required:
        return None, required
    if answer.action == "accept":
        return f"accept {answer.content['name']} {answer.content['age']}", None
    return answer.action, None


async def ask_tool(ctx, args, params):
    answer, required = await ask_form(ctx, params)
    return required or text(answer)


async def visit(ctx, args, params):
    form = types.ElicitRequestURLParams(message=WORDS["visitMessage"], url=WORDS["visitURL"])
    answer, required = await ask(
        ctx,
        params,
        types.ElicitRequest(params=form),
        lambda: ctx.session.elicit_url(WORDS["visitMessage"], WORDS["visitURL"], "visit", related_request_id=ctx.request_id),
    )
    return required or text(answer.action)


async def sample(ctx, args, params):
    messages = [types.SamplingMessage(role="user", content=types.TextContent(text=WORDS["sampleText"]))]
    answer, required = await ask(
        ctx,
        params,
        types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=messages, max_tokens=50)),
        lambda: ctx.session.create_message(messages, max_tokens=50, related_request_id=ctx.request_id),
    )
    return required or text(f"{answer.content.text} by {answer.model}")


async def roots(ctx, args, params):
    answer, required = await ask(ctx, params, types.ListRootsRequest(), ctx.session.list_roots)
    return required or text(", ".join(" ".join(filter(None, [str(r.uri), r.name])) for r in answer.roots))


async def extra(ctx, args, params):
    return text("extra")


TOOLS = {
    "echo": (echo, obj({"text": STRING})),
    "sum": (add, obj({"a": INTEGER, "b": INTEGER})),
    "fail": (fail, obj({"message": STRING})),
    "slow": (slow, obj({"steps": INTEGER, "delay_ms": INTEGER})),
    "cancelled": (was_cancelled, obj({})),
    "log": (log, obj({})),
    "media": (media, obj({})),
    "crash": (crash, obj({})),
    "extend": (extend, obj({})),
    "touch": (touch, obj({"uri": STRING})),
    "ask": (ask_tool, obj({})),
    "visit": (visit, obj({})),
    "sample": (sample, obj({})),
    "roots": (roots, obj({})),
}


async def list_tools(ctx, params):
    tools = {**TOOLS, **({"extra": (extra, obj({}))} if extended else {})}
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                input_schema=schema,
                output_schema=obj({"sum": INTEGER}) if name == "sum" else None,
                annotations=types.ToolAnnotations(read_only_hint=True) if name == "sum" else None,
            )
            for name, (_, schema) in tools.items()
        ]
    )


async def call_tool(ctx, params):
    legacy(ctx)
    if params.name == "extra" and extended:
        return text("extra")
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"unknown tool: {params.name}")
    return await TOOLS[params.name][0](ctx, params.arguments or {}, params)


RESOURCES = [
    types.Resource(uri="test://a", name="test://a"),
    types.Resource(uri="test://b", name="test://b"),
    types.Resource(uri="test://c", name="test://c"),
    types.Resource(uri=WORDS["greetingURI"], name="greeting", mime_type="text/plain"),
    types.Resource(uri=WORDS["logoURI"], name="logo", mime_type="image/png"),
    types.Resource(uri=WORDS["askedURI"], name="asked"),
]


async def list_resources(ctx, params):
    start = 0
    if params and params.cursor is not None:
        if not params.cursor.isdigit():
            raise MCPError(types.INVALID_PARAMS, "invalid cursor")
        start = int(params.cursor)
    following = str(start + 2) if start + 2 < len(RESOURCES) else None
    return types.ListResourcesResult(resources=RESOURCES[start : start + 2], next_cursor=following)


async def list_templates(ctx, params):
    template = types.ResourceTemplate(uri_template=WORDS["itemTemplate"], name="items", mime_type="text/plain")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx, params):
    uri = params.uri
    prefix = WORDS["itemTemplate"].removesuffix("{id}")
    if uri in ("test://a", "test://b", "test://c"):
        found = types.TextResourceContents(uri=uri, text=f"the resource {uri}")
    elif uri == WORDS["greetingURI"]:
        found = types.TextResourceContents.model_validate(GREETING)
    elif uri == WORDS["logoURI"]:
        found = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=WORDS["logo"])
    elif uri == WORDS["askedURI"]:
        answer, required = await ask_form(ctx, params)
        if required:
            return required
        found = types.TextResourceContents(uri=uri, text=answer)
    elif uri.startswith(prefix) and not uri.endswith("/none"):
        found = types.TextResourceContents(uri=uri, mime_type="text/plain", text=f"item {uri.removeprefix(prefix)}")
    else:
        code = types.INVALID_PARAMS if ctx.protocol_version == MODERN else -32002
        raise MCPError(code, f"unknown resource: {uri}", {"uri": uri})
    return types.ReadResourceResult(contents=[found])


async def subscribe(ctx, params):
    legacy(ctx).subscribed.add(params.uri)
    return types.EmptyResult()


async def unsubscribe(ctx, params):
    legacy(ctx).subscribed.discard(params.uri)
    return types.EmptyResult()


async def list_prompts(ctx, params):
    name = types.PromptArgument(name="name", required=True)
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(name="asked"),
            types.Prompt(name="greet", arguments=[name, types.PromptArgument(name="style")]),
            types.Prompt(name="review"),
        ]
    )


def message(role, content):
    return types.PromptMessage(role=role, content=content)


async def get_prompt(ctx, params):
    args = params.arguments or {}
    if params.name == "asked":
        answer, required = await ask_form(ctx, params)
        return required or types.GetPromptResult(messages=[message("user", types.TextContent(text=answer))])
    if params.name == "greet" and "name" in args:
        return types.GetPromptResult(
            messages=[
                message("user", types.TextContent(text=f"Greet {args['name']} in a {args.get('style', 'friendly')} way.")),
                message("assistant", types.TextContent(text=f"Hello, {args['name']}!")),
            ]
        )
    if params.name == "review":
        greeting = types.EmbeddedResource(resource=types.TextResourceContents.model_validate(GREETING))
        return types.GetPromptResult(messages=[message("user", greeting)])
    raise MCPError(types.INVALID_PARAMS, f"unknown prompt or missing argument: {params.name}")


async def complete(ctx, params):
    known = (params.context and params.context.arguments) or {}
    if params.argument.name == "style":
        values = WORDS["styles"]
    elif params.argument.name == "name":
        values = WORDS["formalNames"] if known.get("style") == "formal" else WORDS["names"]
    else:
        values = WORDS["items"]
    return types.CompleteResult(completion=types.Completion(values=[v for v in values if v.startswith(params.argument.value)]))


async def set_level(ctx, params):
    legacy(ctx).level = params.level
    return types.EmptyResult()


server = Server(
    "python",
    version="1.0.0",
    instructions=WORDS["instructions"],
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_subscriptions_listen=ListenHandler(bus),
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=set_level,
)
NOTIFIES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


async def serve_stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(NOTIFIES))


def serve_http():
    import socket

    import uvicorn

    # The SDK has no option for the notifications that it declares over HTTP.
    create = server.create_initialization_options
    server.create_initialization_options = lambda *_, **__: create(NOTIFIES)
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"listening url=http://127.0.0.1:{sock.getsockname()[1]}", file=sys.stderr, flush=True)
    app = server.streamable_http_app(json_response=WORDS.get("json", False), stateless_http=WORDS.get("stateless", False))

    def wait_for_end():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait_for_end, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


if WORDS.get("listen"):
    serve_http()
else:
    anyio.run(serve_stdio)
