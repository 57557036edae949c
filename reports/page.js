"use strict";
(() => {
  const root = document.documentElement;
  const holder = document.getElementById("plot-data");
  const data = holder ? JSON.parse(holder.textContent) : null;
  let doc = null;

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

  const actions = {
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
      const done = () => { button.textContent = "copied"; };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, () => {});
      else if (document.execCommand("copy")) done();
    },
    finding: (button) => {
      const found = data && data.findings[button.dataset.finding];
      if (!found) return;
      const margin = Math.max((found.stop - found.start) * 0.35, 0.02);
      select(found.rows);
      show(found.start - margin, found.stop + margin);
      document.getElementById("timeline").scrollIntoView({ behavior: "smooth", block: "start" });
    },
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button) actions[button.dataset.action](button);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  if (data) {
    Bokeh.embed.embed_item(data.item).then((views) => {
      doc = views.roots ? views.roots[0].model.document : views[0].model.document;
      paint();
      root.dataset.plot = "ready";
    });
  }
})();
