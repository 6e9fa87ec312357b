// The training run that publishes its figures here: its curve, its rates, and what its time was spent on.
const RUN_RATES = [["env_steps", "insert", "environment steps/s"], ["updates", "sample", "updates/s"]];
let runHistory = [];
function showRun(run) {
  if (!run) { byId("run").replaceChildren(); return; }
  const last = runHistory.at(-1);
  // A run that was started again counts from its own start.
  if (last && run.seconds < last.seconds) runHistory = [];
  if (run.seconds != null && (!last || run.seconds !== last.seconds)) runHistory.push(run);
  while (runHistory.length && runHistory[0].seconds < run.seconds - SHOWN_SECONDS) runHistory.shift();
  const greedy = run.curve && run.curve.length ? run.curve.at(-1)[2] : null, target = run.target_return;
  const aim = target == null ? "" : ` of ${short(target)}`;
  const state = run.confirmed ? `Target reached and confirmed: ${short(greedy)}${aim}` : greedy == null ? "No evaluation yet"
    : `Greedy return ${short(greedy)}${aim}`;
  const counts = [`${whole(run.env_steps)}${run.max_env_steps ? ` of at most ${whole(run.max_env_steps)}` : ""} environment steps`, `${whole(run.updates)} updates`];
  if (run.training_return != null) counts.push(`training episodes ${short(run.training_return)}, exploring`);
  if (run.policy_age_updates != null) counts.push(`acting policies ${short(run.policy_age_updates)} updates behind`);
  if (run.samples_per_insert != null) counts.push(`${short(run.samples_per_insert)} samples per insert`);
  if (run.seeds) { byId("run").replaceChildren(...seedCards(run, target)); return; }
  byId("run").replaceChildren(
    make("article", {class: "card"}, make("h2", null, `${run.agent} on ${run.env}${run.seed == null ? "" : `, seed ${run.seed}`}`),
      make("strong", {class: run.confirmed ? "good" : ""}, state), ...(greedy == null ? [] : [learningCurve([run.curve], target)]),
      make("p", {class: "why dim"}, counts.join(" · ")), ...(run.waits_for ? [make("p", {class: "why sample"}, `Waits for ${run.waits_for}`)] : [])),
    make("article", {class: "card"}, make("h2", null, run.seconds == null ? "Rates" : `After ${seconds(run.seconds)}`), ...runRates(), ...activities(run)));
}
// Several runs that differ in their seeds: their curves in one picture, and the state of each.
function seedCards(run, target) {
  const begun = run.seeds.filter((seed) => seed.curve && seed.curve.length), curves = begun.map((seed) => seed.curve);
  const confirmed = run.seeds.filter((seed) => seed.confirmed).length, aim = target == null ? "" : ` of ${short(target)}`;
  const state = target == null ? `${counted(run.seeds.length, "seed")}` : `${confirmed} of ${counted(run.seeds.length, "seed")} confirmed`;
  const row = (seed) => [`seed ${seed.seed}`, seed.curve && seed.curve.length ? `${short(seed.curve.at(-1)[2])}${aim}` : "-", `${whole(seed.env_steps)} steps`, seed.state || ""];
  return [make("article", {class: "card"}, make("h2", null, `${run.agent} on ${run.env}, ${counted(run.seeds.length, "seed")}`), make("strong", {class: target != null && confirmed === run.seeds.length ? "good" : ""}, state),
    ...(curves.length ? [learningCurve(curves, target, begun.map((seed) => `seed ${seed.seed}`))] : []), make("p", {class: "why dim"}, `${whole(run.env_steps)} environment steps · ${whole(run.updates)} updates, of all seeds`)),
  make("article", {class: "card double"}, make("h2", null, "Greedy return by seed"), make("div", {class: "wide"}, make("table", {class: "why"}, make("tbody", null,
    ...run.seeds.map((seed) => make("tr", {class: seed.confirmed ? "good" : ""}, ...row(seed).map((cell) => make("td", null, cell))))))))];
}
function learningCurve(curves, target, names) {
  const returns = curves.flat().map((point) => point[2]).concat(target == null ? [] : [target]);
  let [low, high] = [Math.min(...returns), Math.max(...returns)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const steps = Math.max(1, ...curves.map((curve) => curve.at(-1)[0])), height = (value) => 98 - 96 * (value - low) / (high - low);
  // A curve of one point is a level line to it.
  const points = (curve) => (curve.length > 1 ? curve : [[0, 0, curve[0][2]], curve[0]]).map(([at, , value]) => `${300 * at / steps},${height(value)}`);
  const line = make("svg", {viewBox: "0 0 300 100", height: 160, preserveAspectRatio: "none", role: "img", "aria-label": "greedy return over environment steps"},
    ...(target == null ? [] : [make("line", {class: "aim", x1: 0, x2: 300, y1: height(target), y2: height(target)}, make("title", null, `target ${short(target)}`))]),
    ...curves.map((curve, at) => make("polyline", {class: curves.length > 1 ? "insert several" : "insert", points: points(curve).join(" ")},
      ...(names ? [make("title", null, names[at])] : []))));
  return make("div", {class: "chart dim"}, make("div", {class: "ends"}, make("span", null, short(high)), make("span", null, short(low))), line,
    make("span"), make("div", {class: "row"}, make("span", null, "0"), make("span", null, `${whole(steps)} environment steps`)));
}
function runRates() {
  const parts = [];
  for (const [name, style, unit] of RUN_RATES) {
    const rates = [];
    for (let i = 1; i < runHistory.length; i++) {
      const [before, now] = [runHistory[i - 1], runHistory[i]];
      rates.push([now.seconds, Math.max(0, now[name] - before[name]) / (now.seconds - before.seconds)]);
    }
    const top = Math.max(1e-9, ...rates.map((point) => point[1])), end = rates.length ? rates.at(-1)[0] : 0;
    const points = rates.map(([at, rate]) => `${120 - (end - at)},${28 - 26 * rate / top}`);
    parts.push(make("p", {class: `why ${style}`}, `${rates.length ? short(Number(rates.at(-1)[1].toPrecision(3))) : "-"} ${unit}`),
      make("svg", {viewBox: "0 0 120 30", height: 30, preserveAspectRatio: "none", role: "img", "aria-label": unit}, make("polyline", {class: style, points: points.join(" ")})));
  }
  return parts;
}
function activities(run) {
  const rows = Object.entries(run.activities || {}), spent = rows.reduce((sum, [, time]) => sum + time, 0);
  // One thread does one thing at a time; the times of several processes are shares of their sum.
  const all = run.runner === "local" ? Math.max(run.seconds || 0, spent) : spent;
  if (all > spent) rows.push(["other", all - spent]);
  return rows.sort((one, other) => other[1] - one[1]).map(([name, time]) => make("div", {class: "why"},
    make("div", {class: "row dim"}, make("span", null, name), make("span", null, `${seconds(time)}, ${Math.round(100 * time / all)} %`)),
    make("svg", {viewBox: "0 0 100 6", height: 6, preserveAspectRatio: "none", "aria-hidden": "true"}, make("rect", {class: "fill", width: 100 * time / all, height: 6}))));
}
