// The source of the data: the server, or an exported page itself.
import { apiGet } from "./api.js";
import { byId } from "./dom.js";

// exported is the data of an exported page, or null.
export const exported = readExported();

function readExported() {
  const el = byId("mcpwire-data");
  if (!el) return null;
  try {
    return JSON.parse(el.textContent);
  } catch {
    return { rows: [], sessions: [], sources: [], tools: { tools: [], methods: [] }, details: {}, left: { note: "The data of this page is damaged." } };
  }
}

// getDetail returns the detail of a row.
export async function getDetail(q, signal) {
  if (!exported) return apiGet("/api/row/" + q, signal);
  const d = exported.details?.[q];
  if (!d) throw new Error("The details of this row were omitted when this page was exported.");
  return d;
}

// getTools returns the statistics of tools and methods.
export async function getTools() {
  return exported ? exported.tools || { tools: [], methods: [] } : apiGet("/api/tools");
}
