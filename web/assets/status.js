"use strict";
// The page asks /api/v1/status every two seconds and shows the answer. Nothing is kept but the last five minutes of
// figures for the small lines, and a token for as long as the tab lives.

const every = 2000;
const points = 150;
const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

// Why values are refused, in the words of somebody who has to do something about it.
const meanings = {
  not_authorized: "The client's grants do not cover the topic. Widen the grants, or correct the device's topic.",
  topic_invalid: "The topic is not one that can be stored: empty levels, wildcards, control characters or too long.",
  payload_invalid: "The payload is not valid JSON. The verdict names the byte.",
  type_mismatch: "The value is not of the type the topic's schema asks for.",
  schema_violation: "The value is not among those the topic's schema allows.",
  number_out_of_range: "The number is outside the schema's range, or not finite.",
  timestamp_invalid: "The timestamp cannot be read, or names no zone and none is declared.",
  timestamp_future: "The device's clock is ahead of the box. Set the device's clock.",
  timestamp_too_old: "The value is older than the late window. Check the device's clock, or widen uns.lateWindow.",
  rate_limited: "The client sends faster than uns.ingress.perClientRatePerSec allows.",
  payload_too_large: "The value is larger than uns.ingress.maxValueSize.",
  topic_limit: "The workspace has as many topics as uns.ingress.maxTopics allows.",
  internal: "The box failed. Look into its log.",
};

const signs = {
  ready: "M8 25 L19 36 L40 13",
  wait: "M24 5 A19 19 0 1 1 23.9 5 M24 13 V25 L32 30",
  lost: "M24 6 L44 41 H4 Z M24 19 V29 M24 34.5 V35",
  stopped: "M16 5 H32 L43 16 V32 L32 43 H16 L5 32 V16 Z M24 14 V26 M24 33 V33.5",
};

const history = { rate: [], connections: [], p99: [], refused: [] };
let token = sessionStorage.getItem("token") || "";
let answeredAt = 0;

function show(id, text) {
  const at = $(id);
  if (at.textContent !== text) at.textContent = text;
}

function state(kind, sign, word, meaning, todo) {
  $("state").dataset.state = kind;
  $("sign").setAttribute("d", signs[sign]);
  show("word", word);
  show("meaning", meaning);
  show("todo", todo || "");
  $("todo").hidden = !todo;
  document.title = kind === "ready" ? "Millrace" : word + " – Millrace";
}

function since(text) {
  return text ? " Since " + new Date(text).toLocaleTimeString() + "." : "";
}

function showState(s) {
  if (s.state === "ready") {
    state("ready", "ready", "Ready", "Every value is stored before the device hears that it was received.");
    return;
  }
  if (s.state === "starting") {
    state("starting", "wait", "Starting", "The store is being opened. Devices can connect as soon as it is done.");
    return;
  }
  const keep = "Devices get no acknowledgement, keep their values and send them again." + since(s.historian.since);
  if (s.historian.why === "disk_low") {
    const free = bytes(s.disk.free_bytes);
    state("stopped", "stopped", "Not taking values: disk low", keep, `Free space on the disk of the data directory (${free[0]} ${free[1]} left). The box goes on by itself.`);
  } else if (s.historian.why === "fsync") {
    state("stopped", "stopped", "Not taking values: disk does not answer", keep, "Check the disk and its cable, controller or network mount. The box goes on by itself.");
  } else {
    state("stopped", "stopped", "Not taking values", keep, "Look into the box's log.");
  }
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return [n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1), units[i]];
}

function span(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min`;
  return `${seconds} s`;
}

function rate(n) {
  if (n === null) return "–";
  return n > 0 && n < 10 ? n.toFixed(1) : whole.format(n);
}

function line(name, value) {
  const kept = history[name];
  kept.push(value === null ? NaN : value);
  if (kept.length > points) kept.shift();
  const known = kept.filter((v) => !Number.isNaN(v));
  // A quarter of air above, so that a steady figure is a line in the middle and not a lid. The line grows from the left.
  const top = Math.max(...known, 1e-9) * 1.25;
  const width = Math.max(kept.length, 30) - 1;
  const at = [];
  kept.forEach((v, i) => {
    if (!Number.isNaN(v)) at.push((i * 120 / width).toFixed(1) + "," + (27 - 26 * v / top).toFixed(1));
  });
  $(name + "-line").firstElementChild.setAttribute("points", at.length > 1 ? at.join(" ") : "");
}

function showFigures(s) {
  const i = s.ingress;
  show("rate", rate(i.accepted_per_second));
  show("accepted", whole.format(i.accepted) + " since start");
  show("connections", whole.format(s.broker.connections));
  const p99 = s.stored_p99_ms;
  show("p99", p99 === null ? "–" : p99 < 10 ? p99.toFixed(1) : whole.format(p99));
  show("p99-note", p99 === null ? "no values in the last seconds" : "99 of 100 are faster");
  show("refused-rate", rate(i.refused_per_second));
  show("refused", i.refused ? whole.format(i.refused) + " since start" : "none since start");
  $("refused-tile").classList.toggle("look", i.refused_per_second > 0);
  const [free, unit] = bytes(s.disk.free_bytes), [size, sizeUnit] = bytes(s.historian.disk_bytes);
  show("free", free);
  show("free-unit", unit);
  const days = s.disk.days_left;
  show("days", days === null ? "the store is not growing" : days > 3650 ? "lasts more than ten years" : `lasts ${days < 10 ? days.toFixed(1) : whole.format(days)} days at this growth`);
  if (days === null && s.uptime_s < 600) show("days", "growth known after ten minutes");
  // Log files are written ahead of need, so a store with hardly a value takes room from its first moment.
  const ahead = s.historian.last_seq < 1e6 ? " (log files written ahead)" : "";
  show("size", `the store takes ${size} ${sizeUnit}${ahead}`);
  show("topics", whole.format(s.topics));
  show("seq", s.historian.last_seq ? "newest value is number " + whole.format(s.historian.last_seq) : "no value yet");
  line("rate", i.accepted_per_second);
  line("connections", s.broker.connections);
  line("p99", p99);
  line("refused", i.refused_per_second);
  showReasons(s.refused);
  show("version", s.version);
  show("uptime", "up for " + span(s.uptime_s));
}

function showReasons(refused) {
  const names = Object.keys(refused).sort((a, b) => refused[b] - refused[a]);
  $("reasons").hidden = names.length === 0;
  $("reason-rows").replaceChildren(...names.map((name) => {
    const row = document.createElement("tr");
    for (const [text, kind] of [[name, ""], [whole.format(refused[name]), "right"], [meanings[name] || "", ""]]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (kind) cell.className = kind;
      row.append(cell);
    }
    return row;
  }));
}

function askForToken(refused) {
  state("waiting", "wait", "Sign-in needed", "The box is alive. Its figures are shown to those who may see them.");
  $("signin").hidden = false;
  $("figures").hidden = true;
  $("reasons").hidden = true;
  $("wrong").hidden = !refused;
  show("wrong", refused || "");
}

async function poll() {
  try {
    const headers = token ? { Authorization: "Bearer " + token } : {};
    const answer = await fetch("/api/v1/status", { headers, signal: AbortSignal.timeout(10000) });
    if (answer.status === 401 || answer.status === 403) {
      askForToken(token ? "The box does not accept this token." : "");
      token = "";
      sessionStorage.removeItem("token");
      return;
    }
    if (!answer.ok) throw new Error(answer.status);
    const s = await answer.json();
    answeredAt = Date.now();
    $("signin").hidden = true;
    $("figures").hidden = false;
    $("figures").classList.remove("stale");
    showState(s);
    showFigures(s);
    show("age", "as of " + new Date(s.now).toLocaleTimeString());
  } catch {
    const known = answeredAt ? ` The figures below are from ${new Date(answeredAt).toLocaleTimeString()}.` : "";
    state("lost", "lost", "No answer from the box", "It may be stopped, or the network in between is down." + known, "On the box: systemctl status millrace, then journalctl -u millrace.");
    $("figures").classList.add("stale");
  }
  setTimeout(poll, every);
}

$("signin").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  poll();
});

$("sign").setAttribute("d", signs.wait);
poll();
