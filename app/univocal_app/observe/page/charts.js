// The charts: a few lines over time, drawn as SVG. By pointer, keyboard or table.
"use strict";

const TOP = 12; // CSS pixels above the highest value
const BOTTOM = 20; // below the lowest: the times
const LEAST = 60; // seconds that are shown
const ROWS = 10; // of the table
const SPIKE = 4; // times the usual most: a value above that does not set the scale
const FEW = 10; // values, of which none is a spike
const CLOCKS = [15, 30, 60, 120, 300, 600, 900]; // seconds from one time below a chart to the next
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

const charts = [];
let pointed = null; // the time whose values all charts say; null: the latest

const isNumber = (value) => value !== null && value !== undefined;
const clock = (time, seconds = true) => new Date(time * 1000).toTimeString().slice(0, seconds ? 8 : 5);

// The value that nearly all stay below, or the largest if that is not far above it.
function usual(values) {
  const sorted = values.filter((value) => value > 0).sort((one, other) => one - other);
  const most = sorted.at(-1) ?? 0;
  const high = sorted[Math.floor(0.95 * (sorted.length - 1))] ?? 0;
  return sorted.length >= FEW && most > SPIKE * high ? 2 * high : most;
}

function ticksOf(least, most, { log, binary }) {
  if (log) {
    const first = Math.ceil(Math.log10(least) - 1e-9);
    return Array.from({ length: Math.max(Math.floor(Math.log10(most)) - first + 1, 0) }, (_, power) => 10 ** (first + power));
  }
  const base = binary ? 2 : 10;
  const unit = base ** Math.floor(Math.log(most / 3) / Math.log(base));
  const step = (binary ? [1, 2] : [1, 2, 5, 10]).map((each) => each * unit).find((each) => each >= most / 3) ?? base * unit;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}

// A chart in a figure. Each of `lines` has a name, a colour, and `write` for its values; `fill`, `dash`, and `percent` for
// a scale of its own from 0 to 100. `least` is the smallest top of the scale, or its ends if it is logarithmic.
export function chart(figure, { lines, write, least, log = false, binary = false, left = 44 }) {
  const place = figure.querySelector(".plot");
  const svg = place.querySelector("svg");
  const caption = figure.querySelector("figcaption");
  const table = figure.querySelector("table");
  const right = lines.some((line) => line.percent) ? 40 : 8;
  let times = [];
  let rows = [];
  let x = () => 0;

  function shape(name, kind, attributes, text = "") {
    const made = document.createElementNS(svg.namespaceURI, name);
    made.setAttribute("class", kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  // From a line's values to the pixels from the top, with both ends of the scale.
  function scale(height) {
    const values = rows.filter((_, index) => !lines[index].percent).flat().filter(isNumber);
    const ends = log
      ? [values.reduce((one, other) => Math.min(one, other), least[0]) / 1.5, values.reduce((one, other) => Math.max(one, other), least[1]) * 1.5]
      : [0, Math.max(usual(values) * 1.1, least)];
    const part = (value) => (log ? Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]) : value / ends[1]);
    const y = (value, line) => TOP + height * (1 - Math.min(line?.percent ? value / 105 : part(value), 1));
    return { y, ends };
  }

  function axes(width, height, { y, ends }) {
    const made = ticksOf(...ends, { log, binary }).flatMap((tick) => [
      shape("line", "grid", { x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      shape("text", "tick end", { x: left - 6, y: y(tick) + 4 }, write(tick)),
    ]);
    for (const line of lines.filter((each) => each.percent)) {
      made.push(...[0, 50, 100].map((tick) => shape("text", "tick", { x: width - right + 6, y: y(tick, line) + 4 }, `${tick}%`)));
    }
    const span = times.at(-1) - Math.min(times[0], times.at(-1) - LEAST);
    const step = CLOCKS.find((each) => span / each <= (width - left - right) / 70) ?? 1800;
    for (let time = Math.ceil((times.at(-1) - span) / step) * step; time <= times.at(-1); time += step) {
      if (x(time) < width - right - 20) made.push(shape("text", "tick middle", { x: x(time), y: TOP + height + 15 }, clock(time, step < 60)));
    }
    return made;
  }

  // A line: a path for each run of values, a dot for a value alone, and the area below if it is filled.
  function lineOf(line, values, y, height) {
    const runs = [];
    values.forEach((value, index) => {
      if (!isNumber(value)) return;
      if (index && isNumber(values[index - 1])) runs.at(-1).push(index);
      else runs.push([index]);
    });
    return runs.flatMap((run) => {
      const points = run.map((index) => `${x(times[index]).toFixed(1)} ${y(values[index], line).toFixed(1)}`);
      if (run.length === 1) return [shape("circle", `dot ${line.colour}`, { cx: x(times[run[0]]), cy: y(values[run[0]], line), r: 2 })];
      const bottom = TOP + height;
      const area = `M${x(times[run[0]])} ${bottom}L${points.join("L")}L${x(times[run.at(-1)])} ${bottom}Z`;
      return [
        ...(line.fill ? [shape("path", `area ${line.colour}`, { d: area })] : []),
        shape("path", `line ${line.colour}`, { d: `M${points.join("L")}`, "stroke-dasharray": line.dash ?? "none" }),
      ];
    });
  }

  // The largest value beyond the scale, in words at the place where its line is cut off.
  function spike(width, { ends }) {
    const found = rows.flatMap((values, number) => (lines[number].percent ? [] : values.map((value, index) => [value, index, lines[number]])));
    const [value, index, line] = found.reduce((one, other) => ((other[0] ?? 0) > one[0] ? other : one), [0, 0, lines[0]]);
    if (value <= ends[1]) return [];
    const isLate = x(times[index]) > width / 2;
    return [shape("text", `tick spike ${isLate ? "end" : ""}`, { x: x(times[index]), y: TOP - 2 }, isLate ? `${line.write(value)} ▲` : `▲ ${line.write(value)}`)];
  }

  function index() {
    const found = times.findIndex((time) => time >= (pointed ?? Infinity));
    return found === -1 ? times.length - 1 : found;
  }

  const said = (line, value) => `${line.name} ${isNumber(value) ? line.write(value) : "–"}`;

  function describe() {
    const here = index();
    caption.replaceChildren(...lines.map((line, number) => {
      const item = document.createElement("span");
      item.className = `key ${line.colour}${line.dash ? " dashed" : ""}`;
      item.textContent = said(line, rows[number]?.[here]);
      return item;
    }));
    place.setAttribute("aria-valuemax", Math.max(times.length - 1, 0));
    place.setAttribute("aria-valuenow", Math.max(here, 0));
    const values = lines.map((line, number) => said(line, rows[number]?.[here])).join(", ");
    place.setAttribute("aria-valuetext", times.length ? `${clock(times[here])}: ${values}` : "nothing yet");
  }

  function tabulate() {
    const cell = (name, text) => Object.assign(document.createElement(name), { textContent: text });
    const row = (name, texts) => {
      const made = document.createElement("tr");
      made.append(...texts.map((text) => cell(name, text)));
      return made;
    };
    const every = Math.max(Math.ceil(times.length / ROWS), 1);
    const chosen = times.map((_, each) => each).filter((each) => (times.length - 1 - each) % every === 0);
    table.replaceChildren(
      cell("caption", place.getAttribute("aria-label")),
      row("th", ["time", ...lines.map((line) => line.name)]),
      ...chosen.map((each) => row("td", [clock(times[each]), ...lines.map((line, number) => (isNumber(rows[number][each]) ? line.write(rows[number][each]) : "–"))])),
    );
  }

  function draw() {
    const [width, height] = [Math.max(place.clientWidth, 120), Math.max(place.clientHeight, 80) - TOP - BOTTOM];
    describe();
    if (!times.length) return;
    const first = Math.min(times[0], times.at(-1) - LEAST);
    x = (time) => left + ((time - first) / (times.at(-1) - first)) * (width - left - right);
    svg.setAttribute("viewBox", `0 0 ${width} ${height + TOP + BOTTOM}`);
    const made = scale(height);
    const cursor = pointed === null ? [] : [shape("line", "cursor", { x1: x(times[index()]), x2: x(times[index()]), y1: TOP, y2: TOP + height })];
    svg.replaceChildren(
      ...axes(width, height, made), ...lines.flatMap((line, number) => lineOf(line, rows[number], made.y, height)),
      ...spike(width, made), ...cursor,
    );
  }

  place.addEventListener("pointermove", (event) => {
    if (!times.length) return;
    const here = event.clientX - place.getBoundingClientRect().left;
    point(times.reduce((one, other) => (Math.abs(x(other) - here) < Math.abs(x(one) - here) ? other : one)));
  });
  place.addEventListener("pointerleave", () => point(null));
  place.addEventListener("blur", () => point(null));
  place.addEventListener("keydown", (event) => {
    if (event.key === "Escape") point(null);
    if (!(event.key in KEYS) || !times.length) return;
    event.preventDefault();
    point(times[Math.min(Math.max(index() + KEYS[event.key], 0), times.length - 1)]);
  });
  new ResizeObserver(draw).observe(place);
  charts.push(draw);
  return {
    // Draw lines of values over times (seconds since the epoch); null is no value.
    show(newTimes, newRows) {
      [times, rows] = [newTimes, newRows];
      draw();
      tabulate();
    },
  };
}

function point(time) {
  pointed = time;
  for (const draw of charts) draw();
}
