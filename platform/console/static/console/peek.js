// The panel at the side of a list. A click on a row opens what it is about, with a modifier in a new tab; j and k move,
// Enter opens the page, Escape closes. The object's own page answers ?peek=1 with its content alone.
(() => {
  const panel = document.querySelector("[data-peek-panel]");
  if (!panel) return;
  const body = panel.querySelector("[data-peek-body]");
  const whole = panel.querySelector("[data-peek-whole]");
  const rows = () => [...document.querySelectorAll("tr[data-peek]")];
  let at = "", asked = 0;

  const mark = () => rows().forEach((row) => row.classList.toggle("is-peeked", row.dataset.peek === at));
  const skeleton = () => { body.innerHTML = '<div class="skeleton"><i></i><i></i><i></i><i></i><i></i></div>'; };
  const address = (url) => {
    const there = new URL(url, location.href);
    there.searchParams.set("peek", "1");
    return there;
  };
  const open = async (url) => {
    const turn = ++asked;
    at = url;
    panel.hidden = false;
    document.documentElement.dataset.peeking = "";
    whole.href = url;
    mark();
    const waiting = setTimeout(skeleton, 150);
    const answer = await fetch(address(url), { headers: { "X-Requested-With": "peek" } }).catch(() => null);
    clearTimeout(waiting);
    if (turn !== asked) return;
    if (!answer?.ok) {
      body.textContent = answer ? `This could not be shown (${answer.status}). Request ${answer.headers.get("x-request-id")}` : "The server did not answer.";
      return;
    }
    body.innerHTML = await answer.text();
    body.scrollTop = 0;
    htmx.process(body);
    window.strop?.scan?.(body);
    document.dispatchEvent(new CustomEvent("strop:content", { detail: { root: body } }));
  };
  const close = () => {
    asked += 1;
    at = "";
    panel.hidden = true;
    delete document.documentElement.dataset.peeking;
    mark();
  };
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.dataset.peek === at);
    const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by))];
    next.scrollIntoView({ block: "nearest" });
    if (next.dataset.peek !== at) open(next.dataset.peek);
  };

  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-peek]");
    if (!row || event.defaultPrevented || event.button !== 0) return;
    const link = event.target.closest("a");
    if (event.target.closest("button, input, label, summary, select") || (link && link.getAttribute("href") !== row.dataset.peek)) return;
    if (getSelection()?.toString()) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      if (!link) window.open(row.dataset.peek, "_blank");
      return;
    }
    event.preventDefault();
    open(row.dataset.peek);
  });
  panel.addEventListener("click", (event) => {
    if (event.target.closest("[data-peek-close]")) close();
    if (event.target.closest("[data-peek-next]")) step(1);
    if (event.target.closest("[data-peek-previous]")) step(-1);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "Escape" && !panel.hidden) close();
    else if (event.key === "Enter" && !panel.hidden && !event.target.closest("a, button, summary")) location.assign(at);
    else return;
    event.preventDefault();
  });
  document.body.addEventListener("htmx:afterSwap", mark);
})();
