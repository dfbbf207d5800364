// Follows a page's stream: parts of HTML by id, figures by name. The server says when there is nothing more to follow.
// Where the page has a refresh selector (refresh.js), it follows while that says "live".
(() => {
  const root = document.querySelector("[data-live]");
  if (!root) return;
  const select = document.querySelector("[data-refresh-select]");
  let source = null;
  const state = (text) => { for (const mark of document.querySelectorAll("[data-live-state]")) mark.textContent = text; };
  const close = (text) => { source?.close(); source = null; state(text); };
  const open = () => {
    if (source) return;
    source = new EventSource(root.dataset.live);
    source.addEventListener("open", () => state("live"));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) close("not live"); // refused: signed out, or no member any more
      else state("reconnecting");
    });
    source.addEventListener("parts", (event) => {
      const { parts, figures } = JSON.parse(event.data);
      for (const [id, html] of Object.entries(parts)) {
        const part = document.getElementById(id);
        if (part && !part.contains(document.activeElement)) part.innerHTML = html;
      }
      for (const [name, figure] of Object.entries(figures)) window.strop?.draw(name, figure);
    });
    source.addEventListener("over", () => {
      close("finished");
      for (const box of document.querySelectorAll("[data-while-live]")) box.remove();
    });
  };
  document.addEventListener("strop:live", (event) => { if (event.detail.on) open(); else close("not live"); });
  if (!select || select.value === "live") open(); else state("not live");
  addEventListener("pagehide", () => source?.close());
})();
