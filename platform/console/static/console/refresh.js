// How often the page's moving parts are read again: off, 10 s, 30 s, 1 m, or live. In the address as refresh=.
// Every [data-refresh] with an id is fetched from the page's own address and replaced; a page with a stream
// ([data-live], see live.js) opens it for "live". It rests while the tab is hidden, a row is ticked or a key is typed.
(() => {
  const select = document.querySelector("[data-refresh-select]");
  if (!select) return;
  const seconds = { "10s": 10, "30s": 30, "1m": 60, live: 3 };
  let timer = 0;
  const isBusy = () => document.hidden || document.querySelector("dialog[open], .dropdown-menu.show, [data-pick]:checked") ||
    document.activeElement?.closest("[data-refresh] input, [data-refresh] textarea, [data-refresh] select");
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
