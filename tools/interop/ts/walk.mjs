// The session of hosts, for clients of both TypeScript SDKs. The first argument is the job as JSON:
// the server and the steps. The host prints its report as JSON. See scenario_test.go for both.

/** The job of the Go test. */
export const job = JSON.parse(process.argv[2]);

/** The name and version of the client. */
export const identity = { name: "interop", version: "1" };

/**
 * Connects a client, runs the job's steps, closes the client and prints the report. The functions
 * are the differences between the SDKs: connect, get the negotiated revision, call a tool with
 * request options, and end the session.
 */
export async function walk(connect, revisionOf, callTool, endSession) {
  const report = { revision: "", server: "", tools: [], outcomes: {}, failure: "" };
  try {
    const client = await connect();
    report.revision = revisionOf(client);
    report.server = client.getServerVersion()?.name ?? "";
    report.tools = (await client.listTools()).tools.map((tool) => tool.name);
    for (const step of job.steps) {
      report.outcomes[step.name] = await runStep((options) => callTool(client, { name: step.tool, arguments: step.args }, options), step);
    }
    if (job.ping) {
      await client.ping();
    }
    await endSession();
    await client.close();
  } catch (error) {
    report.failure = String(error?.stack ?? error);
  }
  process.stdout.write(JSON.stringify(report));
}

async function runStep(callTool, step) {
  if (!step.parallel) {
    return call(callTool, step);
  }
  const all = await Promise.all(Array.from({ length: step.parallel }, () => call(callTool, step)));
  const agreeing = all.filter((o) => o.text === all[0].text && o.code === all[0].code).length;
  return { ...all[0], agreeing };
}

async function call(callTool, step) {
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
    const result = await callTool(options);
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
