// The charts of the last five minutes, drawn by uPlot.
"use strict";

const HEIGHT = 150; // CSS pixels
const LEAST = 60; // seconds that are shown

const charts = [];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axes(values, size, more) {
  const common = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
  const clock = (u, times, axis, space, step) => times.map((at) => new Date(at * 1000).toTimeString().slice(0, step < 60 ? 8 : 5));
  const grid = more.filter ? { ...common.grid, filter: more.filter } : common.grid;
  return [
    { ...common, grid: { show: false }, values: clock, space: 70, incrs: [15, 30, 60, 120], size: 24 },
    { ...common, grid, size, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : values(tick))), space: 30, ...more },
  ];
}

// Of a series, the seconds with a number beside which there is none: no line leads to them.
function alone(u, series) {
  const values = u.data[series];
  const there = (index) => values[index] !== null && values[index] !== undefined;
  return values.flatMap((_, index) => (there(index) && !there(index - 1) && !there(index + 1) ? [index] : []));
}

// A chart in a figure: `lines` are [name, colour, how a value is written, how it is drawn].
export function chart(figure, { lines, scale, write, size = 50, axis = {}, extra = [] }) {
  const place = figure.querySelector(".plot");
  const said = figure.querySelector("figcaption");
  const made = { plot: null, data: null, describe };

  function describe(index) {
    said.replaceChildren(...lines.map((line, number) => {
      const item = document.createElement("span");
      item.className = `key ${line.colour}${line.dash ? " dashed" : ""}`;
      const value = made.data?.[number + 1][index];
      item.textContent = `${line.name} ${value === null || value === undefined ? "–" : line.write(value)}`;
      return item;
    }));
  }

  made.draw = () => {
    made.plot?.destroy();
    const series = lines.map((line) => ({
      label: line.name,
      scale: line.scale ?? "y",
      stroke: colour(line.colour),
      width: 1.5,
      fill: line.fill ? `${colour(line.colour)}40` : undefined,
      dash: line.dash,
      points: { show: true, size: 4, width: 0, fill: colour(line.colour), filter: alone },
      spanGaps: false,
    }));
    const options = {
      width: Math.max(place.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, sync: { key: "page" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: false, range: (u, first, last) => [Math.min(first, last - LEAST), last] }, y: scale, ...Object.fromEntries(extra.map((each) => [each.scale, each.range])) },
      series: [{}, ...series],
      axes: [...axes(write, size, axis), ...extra.map((each) => ({ ...axes(each.write, 40, {})[1], side: 1, scale: each.scale, grid: { show: false } }))],
      hooks: { setCursor: [(u) => describe(u.cursor.idx ?? u.data[0].length - 1)] },
    };
    made.plot = new window.uPlot(options, made.data ?? [[], ...lines.map(() => [])], place);
  };
  made.show = (data) => {
    made.data = data;
    if (made.plot === null) made.draw();
    else made.plot.setData(data);
    if (made.plot.cursor.idx === null || made.plot.cursor.idx === undefined) describe(data[0].length - 1);
  };
  new ResizeObserver(() => made.plot?.setSize({ width: Math.max(place.clientWidth, 100), height: HEIGHT })).observe(place);
  charts.push(made);
  return made;
}

// Colours are read when a chart is drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((each) => each.plot && each.draw()));
