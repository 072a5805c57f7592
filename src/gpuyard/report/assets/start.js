// Starts the page: what the first screen shows at once, the rest when there is time.

function listenForTheme() {
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
}

const data = JSON.parse(document.getElementById("data").textContent);
listenForTheme();
document.querySelectorAll("table.sortable").forEach(makeSortable);
for (const button of document.querySelectorAll("button[data-csv]")) {
  button.addEventListener("click", () => download(`${button.dataset.csv}.csv`, data.tables[button.dataset.csv]));
}
const [firstFigure, ...otherFigures] = document.querySelectorAll("figure[data-chart]");
const drawFigure = (home) => new Figure(home, data.charts[home.dataset.chart]);
if (firstFigure) drawFigure(firstFigure);
requestAnimationFrame(() => performance.mark("first-draw"));
const afterParsing = () => whenIdle([
  ...(data.gantt ? [() => new Gantt(data.gantt).start()] : []),
  ...otherFigures.map((home) => () => drawFigure(home)),
  () => { document.documentElement.dataset.drawn = "all"; },
]);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", afterParsing);
else afterParsing();
