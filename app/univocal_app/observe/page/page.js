// What a client sent reaches the document as text alone: by textContent, never as markup.
"use strict";

import { chart } from "./charts.js";
import { readable } from "./keys.js";
import { compared } from "./marks.js";
import { STAGES } from "./stages.js";

// Milliseconds from one answer to the next question.
const EVERY = matchMedia("(prefers-reduced-motion: reduce)").matches ? 10000 : 2000;
const PATIENCE = 20000; // milliseconds that an answer may take, if it is not work
const WORK = 300000; // where it is
const TOP = 10;
const LONG = 120; // characters
const SCHEME = "http"; // a refused target is explained by it: profiles are the same for both

const at = (id) => document.getElementById(id);
const plain = new Intl.NumberFormat("en");
const number = (count) => plain.format(count);
const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function classed(names, made) {
  made.className = names;
  return made;
}

const post = (path, document) => ask(path, { method: "POST", body: JSON.stringify(document) }, WORK);

const shown = new Map();

// Show new data, but never in a part that somebody uses by keyboard.
function renew(id, data, build) {
  const told = JSON.stringify(data);
  if (shown.get(id) === told || (shown.has(id) && at(id).querySelector(":focus-visible"))) return;
  shown.set(id, told);
  at(id).replaceChildren(...build(data));
}

class Locked extends Error {}

// The listener wants the token, which ends with the tab.
const token = {
  get: () => sessionStorage.getItem("token"),
  set: (text) => sessionStorage.setItem("token", text),
  forget: () => sessionStorage.removeItem("token"),
};

async function ask(path, options = {}, patience = PATIENCE) {
  const headers = token.get() ? { authorization: `Bearer ${token.get()}` } : {};
  let answer;
  try {
    answer = await fetch(`.${path}`, { ...options, headers, signal: AbortSignal.timeout(patience) });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "the server takes too long" : "the server is not there");
  }
  const told = await answer.json().catch(() => ({ detail: `status ${answer.status}` }));
  if (told.reason === "purge-forbidden") throw new Locked(told.detail);
  if (!answer.ok) throw new Error(told.detail);
  return told;
}

const NOTHING = "–";

function octets(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${number(Math.round(count * 10) / 10)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds >= 1) return `${number(+seconds.toPrecision(2))} s`;
  return `${seconds < 0.01 ? (seconds * 1000).toFixed(1) : Math.round(seconds * 1000)} ms`;
}

const percent = (hits, answerable) => (answerable ? `${((hits / answerable) * 100).toFixed(1)} %` : NOTHING);

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function lasting(seconds) {
  const [unit, each] = UNITS.find((one) => seconds >= 2 * one[1]) ?? UNITS[3];
  return `${number(Math.floor(seconds / each))} ${unit}`;
}

const moment = (seconds) => new Date(seconds * 1000).toLocaleString("sv");

// Now

const requests = chart(at("chart-requests"), {
  lines: [
    { name: "requests", colour: "quiet", write: number },
    { name: "hits", colour: "mark", write: number, fill: true },
    { name: "hit ratio", colour: "slow", write: (ratio) => `${Math.round(ratio)} %`, percent: true, dash: "4 4" },
  ],
  write: number,
  least: 4,
});
const latency = chart(at("chart-latency"), {
  lines: [
    { name: "50 %", colour: "mark", write: duration },
    { name: "90 %", colour: "slow", write: duration, dash: "6 3" },
    { name: "99 %", colour: "slower", write: duration, dash: "2 2" },
  ],
  write: (seconds) => (seconds >= 1 ? `${number(+seconds.toPrecision(1))} s` : `${+(seconds * 1000).toPrecision(1)} ms`),
  least: [0.001, 0.1],
  log: true,
  left: 56,
});
const memory = chart(at("chart-memory"), {
  lines: [{ name: "stored", colour: "mark", write: octets, fill: true }],
  write: octets,
  least: 1024,
  binary: true,
  left: 60,
});

function health(origins) {
  const bad = origins.filter((each) => !/up|draining/.test(each.state)); // a backup is well
  if (!bad.length) return ["Origin servers up", number(origins.length), origins.length ? "all that are configured" : "none is configured"];
  const note = `${bad[0].state}: ${bad[0].site}${bad.length > 1 ? ` and ${number(bad.length - 1)} more` : ""}`;
  return ["Origin servers up", `${number(origins.length - bad.length)} of ${number(origins.length)}`, note, "alarm"];
}

const sum = (numbers) => Object.values(numbers).reduce((total, count) => total + count, 0);
const most = (numbers) => Object.keys(numbers).sort((one, other) => numbers[other] - numbers[one])[0];
const SINCE = "since the start";
const LAST = 10; // seconds that a rate is of

// When the first certificate expires, if there is one; red from two weeks before.
function expiry(certificates, now) {
  if (!certificates.length) return [];
  const unread = certificates.find((each) => each.expires === null);
  const first = unread ?? certificates.reduce((one, other) => (other.expires < one.expires ? other : one));
  const left = unread ? 0 : first.expires - now;
  const note = `${first.site || "every other host"}, ${unread ? "its file cannot be read" : moment(first.expires)}`;
  return [["Certificate expires in", left > 0 ? lasting(left) : NOTHING, note, left < 14 * 86400 ? "alarm" : ""]];
}

function showNumbers({ totals, series, connections, certificates, program }, origins) {
  const last = series.slice(-LAST - 1, -1);
  const recent = (name) => last.reduce((total, second) => total + second[name], 0);
  const failing = last.reduce((total, second) => total + sum(second.failed), 0);
  const [refused, failed] = [sum(totals.refused), sum(totals.failed)];
  const some = totals.requests > 0;
  const { stored } = totals;
  const rate = recent("requests") / Math.max(last.length, 1);
  const values = [
    ["Requests in another spelling", some ? number(totals.folded) : NOTHING, `not the canonical one; ${SINCE}`, "first"],
    ["Hits", some ? number(totals.hits) : NOTHING, `${SINCE}; ratio ${percent(totals.hits, totals.answerable)}, last ${LAST} s ${percent(recent("hits"), recent("answerable"))}`, "first"],
    ["Requests", some ? number(totals.requests) : NOTHING, SINCE],
    ["Requests a second", some ? number(Math.round(rate * 10) / 10) : NOTHING, `last ${LAST} s; ${octets(totals.bytes)} sent ${SINCE}`],
    ["Latency, median", some ? duration(totals.seconds.p50) : NOTHING, `${SINCE}; 99 % within ${some ? duration(totals.seconds.p99) : NOTHING}`],
    ["Stored", octets(stored.bytes), `of ${octets(stored.max_bytes)}, ${counted(stored.responses, "response")}, ${number(stored.evictions)} evicted${stored.memory ? `; in memory ${octets(stored.memory.bytes)}` : ""}`],
    health(origins),
    ["Failed", number(failed), `${SINCE}${failed ? `; most: ${most(totals.failed)}` : ""}`, failing ? "alarm" : ""],
    ["Refused", number(refused), `${SINCE}${refused ? `; most: ${most(totals.refused)}` : ""}`],
    ["Connections", number(connections.client), `of clients now; ${number(connections.origin)} to origin servers`],
    ["Stale", some ? number(totals.stale) : NOTHING, `${SINCE}; ${number(totals.collapsed)} collapsed`],
    ["Purges", number(totals.purges), SINCE],
    ["Running for", lasting(Math.max(program.now - program.since, 0)), `version ${program.version}, since ${moment(program.since)}`],
    ...expiry(certificates, program.now),
  ];
  for (const [name, value, note, kind] of values) tile(name, value, note, kind);
  showSites(totals);
}

function showCharts({ series, step }) {
  const whole = series.slice(0, -1); // the last step goes on
  if (!whole.length) return;
  const times = whole.map((each) => each.at);
  const some = (value) => whole.map((each) => (each.requests ? value(each) : null));
  const rate = (name) => whole.map((each) => Math.round((10 * each[name]) / step) / 10);
  requests.show(times, [rate("requests"), rate("hits"), ratios(whole, step)]);
  latency.show(times, ["p50", "p90", "p99"].map((part) => some((each) => each.seconds[part] || null)));
  memory.show(times, [whole.map((each) => each.stored.bytes)]);
}

// The hit ratio of ten seconds or a longer step.
function ratios(steps, step) {
  const over = Math.ceil(LAST / step);
  const total = (from, to, name) => steps.slice(from, to).reduce((all, each) => all + each[name], 0);
  return steps.map((_, index) => {
    const [from, to] = [Math.max(index - over + 1, 0), index + 1];
    const answerable = total(from, to, "answerable");
    return answerable ? (100 * total(from, to, "hits")) / answerable : null;
  });
}

const tiles = new Map();

function tile(name, value, note, kind = "") {
  if (!tiles.has(name)) {
    const made = element("div", null, element("dt", name), element("dd", ""), classed("aside", element("dd", "")));
    tiles.set(name, made);
    at("numbers").append(made);
  }
  classed(kind, tiles.get(name));
  const [, large, small] = tiles.get(name).children;
  if (large.textContent !== value) large.textContent = value;
  if (small.textContent !== note) small.replaceChildren(...unbroken(note));
}

// Numbers keep their units on their line.
const unbroken = (text) => text.split(/([\d.,]+ [%\w]+)/).map((part, index) => (index % 2 ? classed("whole", element("span", part)) : part));

// A text, what another does not have marked.
function marked(text, other, kind = "") {
  return classed("octets", element("span", null, ...compared(text, other)[0].map(([octets, common]) => (
    common ? document.createTextNode(octets) : classed(kind, element("mark", octets))
  ))));
}

const targetOf = (url) => url.replace(/^https?:\/\/[^/?#]*/, "") || "/";

function spelledList({ key, spellings, count }) {
  const target = targetOf(key);
  return classed("spelled", element("ul", null, ...spellings.map((each) => {
    const same = each.target === target;
    const said = element("span", null, marked(each.target, target), ...(same ? [" ", classed("tag", element("span", "canonical"))] : []));
    const part = element("span", "");
    part.style.width = `${(100 * each.count) / count}%`;
    return element("li", null, said, classed("bar", element("span", null, part)), classed("count", element("span", number(each.count))));
  })));
}

function showFolding(told) {
  renew("folding", told, () => (told.saved
    ? [element("b", counted(told.saved, "miss", "misses")), ` saved, at least: ${counted(told.spellings, "spelling")} came for ${counted(told.keys, "page")}.`]
    : ["None yet."]));
}

function showSpellings(folded) {
  const open = new Set([...at("spellings").querySelectorAll("details[open]")].map((each) => each.dataset.key));
  const first = !shown.has("spellings") || !at("spellings").childElementCount;
  renew("spellings", folded.filter((each) => each.saved), (rows) => rows.map((each, index) => {
    const saved = element("b", `${counted(each.saved, "miss", "misses")} saved`);
    const summary = element("summary", null, classed("url", element("span", null, key(each.key))), " ", saved, ` by ${counted(each.spellings.length, "spelling")}, ${counted(each.count, "request")}`);
    const details = element("details", null, summary, spelledList(each), explainButton(each.key, "Explain"));
    details.dataset.key = each.key;
    details.open = first ? index === 0 : open.has(each.key);
    return details;
  }));
}

async function discover() {
  at("discover").disabled = true;
  at("discovered").replaceChildren(element("p", "Searching"));
  try {
    const told = await ask("/-/discover", {}, WORK);
    const said = `${told.folded.urls} of ${told.urls} URLs would fold, ${told.folded.requests} of ${told.requests} requests.`;
    const nothing = `Nothing found: no rule joins more of the ${counted(told.urls, "URL")} that clients asked for.`;
    const rules = told.rules.map((rule) => element("li", null, element("code", `${rule.from} → ${rule.to}`)));
    at("discovered").replaceChildren(...(rules.length || told.folded.urls
      ? [element("p", said), element("ul", null, ...rules), element("p", "The profile, to paste:"), element("pre", told.profile)]
      : [element("p", nothing)]));
  } catch (error) {
    at("discovered").replaceChildren(element("p", `It could not be done: ${error.message}`));
  }
  at("discover").disabled = false;
}

function button(label, content, click) {
  const made = element("button", null, content);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", click);
  return made;
}

function explainButton(url, text = url) {
  const made = button(`Explain ${url}`, text === url ? key(url) : long(text), () => {
    at("url").value = url;
    at("explain").requestSubmit();
    at("url").focus();
  });
  return text === url ? classed("link", made) : made;
}

function stage({ name, before, after, lossy }) {
  const item = element("li", null, element("b", name), ...(STAGES[name] ? [" ", classed("note", element("span", STAGES[name]))] : []), ...(lossy ? [" ", classed("tag", element("span", "drops what an origin may read"))] : []));
  const said = (word, octets) => element("p", null, classed("unseen", element("span", word)), octets);
  item.append(said("before: ", marked(before, after, "gone")), said("after: ", marked(after, before)));
  return item;
}

async function explain(event) {
  event.preventDefault();
  const url = at("url").value;
  at("stages").replaceChildren();
  at("asked").replaceChildren();
  try {
    const told = await ask(`/-/explain?url=${encodeURIComponent(url)}`);
    at("verdict").className = told.canonical ? "" : "refused";
    at("verdict").textContent = told.canonical ?? `Refused: ${told.reasons.join(", ")}`;
    const [changes, others] = [false, true].map((same) => told.stages.filter((each) => same === (each.before === each.after)));
    at("stages").replaceChildren(...changes.map(stage));
    if (others.length) at("asked").append(classed("note", element("p", `Nothing to change: ${others.map((each) => each.name).join(", ")}.`)));
    if (told.canonical) await showAsked(url);
  } catch (error) {
    at("verdict").className = "refused";
    at("verdict").textContent = error.message;
  }
}

async function showAsked(url) {
  const told = await ask(`/-/spellings?url=${encodeURIComponent(url)}`);
  const stored = told.stored ? `${counted(told.stored, "response is", "responses are")} stored.` : "Nothing of it is stored.";
  at("asked").append(element("p", told.count
    ? `${counted(told.count, "request")} came for it by ${counted(told.spellings.length, "spelling")}. ${stored}`
    : `Nobody got it yet. ${stored}`), spelledList(told));
}

// Tables

const STATES = new Set(["up", "failing", "ejected", "down", "draining", "backup"]);

function roled(role, made) {
  made.setAttribute("role", role);
  return made;
}

function row(cells) {
  return roled("row", element("tr", null, ...cells.map(([column, content, kind]) => {
    const cell = roled("cell", element("td", null, content));
    cell.dataset.column = column;
    if (kind) cell.className = kind;
    return cell;
  })));
}

const none = (columns, text) => {
  const cell = roled("cell", element("td", text));
  cell.colSpan = columns;
  return roled("row", element("tr", null, cell));
};

async function showTop() {
  const by = at("by").value;
  const search = at("search").value;
  const top = await ask(`/-/top?by=${by}&n=${TOP}&search=${encodeURIComponent(search)}`);
  const write = by === "bytes" ? octets : number;
  if (search !== at("search").value) return; // it was asked for something else since
  const empty = search ? "No key has that." : "Nothing yet.";
  renew("top", [by, top, search], () => (top.length ? top.map((each) => row([["", each.field ? long(`${each.field}: ${each.setting}`) : explainButton(each.key)], [by, write(each.count), "count"]])) : [none(2, empty)]));
}

function showSites({ sites }) {
  const statuses = ["2xx", "3xx", "4xx", "5xx"];
  renew("sites", sites, () => (sites.length ? sites.map((each) => row([
    ["", each.site || "no site"],
    ["requests", number(each.requests), "count"],
    ...[...statuses.map((status) => [status, each.statuses[status]]), ["hits", each.hits]].map(([name, count]) => [name, count ? number(count) : NOTHING, "count"]),
    ["sent", octets(each.bytes), "count"],
  ])) : [none(8, "Nothing yet.")]));
}

function showFailed(failures) {
  renew("failed", failures, () => (failures.length ? failures.map((each) => {
    const told = [each.origin, each.cause, each.error].filter(Boolean).join(": ");
    const reason = element("span", null, element("b", each.reason), ...(told ? [" ", classed("note", long(told))] : []));
    return row([
      ["", moment(each.at).slice(11)],
      ["", classed("octets", element("span", null, key(each.url)))],
      ["", reason],
      ["status", String(each.status || NOTHING), "count"],
    ]);
  }) : [none(4, "Nothing has failed.")]));
}

function showRefused(refused) {
  renew("refused", refused, () => (refused.length ? refused.map(({ reason, host, example, count, hosts }) => row([
    ["", element("b", reason)],
    ["host", hosts > 1 ? `${number(hosts)} hosts, most: ${host || "none"}` : host ? long(host) : "none is named"],
    ["example", host && example.startsWith("/") ? namedButton(`${SCHEME}://${host}${example}`, example) : classed("octets", element("span", null, long(example)))],
    ["count", number(count), "count"],
  ])) : [none(4, "Nothing was refused.")]));
}

function namedButton(url, text) {
  const button = explainButton(url);
  button.replaceChildren(long(text));
  return button;
}

// A text that breaks between words; a long one: three lines, all on hover.
function long(text) {
  const made = element("span", null, ...text.split(/(?<=[_.&])/).flatMap((part) => [part, element("wbr", "")]));
  if (text.length > LONG) classed("long", made).title = text;
  return made;
}

// A URL decoded, its exact form on hover.
function key(url) {
  const text = readable(url);
  const made = long(text);
  if (text !== url) {
    made.classList.add("decoded");
    made.title = url;
  }
  return made;
}

function showOrigins(origins) {
  renew("origins", origins, () => (origins.length ? origins.map((each) => row([
    ["site", each.site],
    ["", classed("octets", element("span", each.url))],
    ["state", origins.length > 1 ? element("span", null, state(each), " ", drain(each)) : state(each)],
    ["requests", number(each.requests), "count"],
    ["failures", number(each.failures), "count"],
    ["under way", number(each.under_way), "count"],
  ])) : [none(6, "No origin server is configured.")]));
}

let drains = 0; // earlier answers are not shown

function drain({ url, state: name }) {
  const action = name === "draining" ? "enable" : "drain";
  return button(`${action} ${url}`, action, async ({ target }) => {
    target.blur();
    try {
      await post(`/-/origins/${action}`, { url });
      drains += 1;
      showOrigins(await ask("/-/origins"));
    } catch (error) {
      at("drained").textContent = error.message;
    }
  });
}

function state({ state: name, since, reason }) {
  const said = classed(STATES.has(name) ? name : "", element("span", name));
  const begun = classed("note", element("time", ` since ${moment(since)}`));
  begun.dateTime = new Date(since * 1000).toISOString();
  return element("span", null, said, begun, ...(reason ? [classed("note", element("span", `: ${reason}`))] : []));
}

const HINTS = { url: `${SCHEME}://host/path`, prefix: `${SCHEME}://host/path/`, tag: "article-42" };

function hint() {
  at("name").placeholder = HINTS[at("kind").value];
}

const order = () => ({ [at("kind").value]: at("name").value, soft: at("soft").checked });

function forgetCount() {
  at("confirm").hidden = true;
  at("purged").textContent = "";
}

async function foresee(event) {
  event.preventDefault();
  forgetCount();
  try {
    const { would_purge: count, key, value } = await post("/-/purge/preview", order());
    const verb = at("soft").checked ? "be marked stale" : "go";
    at("purged").textContent = `${counted(count, "stored response")} would ${verb}: ${key ?? value}`;
    at("confirm").textContent = at("soft").checked ? `Mark ${number(count)} stale` : `Purge ${number(count)}`;
    at("confirm").hidden = !count;
  } catch (error) {
    at("purged").textContent = error.message;
  }
}

async function purge() {
  try {
    const told = await post("/-/purge", order());
    const verb = told.softened === undefined ? "removed" : "marked stale";
    round = 0; // what it did is shown soon
    at("purged").textContent = `${number(told.purged ?? told.softened)} ${verb}: ${told.key ?? told.value}`;
  } catch (error) {
    at("purged").textContent = error.message;
  }
  at("name").focus();
  at("confirm").hidden = true;
}

function showMissed(missed) {
  renew("missed", missed, () => (missed.length ? missed.map(({ by, value, count, neighbours }) => {
    const said = element("p", null, classed("tag", element("span", by)), " ", classed("octets", element("span", value)), ` ${count === 1 ? "once" : `${number(count)} times`}`);
    const alike = neighbours.map(({ url, differs, stored }) => element(
      "li", null, explainButton(url), ` ${counted(stored, "response")}; another ${differs.join(" and ")}`,
    ));
    return element("div", null, said, ...(alike.length ? [classed("note", element("p", "Stored under a similar name:")), element("ul", null, ...alike)] : []));
  }) : [element("p", "None: every purge by URL, prefix or tag removed something.")]));
}

// The configuration

let settings = [];

function flat(value, name = "") {
  if (Array.isArray(value) && value.some((each) => typeof each === "object" && each !== null)) {
    return value.flatMap((each, index) => flat(each, `${name}[${index}]`));
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length) {
    return Object.entries(value).flatMap(([key, each]) => flat(each, name ? `${name}.${key}` : key));
  }
  return [[name, JSON.stringify(value)]];
}

function showSettings() {
  const wanted = at("filter").value.toLowerCase();
  const found = settings.filter(([name, value]) => `${name} = ${value}`.toLowerCase().includes(wanted));
  at("settings").replaceChildren(...found.map(([name, value]) => element("div", null, element("dt", name), element("dd", value))));
}

async function showConfiguration() {
  if (!at("config").open) return;
  try {
    settings = flat(await ask("/-/config"));
    showSettings();
    at("config-state").textContent = "";
  } catch (error) {
    at("config-state").textContent = `No answer: ${error.message}`;
  }
}

async function reload() {
  at("reload").disabled = true;
  try {
    const { changed } = await post("/-/reload");
    at("reloaded").textContent = `Reloaded. ${changed.length ? `What has changed: ${changed.join(", ")}` : "Nothing has changed."}`;
    await showConfiguration();
  } catch (error) {
    at("reloaded").textContent = `Not reloaded: ${error.message}`;
  }
  at("reload").disabled = false;
}

// A phone folds parts, and shows rows as blocks that keep their roles.

const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TH: "columnheader" };
const phone = matchMedia("(max-width: 40rem)");

function unfold(part, open) {
  part?.classList.toggle("folded", !open);
  part?.querySelector("h2 button")?.setAttribute("aria-expanded", open);
}

function fold() {
  for (const part of document.querySelectorAll(".part")) {
    const heading = part.querySelector("h2");
    const name = heading.textContent;
    heading.replaceChildren(phone.matches ? button("", name, () => unfold(part, part.classList.contains("folded"))) : name);
    unfold(part, !phone.matches);
  }
}

// Live

function say(text, kind = "") {
  if (kind !== "away") silent = null;
  if (at("state").textContent !== text) at("state").textContent = text;
  at("state").className = kind;
  document.body.classList.toggle("away", kind === "away");
  document.title = kind === "away" ? "▲ No answer: univocal" : "univocal";
}

let round = 0;

async function look() {
  const step = at("span").value, before = drains;
  const long = step === "1" ? [] : [ask(`/-/stats?step=${step}`)];
  const [stats, origins, longer] = await Promise.all([ask("/-/stats"), ask("/-/origins"), ...long]);
  showNumbers(stats, origins);
  if (step === at("span").value) showCharts(longer ?? stats);
  if (before === drains) showOrigins(origins);
  if (round % 2 === 0) {
    const [folding, refused, failures] = await Promise.all([ask("/-/spellings"), ask(`/-/top?by=refused&n=${TOP}`), ask("/-/failures"), showTop()]);
    showFailed(failures);
    showFolding(folding);
    showSpellings(folding.pages.slice(0, TOP));
    showRefused(refused);
  }
  if (round % 6 === 0) showMissed(await ask("/-/purge-misses"));
  round += 1;
}

let silent = null; // since when

// Say why nothing new is shown.
function away(error) {
  if (error instanceof Locked) lock(true);
  silent ??= new Date().toTimeString().slice(0, 8);
  say(`No answer since ${silent}: ${error.message}. Trying again`, "away");
}

// Show the form for the token, or the page.
function lock(locked) {
  if (document.body.classList.contains("locked") === locked) return;
  document.body.classList.toggle("locked", locked);
  at("locked").hidden = !locked;
  if (locked) at("token").focus();
}

async function unlock(event) {
  event.preventDefault();
  try {
    // Fields can have no other character.
    if (!/^[!-~]([ -~]*[!-~])?$/.test(at("token").value)) throw new Locked();
    token.set(at("token").value);
    await look();
    lock(false);
    say("Live");
    at("token").value = "";
    at("unlocked").textContent = "";
    at("h-spellings").focus({ preventScroll: true });
  } catch (error) {
    if (error instanceof Locked) token.forget();
    at("unlocked").textContent = error instanceof Locked ? "That is not the token." : error.message;
  }
}

const paused = () => at("pause").getAttribute("aria-pressed") === "true";

async function live() {
  if (!paused() && !document.hidden) {
    try {
      await look();
      lock(false);
      if (!paused()) say("Live");
    } catch (error) {
      away(error);
    }
  }
  setTimeout(live, EVERY);
}

for (const each of document.querySelectorAll("input[type=text]")) Object.assign(each, { autocomplete: "off", autocapitalize: "off", spellcheck: false });
for (const each of document.querySelectorAll(Object.keys(ROLES))) roled(ROLES[each.tagName], each);
phone.addEventListener("change", fold);
document.querySelector("nav").addEventListener("click", (event) => unfold(document.querySelector(event.target.hash || "nav").closest(".part"), true));
at("pause").addEventListener("click", () => {
  at("pause").setAttribute("aria-pressed", String(!paused()));
  if (paused()) say("Paused", "paused");
});
at("explain").addEventListener("submit", explain);
at("discover").addEventListener("click", discover);
at("purge").addEventListener("submit", foresee);
at("purge").addEventListener("input", forgetCount);
at("confirm").addEventListener("click", purge);
at("config").addEventListener("toggle", showConfiguration);
at("reload").addEventListener("click", reload);
at("filter").addEventListener("input", showSettings);
at("by").addEventListener("change", () => showTop().catch(away));
at("search").addEventListener("input", () => showTop().catch(away));
at("span").addEventListener("change", () => look().catch(away));
at("unlock").addEventListener("submit", unlock);
at("kind").addEventListener("change", hint);
at("url").placeholder = HINTS.url;
hint();
fold();
live();
