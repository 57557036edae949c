"use strict";
(() => {
  const root = document.documentElement;
  const holder = document.getElementById("plot-data");
  const data = holder ? JSON.parse(holder.textContent) : null;
  let doc = null;

  // The address holds the chosen moment, for sharing: #t=14.2&op=4881.
  function remember(place) {
    try { history.replaceState(null, "", "#" + place); } catch { /* a page in a frame may not */ }
  }

  function follow() {
    const place = new URLSearchParams(location.hash.slice(1));
    const time = Number.parseFloat(place.get("t"));
    if (Number.isFinite(time) && data) {
      const [least, most] = data.span;
      const near = Math.max(1, (most - least) / 40);
      show(time - near, time + near);
      choose(time, false);
    }
    if (!place.has("op")) return;
    document.querySelectorAll("tr.sought").forEach((row) => row.classList.remove("sought"));
    const number = place.get("op");
    if (data && number in data.rows) select([data.rows[number]]);
    const rows = [...document.querySelectorAll("[data-op]")].filter((cell) => cell.dataset.op === number)
      .map((cell) => cell.closest("tr"));
    for (const row of rows) row.classList.add("sought");
    if (!rows.length) return;
    for (let box = rows[0].closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    rows[0].scrollIntoView({ block: "center" });
  }

  // Folded rows are not printed, so all are open while printing.
  let unfolded = [], theme;
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const box of unfolded) box.open = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    paint();
  });
  addEventListener("afterprint", () => {
    for (const box of unfolded) box.open = false;
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    paint();
  });

  async function edn(button) {
    const packed = Uint8Array.from(atob(document.getElementById("edn").textContent), (one) => one.charCodeAt(0));
    const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await new Response(plain).blob());
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  const colour = (role) => getComputedStyle(root).getPropertyValue("--c-" + role).trim();

  function paint() {
    if (!doc) return;
    for (const [id, property, role] of data.colours) {
      const model = doc.get_model_by_id(id);
      if (model) model[property] = colour(role);
    }
  }

  function show(start, stop) {
    const axis = doc && doc.get_model_by_id(data.axis);
    if (!axis) return;
    const [least, most] = data.span;
    const width = Math.min(stop - start, most - least);
    const from = Math.max(least, Math.min(start, most - width));
    axis.setv({ start: from, end: from + width });
  }

  function select(rows) {
    const source = doc && doc.get_model_by_id(data.named);
    if (source) source.selected.indices = rows;
  }

  function move(factor, shift) {
    const axis = doc && doc.get_model_by_id(data.axis);
    if (!axis) return;
    const middle = (axis.start + axis.end) / 2, half = (axis.end - axis.start) / 2;
    show(middle + shift * half - half * factor, middle + shift * half + half * factor);
  }

  // Log lines around the chosen moment: a window over the sorted lines, which are far too many to show.
  const log = data && data.log;
  const SHOWN = 40;
  let moment = null, first = 0, listed = [];

  function choose(time, address = true) {
    moment = time;
    if (address) remember("t=" + String(Number(time.toFixed(6))));
    for (const id of data.chosen) {
      const line = doc && doc.get_model_by_id(id);
      if (line) line.location = time;
    }
    if (!log || !log.lines.length) return;
    first = listed.findIndex((line) => line[0] >= time);
    if (first < 0) first = listed.length;
    first -= SHOWN / 2;
    draw();
  }

  function filterLines(address) {
    const speaker = document.getElementById("speaker").value;
    listed = speaker === "" ? log.lines : log.lines.filter((line) => line[1] === Number(speaker));
    choose(moment, address !== false);
  }

  function draw() {
    first = Math.max(0, Math.min(first, listed.length - SHOWN));
    document.getElementById("moment").textContent = moment.toFixed(3) + " s";
    const rows = listed.slice(first, first + SHOWN).map((line) => {
      const row = document.createElement("tr");
      row.className = (line[2] ? "event" : "log") + (line[0] >= moment ? " after" : "");
      row.dataset.time = line[0];
      for (const text of [["", "by ", "about "][line[4]] + line[0].toFixed(3), log.nodes[line[1]], line[3]]) {
        row.appendChild(document.createElement("td")).textContent = text;
      }
      if (log.roles && log.roles[line[1]][1]) row.children[1].classList.add(log.roles[line[1]][1]);
      return row;
    });
    const now = rows.find((row) => row.classList.contains("after"));
    if (now) now.classList.add("now");
    document.getElementById("lines").replaceChildren(...rows);
    const box = document.querySelector(".said");
    if (now) box.scrollTop = now.offsetTop - box.clientHeight / 2;
  }

  function pointed(event) {
    const axis = doc && doc.get_model_by_id(data.axis);
    const box = document.getElementById("plot").getBoundingClientRect();
    const part = (event.clientX - box.left - data.frame[0]) / (box.width - data.frame[0] - data.frame[1]);
    if (axis && part >= 0 && part <= 1) choose(axis.start + part * (axis.end - axis.start));
  }

  const actions = {
    edn,
    earlier: () => { first -= SHOWN / 2; draw(); },
    later: () => { first += SHOWN / 2; draw(); },
    all: () => { select([]); show(...data.span); },
    in: () => move(0.4, 0),
    out: () => move(2.5, 0),
    left: () => move(1, -1),
    right: () => move(1, 1),
    theme: () => {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      paint();
    },
    copy: (button) => {
      const code = document.getElementById("command");
      getSelection().selectAllChildren(code);
      const done = () => { button.textContent = "copied"; button.removeAttribute("aria-label"); };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, () => {});
      else if (document.execCommand("copy")) done();
    },
    finding: (button) => {
      const found = data && data.findings[button.dataset.finding];
      if (!found) return;
      const margin = Math.max((found.stop - found.start) * 0.35, 0.02);
      select(found.rows);
      show(found.start - margin, found.stop + margin);
      choose(found.start);
      document.getElementById("timeline").scrollIntoView({ behavior: "smooth", block: "start" });
    },
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button) actions[button.dataset.action](button);
    const line = event.target.closest("#lines tr");
    if (line) choose(Number(line.dataset.time));
  });
  if (data) {
    // Ignores the click that ends a drag, because the drag has zoomed.
    const plot = document.getElementById("plot");
    let down = 0;
    plot.addEventListener("pointerdown", (event) => { down = event.clientX; }, true);
    plot.addEventListener("click", (event) => { if (Math.abs(event.clientX - down) < 4) pointed(event); }, true);
  }
  if (log && log.lines.length) {
    const speaker = document.getElementById("speaker");
    const groups = new Map();
    log.nodes.forEach((name, number) => {
      const role = log.roles ? log.roles[number][0] : "";
      if (role && !groups.has(role)) {
        groups.set(role, speaker.appendChild(document.createElement("optgroup")));
        groups.get(role).label = role;
      }
      (groups.get(role) ?? speaker).appendChild(new Option(name, number));
    });
    speaker.addEventListener("change", filterLines);
    moment = log.moment ?? log.lines[0][0];
    filterLines(false);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  if (!data) follow();
  if (data) {
    Bokeh.embed.embed_item(data.item).then((views) => {
      doc = views.roots ? views.roots[0].model.document : views[0].model.document;
      paint();
      if (moment !== null) choose(moment, false);
      follow();
      addEventListener("hashchange", follow);
      root.dataset.plot = "ready";
    });
  }
})();
