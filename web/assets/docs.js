"use strict";
// Renders the box's own OpenAPI document. Everything is built as text nodes: nothing in the document is taken as markup.

const make = (tag, kind, ...inner) => {
  const at = document.createElement(tag);
  if (kind) at.className = kind;
  at.append(...inner.filter((x) => x !== null && x !== undefined));
  return at;
};
const code = (text) => make("code", "", text);
// prose gives a description's parts: what stands between backticks is code.
const prose = (text) => (text || "").split("`").map((part, i) => (i % 2 ? code(part) : part));
let spec;

function resolve(schema) {
  while (schema && schema.$ref) schema = spec.components.schemas[schema.$ref.split("/").pop()];
  return schema || {};
}

function typeOf(schema) {
  const s = resolve(schema);
  const types = [].concat(s.type || []).filter((t) => t !== "null");
  if (types.includes("array")) return "array of " + typeOf(s.items || {});
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (s.format && s.format !== "int64" && s.format !== "double") return `${types.join(" | ")} (${s.format})`;
  return types.join(" | ") || "any";
}

// members lists the members of a schema with those inside them, dotted, to a bounded depth.
function members(schema, prefix, depth, rows) {
  let s = resolve(schema), mark = "";
  while ([].concat(s.type || []).includes("array")) { s = resolve(s.items); mark += "[]"; }
  for (const [name, inner] of Object.entries(s.properties || {})) {
    const at = prefix + (prefix && mark ? mark : "") + (prefix ? "." : "") + name;
    rows.push([at, inner, (s.required || []).includes(name), depth]);
    if (depth < 3) members(inner, at, depth + 1, rows);
  }
  return rows;
}

function table(head, rows) {
  return make("table", "", make("thead", "", make("tr", "", ...head.map((h) => make("th", "", h)))), make("tbody", "", ...rows));
}

function schemaTable(schema, sending) {
  const rows = members(schema, "", 0, []);
  if (!rows.length) return make("p", "quiet", typeOf(schema));
  return table(["Member", "Type", "Meaning"], rows.map(([name, s, required, depth]) => make("tr", depth ? "deep" : "",
    make("td", "", code(name), sending && required ? make("span", "need", " required") : null),
    make("td", "", typeOf(s)), make("td", "", ...prose(s.description || resolve(s).description)))));
}

function bounds(s) {
  const parts = [];
  if (s.default !== undefined) parts.push("default " + s.default);
  if (s.minimum !== undefined) parts.push("from " + s.minimum);
  if (s.maximum !== undefined) parts.push("to " + s.maximum);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

function curl(method, path, op) {
  const root = location.origin + spec.servers[0].url;
  const query = (op.parameters || []).filter((p) => p.in === "query" && p.required).map((p) => p.name + "=" + p.name.toUpperCase()).join("&");
  let text = `curl -H "Authorization: Bearer $TOKEN"`;
  if (method !== "GET") text += " -X " + method;
  if (op.requestBody) text += ` -H 'Content-Type: ${Object.keys(op.requestBody.content)[0]}' -d @body`;
  return text + ` '${root}${path}${query ? "?" + query : ""}'`;
}

function operation(method, path, op) {
  const card = make("section", "card", make("header", "", make("span", "method", method), code(path)),
    make("p", "summary", ...prose(op.summary)), op.description ? make("p", "about", ...prose(op.description)) : null);
  card.id = op.operationId;
  const parameters = op.parameters || [];
  if (parameters.length) {
    card.append(make("h3", "", "Parameters"), table(["Name", "Type", "Meaning"], parameters.map((p) => make("tr", "",
      make("td", "", code(p.name), make("span", "need", ` ${p.in}${p.required ? ", required" : ""}`)),
      make("td", "", typeOf(p.schema)), make("td", "", ...prose(p.description), bounds(p.schema || {}))))));
  }
  for (const [kind, media] of Object.entries((op.requestBody || {}).content || {})) {
    card.append(make("h3", "", "Body: " + kind), schemaTable(media.schema, true));
  }
  const codes = make("div", "codes");
  for (const [status, answer] of Object.entries(op.responses)) {
    if (!status.startsWith("2")) { codes.append(make("span", "", `${status} ${answer.description}`)); continue; }
    const kinds = Object.entries(answer.content || {});
    card.append(make("h3", "", `Answer ${status}: ${kinds.map(([kind]) => kind).join(", ") || "no body"}`));
    for (const [, media] of kinds.filter(([kind]) => kind.includes("json")).slice(0, 1)) card.append(schemaTable(media.schema, false));
  }
  card.append(make("h3", "", "Problems (application/problem+json)"), codes, make("h3", "", "Try it"), make("pre", "", curl(method, path, op)));
  return card;
}

function render() {
  const byTag = new Map((spec.tags || []).map((t) => [t.name, []]));
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, op] of Object.entries(methods)) {
      if (!op.operationId) continue;
      const tag = (op.tags || ["Other"])[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push([method.toUpperCase(), path, op]);
    }
  }
  const body = document.getElementById("operations"), index = document.getElementById("index");
  body.replaceChildren(make("p", "intro", ...prose(spec.info.description)));
  for (const [tag, list] of byTag) {
    body.append(make("h2", "", tag));
    const group = make("div", "", make("h2", "", tag));
    for (const [method, path, op] of list) {
      const card = operation(method, path, op);
      const link = make("a", "", make("span", "method", method), make("span", "", op.summary || path));
      link.href = "#" + op.operationId;
      link.dataset.text = card.dataset.text = `${method} ${path} ${op.summary} ${op.description || ""}`.toLowerCase();
      body.append(card);
      group.append(link);
    }
    index.append(group);
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

document.getElementById("find").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const at of document.querySelectorAll("[data-text]")) at.hidden = !words.every((w) => at.dataset.text.includes(w));
});

fetch("/api/v1/openapi.json").then((r) => r.json()).then((document) => { spec = document; render(); }).catch((error) => {
  document.getElementById("operations").replaceChildren(make("p", "alarm", "The document could not be read: " + error.message));
});
