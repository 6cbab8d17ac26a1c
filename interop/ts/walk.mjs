// The session that every host here walks through, for clients of the
// TypeScript SDKs. The job, in the first argument, says which server to start
// and which steps to take; the report goes to standard output as one JSON
// text. See scenario_test.go for the meaning of both.

/** The job that the Go test wrote. */
export const job = JSON.parse(process.argv[2]);

/** The identity that any client must be configured with. */
export const identity = { name: "interop", version: "1" };

/**
 * Walks a connected client through the job's steps, closes it and prints the
 * report. The functions are in what the SDKs differ: how to connect, to learn
 * the negotiated revision, to call a tool with request options, and to leave.
 */
export async function walk(connect, revisionOf, callTool, leave) {
  const report = { revision: "", server: "", tools: [], outcomes: {}, failure: "" };
  try {
    const client = await connect();
    report.revision = revisionOf(client);
    report.server = client.getServerVersion()?.name ?? "";
    report.tools = (await client.listTools()).tools.map((tool) => tool.name);
    for (const step of job.steps) {
      report.outcomes[step.name] = await take((options) => callTool(client, { name: step.tool, arguments: step.args }, options), step);
    }
    if (job.ping) {
      await client.ping();
    }
    await leave();
    await client.close();
  } catch (error) {
    report.failure = String(error?.stack ?? error);
  }
  process.stdout.write(JSON.stringify(report));
}

async function take(attempt, step) {
  if (!step.parallel) {
    return call(attempt, step);
  }
  const all = await Promise.all(Array.from({ length: step.parallel }, () => call(attempt, step)));
  const agreeing = all.filter((o) => o.text === all[0].text && o.code === all[0].code).length;
  return { ...all[0], agreeing };
}

async function call(attempt, step) {
  const outcome = { text: "", isError: false, code: 0, message: "", cancelled: false, progress: [] };
  const abort = new AbortController();
  const options = { signal: abort.signal };
  if (step.progress) {
    options.onprogress = ({ progress }) => {
      outcome.progress.push(progress);
      if (step.cancelAt && progress >= step.cancelAt) {
        abort.abort("enough");
      }
    };
  }
  try {
    const result = await attempt(options);
    outcome.text = result.content[0]?.text ?? "";
    outcome.isError = result.isError ?? false;
    if (result.structuredContent !== undefined) {
      outcome.structured = result.structuredContent;
    }
  } catch (error) {
    outcome.cancelled = abort.signal.aborted;
    outcome.message = String(error?.message ?? error);
    outcome.code = !outcome.cancelled && Number.isInteger(error?.code) ? error.code : 0;
  }
  return outcome;
}
