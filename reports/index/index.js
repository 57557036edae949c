"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const [words, verdict, night] = ["words", "verdict", "night"].map((id) => document.getElementById(id));
  const PART = ["system", "workload", "nemesis", "cluster", "defect"];
  const KEYS = new Set([...PART, "night", "verdict", "status", "said"]);
  const PAGE = { list: 100, plots: 30 };
  const shown = { ...PAGE };
  const order = { key: "began", down: true };

  const cells = data.cells.map((cell) => Object.fromEntries(PART.map((part, place) => [part, cell[place]])));
  const runs = data.runs.map(([cell, at, standing, began, home, last, status, said, command, seed, operations, files, name, more]) => {
    const address = data.texts[home] + "/" + last;
    return {
      ...cells[cell], night: data.nights[at], verdict: data.standings[standing][0], began, address, name: name || address,
      status: data.texts[status], said: data.texts[said], command: data.texts[command].replace("\0", seed), seed,
      operations, more: more || [], files: data.files.filter((_, bit) => files >> bit & 1),
    };
  });
  const plots = data.plots.map(([cell, rows]) => ({ ...cells[cell], rows }));
  const text = new Map();
  for (const one of runs) {
    text.set(one, [one.name, one.workload, one.nemesis, one.defect, one.system, one.cluster, one.verdict, one.status, one.said,
      one.seed, one.night].join("\n").toLowerCase());
  }
  for (const one of plots) text.set(one, PART.map((part) => one[part]).join("\n").toLowerCase());

  // A cell matches any term about a field that it lacks.
  function fits() {
    const terms = [...words.value.matchAll(/(\w+):(?:"([^"]*)"|(\S+))|(\S+)/g)].map((found) => (
      found[4] ? [null, found[4].toLowerCase()] : [found[1], found[2] ?? found[3]]));
    if (verdict.value) terms.push(["verdict", verdict.value]);
    if (night.value) terms.push(["night", night.value]);
    return (one) => terms.every(([key, value]) => (
      !KEYS.has(key) ? text.get(one).includes((key ? key + ":" + value : value).toLowerCase())
        : !(key in one) || one[key] === value));
  }

  function add(parent, tag, content, className) {
    const made = parent.appendChild(document.createElement(tag));
    if (content !== undefined && content !== null) made.textContent = content;
    if (className) made.className = className;
    return made;
  }

  function row(run) {
    const [, word, sign] = data.standings.find(([one]) => one === run.verdict);
    const made = document.createElement("tr");
    add(add(made, "td"), "span", sign + " " + (run.verdict === "none" ? run.status : word), "cell " + run.verdict);
    add(made, "td", new Date(run.began * 1000).toISOString().slice(0, 16).replace("T", " "), "num");
    for (const part of ["workload", "nemesis", "defect", "cluster"]) add(add(made, "td"), "bdi", run[part]);
    add(made, "td", run.seed, "num");
    add(made, "td", run.operations === null ? "" : run.operations.toLocaleString("en"), "num");
    add(add(made, "td", null, "what"), "bdi", run.said);
    const files = add(made, "td", null, "files");
    for (const [file, label] of run.files) add(files, "a", label).href = run.address + "/" + file;
    for (const [label, address] of run.more) add(files, "a", label).href = address;
    const repeat = add(made, "td");
    if (run.command) {
      const button = add(repeat, "button", "copy");
      button.type = "button";
      button.dataset.action = "copy";
      button.dataset.command = button.title = run.command;
      button.setAttribute("aria-label", "copy: " + run.command);
    }
    return made;
  }

  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 118, HEIGHT = 22;
  function draw(parent, label, width = WIDTH) {
    const made = parent.appendChild(document.createElementNS(SVG, "svg"));
    for (const [name, value] of Object.entries({ width, height: HEIGHT, role: "img", "aria-label": label })) made.setAttribute(name, value);
    return made;
  }
  function shape(svg, tag, attributes) {
    const made = svg.appendChild(document.createElementNS(SVG, tag));
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  // A row: night, failed, unknown, without verdict, passed, then the figures.
  function verdicts(parent, rows) {
    const sums = [1, 2, 3, 4].map((place) => rows.reduce((sum, one) => sum + one[place], 0));
    const label = data.standings.map(([, word], place) => sums[place] + " " + word).join(", ");
    const step = Math.min(9, WIDTH / rows.length), svg = draw(parent, label, rows.length * step);
    rows.forEach((one, place) => {
      const worst = [0, 1, 2, 3].find((which) => one[1 + which]), height = [1, 2 / 3, 2 / 3, 1 / 3][worst] * HEIGHT;
      const bar = shape(svg, "rect", { x: place * step + 0.5, y: HEIGHT - height + 0.5, width: Math.max(1, step - 2), height: height - 1, class: data.standings[worst][0] });
      bar.appendChild(document.createElementNS(SVG, "title")).textContent = data.nights[data.first + one[0]] + ": " + data.standings.map(([, word], which) => [one[1 + which], word]).filter(([count]) => count).map((pair) => pair.join(" ")).join(", ");
    });
    parent.title = label;
  }

  const number = (value) => value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  function line(parent, rows, ...columns) {
    const values = columns.map((column) => rows.map((one) => one[column]));
    const most = Math.max(...values.flat().filter((value) => value !== null));
    if (!Number.isFinite(most)) return add(parent, "span", "—", "quiet");
    const last = values.map((all) => all.findLast((value) => value !== null) ?? null);
    const box = add(parent, "div", null, "plot");
    const svg = draw(box, columns.length + " line, latest " + last.map((value) => value === null ? "none" : number(value)).join(" and ") + ", most " + number(most));
    const at = (value, place) => [rows.length > 1 ? 3 + place * (WIDTH - 6) / (rows.length - 1) : WIDTH / 2, HEIGHT - 3 - (most ? value / most : 0) * (HEIGHT - 6)];
    values.forEach((all, which) => {
      const points = all.map((value, place) => value === null ? null : at(value, place)).filter((point) => point);
      const look = which ? "second" : "first";
      shape(svg, "polyline", { points: points.map((point) => point.map((part) => part.toFixed(1)).join()).join(" "), class: look });
      if (points.length) shape(svg, "circle", { cx: points.at(-1)[0], cy: points.at(-1)[1], r: 2.2, class: look });
    });
    add(box, "b", last.map((value) => value === null ? "—" : number(value)).join(" / "));
    return box;
  }

  function plot(one) {
    const made = document.createElement("tr"), name = add(made, "td");
    const button = add(name, "button", one.workload + ", " + one.nemesis, "find");
    button.type = "button";
    button.dataset.find = PART.filter((part) => one[part]).map((part) => part + ":" + (/\s/.test(one[part]) ? '"' + one[part] + '"' : one[part])).join(" ");
    add(name, "div", [one.defect, one.system, one.cluster].filter((part) => part).join(", "), "quiet");
    verdicts(add(made, "td"), one.rows);
    line(add(made, "td"), one.rows, 5);
    line(add(made, "td"), one.rows, 6, 7);
    line(add(made, "td"), one.rows, 8);
    line(add(made, "td"), one.rows, 9);
    return made;
  }

  function fill(id, all, make) {
    document.querySelector(`#${id} tbody`).replaceChildren(...all.slice(0, shown[id]).map(make));
    const more = document.querySelector(`[data-more=${id}]`);
    more.parentElement.hidden = all.length <= shown[id];
    more.textContent = `${Math.min(PAGE[id], all.length - shown[id])} more of ${(all.length - shown[id]).toLocaleString("en")}`;
  }

  const rank = (run) => order.key === "verdict" ? data.standings.findIndex(([one]) => one === run.verdict) : run[order.key];
  function compare(one, other) {
    const [left, right] = [rank(one), rank(other)];
    if (left === null || right === null) return (left === null) - (right === null);
    const way = left < right ? -1 : left > right ? 1 : 0;
    return order.down ? -way : way;
  }

  function list() {
    const fit = fits(), found = runs.filter(fit).sort(compare), plotted = plots.filter(fit);
    fill("list", found, row);
    fill("plots", plotted, plot);
    document.getElementById("found").textContent = `${found.length.toLocaleString("en")} runs, ${plotted.length.toLocaleString("en")} cells`;
    for (const button of document.querySelectorAll("[data-sort]")) {
      button.parentElement.setAttribute("aria-sort", button.dataset.sort !== order.key ? "none" : order.down ? "descending" : "ascending");
    }
    const state = new URLSearchParams({ words: words.value, verdict: verdict.value, night: night.value, key: order.key, down: order.down ? "1" : "" });
    try { history.replaceState(null, "", "#" + state); } catch { /* a page in a frame may not */ }
  }

  function again() {
    Object.assign(shown, PAGE);
    list();
  }

  const actions = {
    theme: () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    },
    clear: () => { words.value = verdict.value = night.value = ""; again(); words.focus(); },
    copy: (button) => {
      const code = button.parentElement.querySelector("code");
      if (code) getSelection().selectAllChildren(code);
      const done = () => { button.textContent = "copied"; button.removeAttribute("aria-label"); };
      const field = Object.assign(document.createElement("textarea"), { value: button.dataset.command || code.textContent });
      const byHand = () => { document.body.append(field); field.select(); if (document.execCommand("copy")) done(); field.remove(); button.focus(); };
      if (navigator.clipboard) navigator.clipboard.writeText(field.value).then(done, byHand);
      else byHand();
    },
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { action, find, sort, more } = button.dataset;
    if (action) actions[action](button);
    if (find) {
      words.value = find;
      verdict.value = night.value = "";
      again();
      document.getElementById("runs").scrollIntoView();
      words.focus({ preventScroll: true });
    }
    if (sort) {
      order.down = order.key === sort ? !order.down : false;
      order.key = sort;
      again();
    }
    if (more) {
      shown[more] += PAGE[more];
      list();
    }
  });
  for (const field of [words, verdict, night]) field.addEventListener("input", again);

  // The cells of a matrix are a single tab stop; arrow keys move between them.
  for (const matrix of document.querySelectorAll(".matrix")) {
    const lines = [...matrix.tBodies[0].rows].map((line) => [...line.cells].map((cell) => cell.querySelector("button")));
    const first = lines.flat().find((button) => button);
    for (const button of lines.flat()) if (button) button.tabIndex = button === first ? 0 : -1;
    matrix.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      let y = lines.findIndex((line) => line.includes(document.activeElement)), x = y < 0 ? -1 : lines[y].indexOf(document.activeElement);
      if (!step || y < 0) return;
      event.preventDefault();
      do { y += step[0]; x += step[1]; } while (lines[y] && x in lines[y] && !lines[y][x]);
      if (!lines[y] || !lines[y][x]) return;
      document.activeElement.tabIndex = -1;
      lines[y][x].tabIndex = 0;
      lines[y][x].focus();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    words.focus();
  });

  const kept = new URLSearchParams(location.hash.slice(1));
  for (const [field, name] of [[words, "words"], [verdict, "verdict"], [night, "night"]]) field.value = kept.get(name) || "";
  if (kept.has("key")) Object.assign(order, { key: kept.get("key"), down: kept.get("down") === "1" });
  list();
  root.dataset.index = "ready";

  // Served while a night runs: reloads the page when it has changed, unless the reader is typing in the search field.
  if (document.body.dataset.live) {
    const tag = '"' + document.body.dataset.live + '"';
    setInterval(async () => {
      try {
        const now = (await fetch("/", { method: "HEAD" })).headers.get("etag");
        if (now && now !== tag && document.activeElement !== words) location.reload();
      } catch { /* the server has gone; what is here stays */ }
    }, 4000);
  }
})();
