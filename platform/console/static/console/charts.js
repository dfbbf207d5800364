// Draws every [data-figure] from the JSON beside it, in the colours of the page's theme. A figure's layout.meta says what
// else it can do: is_time, a drag over it sets the page's time range; is_linked, a click follows a point's customdata.
(() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isTouch = matchMedia("(pointer: coarse)").matches; // a finger drags the page
  const axis = () => ({
    gridcolor: style("--strop-grid"), linecolor: style("--strop-grid"), zerolinecolor: style("--strop-grid"),
    tickfont: { size: 12 }, title: { font: { size: 12 }, standoff: 8 }, automargin: true,
  });
  const merge = (into, from) => {
    for (const [key, value] of Object.entries(from)) {
      const both = value && typeof value === "object" && !Array.isArray(value);
      into[key] = both ? merge({ ...(into[key] || {}) }, value) : value;
    }
    return into;
  };
  const framed = (layout, box) => {
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: false,
      width: box.clientWidth, height: box.clientHeight,
      font: { family: style("--tblr-font-sans-serif"), size: 12, color: style("--strop-ink-soft") },
      hoverlabel: { font: { size: 12, color: style("--strop-ink") }, bgcolor: style("--strop-surface"), bordercolor: style("--strop-line"), align: "left" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", xanchor: "left", traceorder: "normal" },
    };
    const whole = merge(base, layout);
    for (const key of Object.keys(whole).concat(["xaxis", "yaxis"])) {
      if (/^[xy]axis\d*$/.test(key)) whole[key] = merge(axis(), whole[key] || {});
    }
    if (whole.showlegend) whole.margin = { ...whole.margin, t: 36 };
    if (isTouch) whole.dragmode = false;
    return whole;
  };

  const address = (point) => {
    const data = Array.isArray(point.customdata) ? point.customdata.at(-1) : point.customdata;
    return typeof data === "object" && data ? data.url : data;
  };
  const follow = (event) => {
    const url = event.points.map(address).find((found) => typeof found === "string" && /^[/?]/.test(found) && !found.startsWith("//"));
    if (!url) return;
    if (event.event?.ctrlKey || event.event?.metaKey) window.open(url, "_blank"); else location.assign(url);
  };
  const clock = (text) => String(text).replace(" ", "T").slice(0, 19);
  const behave = (box, figure) => {
    if ("behaves" in box.dataset || !box.on) return;
    box.dataset.behaves = "";
    if (figure.layout.meta?.is_linked) {
      box.classList.add("plot-linked");
      box.on("plotly_click", follow);
    }
    if (figure.layout.meta?.is_time) {
      box.on("plotly_relayout", (change) => {
        const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (from && to) window.stropRange?.(clock(from), clock(to));
      });
    }
    box.parentElement.classList.add("plot-box");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "plot-csv", textContent: "CSV" });
    button.title = `The numbers of this chart as CSV`;
    button.setAttribute("aria-label", `${box.getAttribute("aria-label") || box.dataset.figure}: numbers as CSV`);
    button.addEventListener("click", () => save(box.dataset.figure, figures.get(box)));
    box.after(button);
  };

  const cell = (value) => {
    if (value === null || value === undefined) return "";
    return typeof value === "number" ? String(value) : `"${String(value).replace(/<br>/g, " ").replaceAll('"', '""')}"`;
  };
  const table = (figure) => {
    const lines = [["series", "x", "y", "minus", "plus", "z"]];
    for (const trace of figure.data) {
      const error = trace.error_y || trace.error_x || {};
      const length = Math.max(trace.x?.length || 0, trace.y?.length || 0);
      for (let i = 0; i < length; i++) {
        if (Array.isArray(trace.z?.[0])) {
          trace.x.forEach((x, j) => { if (trace.z[i]) lines.push([trace.name, x, trace.y[i], null, null, trace.z[i][j]]); });
        } else {
          lines.push([trace.name, trace.x?.[i], trace.y?.[i], (error.arrayminus || error.array)?.[i], error.array?.[i], null]);
        }
      }
    }
    return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
  };
  const save = (name, figure) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table(figure)], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const figures = new Map();
  const draw = (box, figure) => {
    figures.set(box, figure);
    if (figure.layout.height) box.style.height = `${figure.layout.height}px`; // as many rows as it has
    if (!box.clientWidth) return; // folded away; drawn when it is opened
    box.classList.remove("plot-empty");
    box.querySelector(".unknown")?.remove();
    Plotly.react(box, figure.data, framed(figure.layout, box), { displayModeBar: false, showTips: false, doubleClick: false });
    behave(box, figure);
  };
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (figures.has(target) && target.clientWidth !== target._fullLayout?.width) draw(target, figures.get(target));
    }
  });
  const boxOf = (name) => document.querySelector(`[data-figure="${CSS.escape(name)}"]`);
  const scan = (root) => {
    for (const box of figures.keys()) {
      if (box.isConnected) continue; // replaced by a fresh reading of the page
      widths.unobserve(box);
      figures.delete(box);
    }
    for (const box of root.querySelectorAll("[data-figure]")) {
      const data = box.nextElementSibling;
      if (data?.type === "application/json") draw(box, JSON.parse(data.textContent));
      widths.observe(box);
    }
  };

  window.strop = { draw: (name, figure) => { const box = boxOf(name); if (box && figure) draw(box, figure); }, scan };
  scan(document);
  document.addEventListener("strop:theme", () => figures.forEach((figure, box) => draw(box, figure)));
})();
