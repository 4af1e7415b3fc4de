// What a client sent reaches the document as text alone: by textContent, never as markup.
"use strict";

const EVERY = 2000; // milliseconds from one answer to the next question
const TOP = 10;

const at = (id) => document.getElementById(id);

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function fill(id, children) {
  at(id).replaceChildren(...children);
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  return told;
}

function octets(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

const milliseconds = (seconds) => `${(seconds * 1000).toFixed(1)} ms`;

function showStats({ totals, series }) {
  const refused = Object.values(totals.refused).reduce((sum, count) => sum + count, 0);
  const last = series.slice(-11, -1);
  const rate = last.reduce((sum, second) => sum + second.requests, 0) / Math.max(last.length, 1);
  const numbers = [
    ["Requests", totals.requests], ["Requests a second", rate.toFixed(1)],
    ["Hit ratio", `${(totals.hit_ratio * 100).toFixed(1)} %`], ["Half within", milliseconds(totals.seconds.p50)],
    ["99 % within", milliseconds(totals.seconds.p99)], ["Sent", octets(totals.bytes)],
    ["Refused", refused], ["Purges", totals.purges], ["Stale", totals.stale], ["Collapsed", totals.collapsed],
    ["Stored responses", totals.stored.responses],
    ["Memory", `${octets(totals.stored.bytes)} of ${octets(totals.stored.max_bytes)}`],
    ["Evictions", totals.stored.evictions],
  ];
  fill("numbers", numbers.map(([name, number]) => element("div", null, element("dt", name), element("dd", number))));
  const most = Math.max(1, ...series.map((second) => second.requests));
  const place = (count, index) => `${300 - series.length + index},${60 - (58 * count) / most}`;
  at("requests").setAttribute("points", series.map((second, index) => place(second.requests, index)).join(" "));
  const hits = series.map((second, index) => place(second.hits, index));
  at("hits").setAttribute("points", [`${300 - series.length},60`, ...hits, "299,60"].join(" "));
}

function row(...texts) {
  return element("tr", null, ...texts.map((text) => element("td", text)));
}

function showSpellings(folded) {
  const open = new Set([...at("spellings").querySelectorAll("details[open]")].map((each) => each.dataset.key));
  fill("spellings", folded.filter((each) => each.saved).map((each) => {
    const saved = element("b", `${each.saved} saved`);
    const summary = element("summary", null, `${each.key} `, saved, ` of ${each.spellings.length} spellings`);
    const items = each.spellings.map(({ target, count }) => element("li", null, element("code", target), ` ${count}`));
    const details = element("details", null, summary, element("ul", null, ...items));
    details.dataset.key = each.key;
    details.open = open.has(each.key);
    return details;
  }));
  if (!at("spellings").childElementCount) fill("spellings", [element("p", "None yet: each page was asked for by one spelling.")]);
}

async function showTop() {
  const top = await ask(`/-/top?by=${at("by").value}&n=${TOP}`);
  fill("top", top.map(({ key, count }) => row(key, count)));
}

async function live() {
  // A refresh would take the open parts from under a keyboard.
  const busy = at("spellings").contains(document.activeElement);
  try {
    showStats(await ask("/-/stats"));
    if (!busy) showSpellings(await ask(`/-/top?by=spellings&n=${TOP}`));
    const refused = await ask(`/-/top?by=refused&n=${TOP}`);
    fill("refused", refused.map(({ reason, host, example, count }) => row(reason, host, example, count)));
    await showTop();
    at("state").textContent = "Live";
  } catch (error) {
    at("state").textContent = `No answer: ${error.message}`;
  }
  setTimeout(live, EVERY);
}

async function discover() {
  at("discover").disabled = true;
  fill("discovered", [element("p", "Searching")]);
  try {
    const told = await ask("/-/discover");
    const said = `${told.folded.urls} of ${told.urls} URLs would fold, ${told.folded.requests} of ${told.requests} requests.`;
    const rules = told.rules.map((rule) => element("li", null, element("code", `${rule.from} → ${rule.to}`)));
    fill("discovered", [
      element("p", said), element("ul", null, ...rules), element("p", "The profile, to paste:"), element("pre", told.profile),
    ]);
  } catch (error) {
    fill("discovered", [element("p", `It could not be done: ${error.message}`)]);
  }
  at("discover").disabled = false;
}

async function purge(event) {
  event.preventDefault();
  const order = { [at("kind").value]: at("name").value };
  try {
    const told = await ask("/-/purge", { method: "POST", body: JSON.stringify(order) });
    at("purged").textContent = `${told.purged} removed${told.key ? `: ${told.key}` : ""}`;
  } catch (error) {
    at("purged").textContent = error.message;
  }
}

async function explain(event) {
  event.preventDefault();
  fill("stages", []);
  try {
    const told = await ask(`/-/explain?url=${encodeURIComponent(at("url").value)}`);
    at("verdict").textContent = told.canonical ?? `Refused: ${told.reasons.join(", ")}`;
    const changes = told.stages.filter((stage) => stage.before !== stage.after);
    fill("stages", changes.map((stage) => element("li", `${stage.name}: `, element("code", stage.after))));
  } catch (error) {
    at("verdict").textContent = error.message;
  }
}

at("explain").addEventListener("submit", explain);
at("discover").addEventListener("click", discover);
at("purge").addEventListener("submit", purge);
at("by").addEventListener("change", () => showTop().catch((error) => { at("state").textContent = error.message; }));
live();
