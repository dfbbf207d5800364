// Follows a page's stream: parts of HTML by id, figures by name. The server says when there is nothing more to follow.
(() => {
  const root = document.querySelector("[data-live]");
  if (!root) return;
  const source = new EventSource(root.dataset.live);
  const state = (text) => { for (const mark of document.querySelectorAll("[data-live-state]")) mark.textContent = text; };
  source.addEventListener("open", () => state("live"));
  source.addEventListener("error", () => state("reconnecting"));
  source.addEventListener("parts", (event) => {
    const { parts, figures } = JSON.parse(event.data);
    for (const [id, html] of Object.entries(parts)) {
      const part = document.getElementById(id);
      if (part && !part.contains(document.activeElement)) part.innerHTML = html;
    }
    for (const [name, figure] of Object.entries(figures)) window.strop?.draw(name, figure);
  });
  source.addEventListener("over", () => {
    source.close();
    state("finished");
    for (const box of document.querySelectorAll("[data-while-live]")) box.remove();
  });
  addEventListener("pagehide", () => source.close());
})();
