// Every client as a point: pick runs, move over candidates, brush clients, read their rows.
"use strict";
(function () {
  const root = document.getElementById("explorer-app");
  const runs = JSON.parse(document.getElementById("explorer-data").textContent).runs;
  const WIDTH = 760, HEIGHT = 420, MARGIN = 64, TOP = 24, INNER = WIDTH - MARGIN - 24,
    DEEP = HEIGHT - MARGIN - TOP, MOST_LISTED = 200, COLOURS =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800"];
  const pixel = (colour) => new Uint32Array(
    new Uint8Array([...[1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16)), 255]).buffer)[0];
  const [GREY, BLACK, WHITE, ...PIXELS] = ["#cccccc", "#000000", "#ffffff", ...COLOURS].map(pixel);
  const X = {"baseline value": null, "personalization examples": "personalization",
    "evaluation examples": "evaluation"};
  const Y = ["value", "gain"], COLOUR_BY = ["hurt", "run", "group"];

  for (const run of runs) {
    const bytes = Uint8Array.from(atob(run.values), (c) => c.charCodeAt(0));
    run.values = new Float32Array(bytes.buffer);
    run.n = run.ids.length;
  }
  // Gain over the baseline of the same examples would be regression to the mean.
  const halved = () => xChoice.value === "0" && Y[yChoice.value] === "gain";
  const half = (run, name, c, i) =>
    run[name] && c === run.candidates.length - 1 ? run[name][i] ?? NaN : NaN;
  const value = (run, c, i) => run.values[c * run.n + i];
  const shown = (number) => Number.isFinite(number) ? String(Number(number.toPrecision(5))) : "";

  // Text is only ever set as text: ids and names come from data.
  function make(tag, text, parent, attributes) {
    const element = document.createElement(tag);
    if (text !== null) element.textContent = text;
    for (const name in attributes || {}) element.setAttribute(name, attributes[name]);
    if (parent) parent.appendChild(element);
    return element;
  }
  const controls = make("div", null, root, {"class": "controls"});
  const labelled = (text, tag, attributes) =>
    make(tag, null, make("label", text + " ", controls), attributes);
  function choice(text, names) {
    const select = labelled(text, "select");
    names.forEach((name, i) => make("option", name, select, {"value": i}));
    return select;
  }
  const runChoice = choice("Runs", runs.map((run) => run.name));
  Object.assign(runChoice, {multiple: true, size: Math.min(6, Math.max(2, runs.length))});
  runChoice.options[0].selected = true;
  const slider = labelled("Candidate", "input", {"type": "range"});
  const candidateName = make("output", "", slider.parentNode);
  const xChoice = choice("Horizontal axis", Object.keys(X));
  const yChoice = choice("Vertical axis", Y);
  const colourChoice = choice("Colour", COLOUR_BY);
  const limits = ["horizontally from", "horizontally to", "vertically from", "vertically to"].map(
    (text) => labelled("Select " + text, "input", {"type": "number", "step": "any"}));
  const onlyHurt = labelled("Select the hurt only", "input", {"type": "checkbox"});
  const noneButton = make("button", "Select none", controls, {"type": "button"});
  const canvas = make("canvas", null, root,
    {"width": WIDTH, "height": HEIGHT, "role": "img", "tabindex": 0});
  const legend = make("p", "", root, {"class": "note"});
  const status = make("p", "", root, {"role": "status", "aria-live": "polite"});
  const [table, candidates] = [0, 1].map(() => make("div", null, root, {"class": "wide"}));

  let points = [], scale = null, box = null, drag = null, wanted = 1e6, names = [];
  const chosen = () => Array.from(runChoice.selectedOptions, (option) => runs[option.value]);
  // Of a run that has none of that name the last one: -1 from the end.
  const candidate = ({candidates: of}) => (of.indexOf(names[slider.value]) + of.length) % of.length;

  function range(arrays) {
    let [low, high] = [Infinity, -Infinity];
    for (const array of arrays)
      for (const v of array) { if (v < low) low = v; if (v > high) high = v; }
    if (high > low) return [low, high];
    return Number.isFinite(low) ? [low - 0.5, low + 0.5] : [-0.5, 0.5];
  }
  function place() {
    const names = Object.keys(X), field = X[names[xChoice.value]], up = Y[yChoice.value];
    points = [];
    for (const run of chosen()) {
      const c = candidate(run), gains = new Float64Array(run.n), hurt = new Uint8Array(run.n);
      const xs = new Float64Array(run.n), ys = new Float64Array(run.n);
      const sign = run.higher ? 1 : -1;
      for (let i = 0; i < run.n; i++) {
        const [before, now] = [value(run, 0, i), value(run, c, i)];
        const gain = sign * (now - before);
        xs[i] = field ? (run[field] ? run[field][i] : NaN) : before;
        ys[i] = up === "gain" ? gain : now;
        if (halved())
          [xs[i], ys[i]] = [half(run, "baselineHalf", c, i), half(run, "deltaHalf", c, i)];
        hurt[i] = run.hurt[c][i];
        gains[i] = gain === gain ? gain : hurt[i] ? -Infinity : Infinity;
      }
      points.push({run, c, xs, ys, gains, hurt});
    }
    const [x0, x1] = range(points.map((p) => p.xs)), [y0, y1] = range(points.map((p) => p.ys));
    scale = {x0, x1, y0, y1,
      x: (v) => MARGIN + (v - x0) / (x1 - x0) * INNER, y: (v) => TOP + (y1 - v) / (y1 - y0) * DEEP,
      fromX: (p) => x0 + (p - MARGIN) / INNER * (x1 - x0),
      fromY: (p) => y1 - (p - TOP) / DEEP * (y1 - y0)};
  }
  const isIn = (p, i) => (!onlyHurt.checked || p.hurt[i]) && (!box ||
    (p.xs[i] >= box[0] && p.xs[i] <= box[1] && p.ys[i] >= box[2] && p.ys[i] <= box[3]));

  function draw() {
    const context = canvas.getContext("2d"), by = COLOUR_BY[colourChoice.value];
    const groups = [...new Set(points.flatMap((p) => p.run.groups || []))].sort();
    // Pixels set by hand: squares drawn one by one take ten times as long.
    const picture = context.createImageData(WIDTH, HEIGHT);
    const pixels = new Uint32Array(picture.data.buffer).fill(WHITE);
    points.forEach((p, r) => {
      for (const late of [0, 1]) for (let i = 0; i < p.run.n; i++) {
        const hurt = p.hurt[i];
        if (hurt !== late || !(p.xs[i] === p.xs[i] && p.ys[i] === p.ys[i])) continue;
        const group = by === "group" ? groups.indexOf((p.run.groups || [])[i]) : 0;
        const which = {hurt, run: r, group}[by];
        const colour = isIn(p, i) ? PIXELS[which % PIXELS.length] ?? BLACK : GREY;
        const size = (p.run.n > 5000 ? 2 : 4) + (hurt ? 2 : 0);  // Not by colour alone.
        const left = Math.round(scale.x(p.xs[i]) - size / 2);
        const top = Math.round(scale.y(p.ys[i]) - size / 2);
        for (let k = 0; k < size; k++)
          pixels.fill(colour, (top + k) * WIDTH + left, (top + k) * WIDTH + left + size);
      }
    });
    context.putImageData(picture, 0, 0);
    context.fillStyle = context.strokeStyle = "#222";
    context.font = "12px sans-serif";
    context.strokeRect(MARGIN, TOP, INNER, DEEP);
    for (let k = 0; k <= 4; k++) {
      const [x, y] = [scale.fromX(MARGIN + k / 4 * INNER), scale.fromY(TOP + k / 4 * DEEP)];
      context.textAlign = "center";
      context.fillText(shown(Number(x.toPrecision(3))), scale.x(x), HEIGHT - MARGIN + 16);
      context.textAlign = "right";
      context.fillText(shown(Number(y.toPrecision(3))), MARGIN - 4, scale.y(y) + 4);
    }
    const [across, up] = [Object.keys(X)[xChoice.value], Y[yChoice.value]];
    context.textAlign = "center";
    context.fillText(across + (halved() ? ", of every other example" : ""), WIDTH / 2, HEIGHT - 8);
    context.textAlign = "left";
    context.fillText(`${up} (${[...new Set(points.map((p) => p.run.metric))]})`, 8, TOP - 8);
    if (up === "gain" && scale.y0 * scale.y1 < 0) context.fillRect(MARGIN, scale.y(0), INNER, 0.6);
    if (box) {
      const [left, top] = [scale.x(box[0]), scale.y(box[3])];
      context.strokeRect(left, top, scale.x(box[1]) - left, scale.y(box[2]) - top);
    }
    const named = {hurt: ["not hurt", "hurt"], run: points.map((p) => p.run.name), group: groups};
    legend.replaceChildren(...named[by].slice(0, 40).flatMap((name, i) => {
      const mark = make("span", "\u25a0 ", null);
      mark.style.color = COLOURS[i % COLOURS.length];
      return [mark, name + "   "];
    }), " Larger squares are hurt.");
    canvas.setAttribute("aria-label", `Clients by ${across} and ${up}; those selected are listed.`);
  }
  function cells(parent, tag, texts) {
    const row = make("tr", null, parent);
    for (const text of texts) make(tag, text, row);
    return row;
  }
  function body(parent, caption, header) {
    const made = make("table", null, parent);
    make("caption", caption, made);
    cells(make("thead", null, made), "th", header);
    return make("tbody", null, made);
  }
  function list() {
    let n = 0, known = 0, before = 0, now = 0, hurt = 0;
    const total = points.reduce((sum, p) => sum + p.run.n, 0);
    const gains = new Float64Array(total), found = [];
    for (const p of box || onlyHurt.checked ? points : []) for (let i = 0; i < p.run.n; i++) {
      if (!isIn(p, i)) continue;
      gains[n++] = p.gains[i]; hurt += p.hurt[i];
      if (!Number.isFinite(p.gains[i])) continue;
      known++; before += value(p.run, 0, i); now += value(p.run, p.c, i);
    }
    // Numbers sort ten times faster than clients: only those that are listed are sorted.
    const worst = gains.subarray(0, n).sort()[Math.min(n, MOST_LISTED) - 1];
    for (const p of n ? points : []) for (let i = 0; i < p.run.n; i++)
      if (p.gains[i] <= worst && isIn(p, i)) found.push({p, i});
    found.sort((a, b) => a.p.gains[a.i] - b.p.gains[b.i] || b.p.hurt[b.i] - a.p.hurt[a.i]);
    const of = (k, m) => `${k} of ${m} (${(100 * k / m).toFixed(1)}%)`;
    let text = box || onlyHurt.checked ? `No client is ${box ? "in the box" : "hurt"}. ` :
      "Nothing is selected: drag over points, or use the boxes above. ";
    const means = known ? `${shown(before / known)} before, ${shown(now / known)} now` : "unknown";
    const rest = known < n ? ` (without ${n - known} whose gain is not known)` : "";
    if (n) text = `${of(n, total)} selected: mean ${means}${rest}, hurt ${of(hurt, n)}. `;
    status.textContent = text;
    table.replaceChildren(); if (!n) return;
    const rows = body(table, n > MOST_LISTED ? `The ${MOST_LISTED} that lose most` :
      "Selected clients, those who lose most first",
      ["run", "client", "group", "personalization examples", "evaluation examples", "before", "now",
        "gain", "hurt", "every candidate, in the order of the table below"]);
    for (const {p, i} of found.slice(0, MOST_LISTED)) {
      const run = p.run, values = run.candidates.map((_, c) => shown(value(run, c, i)));
      const known = [run.groups, run.personalization, run.evaluation].map((of) => of ? of[i] : "");
      cells(rows, "td", [run.name, run.ids[i], ...known, values[0], values[p.c],
        shown(p.gains[i]), p.hurt[i] ? "yes" : "no", values.join(", ")]);
    }
  }
  function listCandidates() {
    candidates.replaceChildren();
    const rows = body(candidates, "Candidates: mean over clients, and % hurt",
      ["run", "candidate", "mean", "% hurt"]);
    for (const {run, c} of points) run.candidates.forEach((name, k) => {
      const row = cells(rows, "td", [run.name, name, shown(run.means[k]), shown(run.pctHurt[k])]);
      if (k === c) row.setAttribute("aria-current", "true");
    });
  }
  function refresh() {
    names = chosen().map((run) => run.candidates).sort((a, b) => b.length - a.length)[0] || [""];
    [slider.max, slider.value] = [names.length - 1, wanted];
    candidateName.textContent = chosen().map((run) => run.candidates[candidate(run)]).join(", ");
    place(); draw(); list(); listCandidates();
  }
  function brush(next) {
    box = next;
    limits.forEach((input, k) => { input.value = box ? Number(box[k].toPrecision(6)) : ""; });
    draw(); list();
  }
  const at = ({offsetX, offsetY}) => [scale.fromX(offsetX * WIDTH / canvas.clientWidth),
    scale.fromY(offsetY * WIDTH / canvas.clientWidth)];
  const ends = (k, to) => [drag[k], to[k]].sort((a, b) => a - b);
  canvas.addEventListener("pointerdown", (event) =>
    { drag = event.button ? null : at(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    if (drag) brush([...ends(0, at(event)), ...ends(1, at(event))]);
    drag = null;
  });
  for (const input of limits) input.addEventListener("change", () => {
    const all = [scale.x0, scale.x1, scale.y0, scale.y1], texts = limits.map((one) => one.value);
    box = texts.join("") ? texts.map((text, k) => text === "" ? all[k] : Number(text)) : null;
    draw(); list();
  });
  onlyHurt.addEventListener("change", () => { draw(); list(); });
  noneButton.addEventListener("click", () => { onlyHurt.checked = false; brush(null); });
  slider.addEventListener("input", () => { wanted = Number(slider.value); refresh(); });
  for (const select of [runChoice, xChoice, yChoice])
    select.addEventListener("change", () => { refresh(); brush(null); });
  colourChoice.addEventListener("change", draw);
  yChoice.value = Y.indexOf("gain");
  xChoice.value = runs.some((run) => run.baselineHalf) ? 0 : 1;
  refresh();
})();
