// Draws every [data-figure] from the JSON beside it, in the colours of the page's theme.
(() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
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
    return whole;
  };
  const figures = new Map();
  const draw = (box, figure) => {
    figures.set(box, figure);
    if (!box.clientWidth) return; // folded away; drawn when it is opened
    box.classList.remove("plot-empty");
    box.querySelector(".unknown")?.remove();
    Plotly.react(box, figure.data, framed(figure.layout, box), { displayModeBar: false });
  };
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (figures.has(target) && target.clientWidth !== target._fullLayout?.width) draw(target, figures.get(target));
    }
  });
  const boxOf = (name) => document.querySelector(`[data-figure="${CSS.escape(name)}"]`);

  window.strop = { draw: (name, figure) => { const box = boxOf(name); if (box && figure) draw(box, figure); } };
  for (const box of document.querySelectorAll("[data-figure]")) {
    const data = document.getElementById(box.dataset.figure);
    if (data) draw(box, JSON.parse(data.textContent));
    widths.observe(box);
  }
  document.addEventListener("strop:theme", () => figures.forEach((figure, box) => draw(box, figure)));
})();
