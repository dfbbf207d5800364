// The review page beyond links and forms: keys into fields, complete from anywhere, the reservation's heartbeat, drafts.
(() => {
  const page = document.querySelector("[data-review]");
  const form = document.querySelector("[data-answer]");
  const token = () => document.querySelector("[name=csrfmiddlewaretoken]")?.value;
  const post = (url, body) => fetch(url, { method: "POST", body, keepalive: true, headers: { "X-CSRFToken": token() } });

  document.querySelector("[data-submit-on-change]")?.addEventListener("change", (event) => event.currentTarget.submit());
  document.querySelector(".review-list [aria-current]")?.scrollIntoView({ block: "nearest" });
  for (const box of document.querySelectorAll("details[data-remember]")) {
    box.open = localStorage.getItem(`strop-${box.dataset.remember}`) !== "closed";
    box.addEventListener("toggle", () => localStorage.setItem(`strop-${box.dataset.remember}`, box.open ? "open" : "closed"));
  }
  if (!page) return;

  // e and n lead into a field, f into the flag's reason; Escape leads out, so that the other keys work again.
  const isTyping = (target) => target.closest("textarea, input:not([type=radio], [type=checkbox]), select") !== null;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && form && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      form.requestSubmit();
      return;
    }
    if (event.key === "Escape" && isTyping(event.target)) { event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const field = document.querySelector(`[data-focus-key="${CSS.escape(event.key)}"]`);
    if (!field) return;
    event.preventDefault();
    field.closest("details")?.setAttribute("open", ""); // and focus at once: what is typed next must not be a key
    field.focus();
    field.select?.();
  });
  document.querySelector("[data-flag]")?.addEventListener("toggle", (event) => {
    if (event.currentTarget.open) event.currentTarget.querySelector("input[name=reason]").focus();
  });

  if (form) {
    const saved = form.querySelector("[data-saved]");
    const advance = form.querySelector("[data-advance]");
    if (advance) {
      advance.checked = localStorage.getItem("strop-review-advance") !== "off";
      advance.addEventListener("change", () => localStorage.setItem("strop-review-advance", advance.checked ? "on" : "off"));
    }
    form.querySelector("[data-reward]").addEventListener("input", (event) => {
      if (event.target.value) form.querySelector("[data-other]").checked = true;
    });
    let waiting = 0, isSent = false;
    const save = async () => {
      waiting = 0;
      if (isSent) return;
      const answer = await post(form.dataset.draft, new FormData(form)).catch(() => null);
      saved.textContent = answer?.ok ? "Draft kept" : "The draft could not be kept";
    };
    const later = () => { clearTimeout(waiting); waiting = setTimeout(save, 500); };
    form.addEventListener("input", later);
    form.addEventListener("submit", () => { isSent = true; clearTimeout(waiting); });
    // A page left within half a second of a change still keeps it.
    addEventListener("pagehide", () => {
      if (waiting && !isSent) navigator.sendBeacon(form.dataset.draft, new FormData(form));
    });
  }

  // While the page is looked at it keeps its place; a hidden one lets it run out.
  const taken = page.querySelector("[data-taken]");
  const hold = async (isOpening) => {
    if (document.hidden && !isOpening) return;
    const body = new FormData();
    body.set("opening", isOpening ? "yes" : "no");
    const answer = await post(page.dataset.hold, body).catch(() => null);
    if (!answer?.ok) return;
    const { others } = await answer.json();
    page.querySelector("[data-taken-by]").textContent = others.join(", ");
    taken.hidden = others.length === 0;
  };
  if (page.dataset.hold) {
    hold(true);
    setInterval(() => hold(false), Number(page.dataset.heartbeat) * 1000);
    document.addEventListener("visibilitychange", () => hold(false));
  }
})();
