"use strict";
// Tells the values under the pointer, and switches between light and dark.
const button = document.querySelector("nav button");
button.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

const short = (value) => Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toExponential(2) : String(Number(value.toPrecision(4)));

function nearest(points, x) {
  return points.reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const chart = JSON.parse(figure.dataset.chart), svg = figure.querySelector("svg");
  const [low, high, start, end] = chart.x;
  const tip = figure.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  const cross = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  cross.setAttribute("class", "cross");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = low + ((event.clientX - box.left) * scale - start) / (end - start) * (high - low);
    const hit = nearest(chart.s.flatMap((line) => line.p), Math.min(high, Math.max(low, x)))[0];
    const place = start + (hit - low) / (high - low) * (end - start);
    cross.setAttribute("d", `M${place} ${chart.y[3]}V${chart.y[2]}`);
    tip.replaceChildren(Object.assign(document.createElement("div"), { textContent: `${chart.xn} ${short(hit)}` }));
    for (const line of chart.s) {
      const value = document.createElement("div");
      value.textContent = `${line.n || "value"}: ${short(nearest(line.p, hit)[1])}`;
      tip.append(value);
    }
    tip.style.display = "block";
    const left = event.clientX - figure.getBoundingClientRect().left;
    tip.style.left = `${Math.max(4, left > box.width / 2 ? left - tip.offsetWidth - 14 : left + 14)}px`;
    tip.style.top = `${event.clientY - figure.getBoundingClientRect().top + 12}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.style.display = "none"; cross.setAttribute("d", ""); });
}
