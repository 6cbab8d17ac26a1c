"""What the programs that are clients have in common: the job, the way to the server, and the report."""

import json
import os
import sys
import traceback
import warnings

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

warnings.simplefilter("ignore")  # logging, sampling and roots are deprecated, and in use

# What the Go test wrote.
JOB = json.loads(sys.argv[1])


def connect(**options):
    """Returns a client of the job's server."""
    if JOB.get("url"):
        transport = sse_client(JOB["url"]) if JOB.get("old") else streamable_http_client(JOB["url"])
    else:
        transport = stdio_client(StdioServerParameters(command=JOB["command"], args=JOB["args"], env=dict(os.environ)))
    return Client(transport, mode=JOB.get("mode") or "auto", **options)


async def server_of(client):
    """Returns the server's name for itself. A client that pins a revision has not asked for it yet."""
    if client.server_info is None:
        found = await client.session.send_discover(client.protocol_version)
        client.session.adopt(types.DiscoverResult.model_validate(found))
    return client.server_info.name


def report(main, seen):
    """Runs main, which notes in seen what it saw, and prints that."""

    async def run():
        try:
            with anyio.fail_after(40):
                await main(seen)
        except BaseException:
            seen["failure"] = traceback.format_exc()

    anyio.run(run)
    json.dump(seen, sys.stdout)
