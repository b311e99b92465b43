// Puts the parts together.

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs.map(unpackRun);
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

/// Light, dark, or what the system says.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const themes = ["system", "light", "dark"];
let theme = "system";
function paint() {
  root.dataset.theme = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  byId("theme").textContent = `Theme: ${theme}`;
  palette.clear();
  redraw();
}
byId("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  paint();
});
dark.addEventListener("change", paint);

const timelines = byId("timeline") && new Timelines(byId("timeline"), runs);
const memory = byId("memory") && new Memory(byId("memory"));
span.charts = [timelines, memory].filter(Boolean);

/// Shows the chosen step of each run under its prediction.
function choose() {
  const predictions = !byId("predicted") || byId("predicted").checked;
  const groups = [];
  const strips = [];
  runs.forEach((run, index) => {
    const select = byId(`step-${index}`);
    const measured = run.views.filter((view) => !view.predicted);
    const chosen = measured[select ? select.selectedIndex : 0];
    const views = run.views.filter((view) => (view.predicted && predictions) || view === chosen);
    const mark = runs.length > 1 ? `${run.mark}  ` : "";
    for (const view of views) {
      groups.push({ run, view, title: `${mark}${view.label}${run.relative ? "" : `: ${showTime(view.end)}`}` });
    }
    strips.push({ run, views });
  });
  if (timelines) timelines.choose(groups);
  if (memory) memory.choose(strips);
  span.relative = groups.every((group) => group.run.relative);
  span.most = groups.reduce((end, group) => Math.max(end, group.view.end), 0) || 1;
  show(0, span.most);
}

for (const control of document.querySelectorAll("select, #predicted")) control.addEventListener("change", choose);
for (const [id, act] of [["closer", () => zoom(0.5)], ["wider", () => zoom(2)], ["whole", () => show(0, span.most)]]) {
  if (byId(id)) byId(id).addEventListener("click", act);
}
window.addEventListener("resize", redraw);
window.addEventListener("scroll", () => { if (span.charts.some((chart) => chart.stale)) redraw(); }, { passive: true });
// Paper is light, and folds on it cannot be opened.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  root.dataset.theme = "light";
  palette.clear();
  span.charts.forEach((chart) => chart.draw());
});
window.addEventListener("afterprint", paint);
paint();
choose();
