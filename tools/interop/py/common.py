"""The common parts of the clients: the job, the connection to the server, and the report."""

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

warnings.simplefilter("ignore")  # the clients use logging, sampling and roots, which are deprecated

# The job of the Go test.
JOB = json.loads(sys.argv[1])


def connect(**options):
    """Returns a client of the job's server."""
    if JOB.get("url"):
        transport = sse_client(JOB["url"]) if JOB.get("old") else streamable_http_client(JOB["url"])
    else:
        transport = stdio_client(StdioServerParameters(command=JOB["command"], args=JOB["args"], env=dict(os.environ)))
    return Client(transport, mode=JOB.get("mode") or "auto", **options)


async def server_of(client):
    """Returns the name of the server. A client with a fixed revision has not requested it yet."""
    if client.server_info is None:
        found = await client.session.send_discover(client.protocol_version)
        client.session.adopt(types.DiscoverResult.model_validate(found))
    return client.server_info.name


def report(main, seen):
    """Runs main, which fills the report seen, and prints the report."""

    async def run():
        try:
            with anyio.fail_after(40):
                await main(seen)
        except BaseException:
            seen["failure"] = traceback.format_exc()

    anyio.run(run)
    json.dump(seen, sys.stdout)
