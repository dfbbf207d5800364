// How often the page's moving parts are read again: off, 10 s, 30 s, 1 m, or live. In the address as refresh=.
// Every [data-refresh] with an id is fetched from the page's own address and replaced; a page with a stream
// ([data-live], see live.js) opens it for "live". It rests while the tab is hidden, a row is ticked or something is typed.
(() => {
  const select = document.querySelector("[data-refresh-select]");
  if (!select) return;
  const seconds = { "10s": 10, "30s": 30, "1m": 60, live: 3 };
  let timer = 0;
  const isBusy = () => document.hidden || document.querySelector("dialog[open], .dropdown-menu.show, [data-pick]:checked") ||
    document.activeElement?.closest("[data-refresh] input, [data-refresh] textarea, [data-refresh] select") ||
    [...document.querySelectorAll("[data-refresh] :is(input, textarea):not([type=checkbox])")].some((one) => one.value !== one.defaultValue);
  // A part is replaced whole: what was folded open and how far its tables were scrolled stays, its charts are drawn.
  let before = null;
  document.body.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    if (!target?.matches?.("[data-refresh]")) return;
    const opened = [...target.querySelectorAll("details")].map((one) => one.open);
    before = { id: target.id, opened, left: [...target.querySelectorAll(".table-box")].map((box) => box.scrollLeft) };
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    const part = before && document.getElementById(before.id);
    if (!part) return;
    [...part.querySelectorAll("details")].forEach((one, i) => { if (before.opened[i]) one.open = true; });
    [...part.querySelectorAll(".table-box")].forEach((box, i) => { box.scrollLeft = before.left[i] || 0; });
    before = null;
    window.strop?.scan(part);
  });
  const read = () => {
    if (isBusy()) return;
    for (const part of document.querySelectorAll("[data-refresh]")) {
      htmx.ajax("GET", location.href, { target: part, select: `#${part.id}`, swap: "outerHTML", headers: { "X-Strop-Refresh": "1" } });
    }
  };
  const start = (every) => {
    clearInterval(timer);
    const hasStream = document.querySelector("[data-live]") !== null;
    document.dispatchEvent(new CustomEvent("strop:live", { detail: { on: every === "live" } }));
    if (seconds[every] && !(every === "live" && hasStream)) timer = setInterval(read, seconds[every] * 1000);
  };
  select.addEventListener("change", () => {
    const here = new URL(location.href);
    if (select.value === select.dataset.refreshSelect) here.searchParams.delete("refresh"); else here.searchParams.set("refresh", select.value);
    history.replaceState(history.state, "", here);
    start(select.value);
  });
  start(select.value);
})();
