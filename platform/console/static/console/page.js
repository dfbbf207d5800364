// What every page does: copy buttons, toasts, relative times, questions before a step that is hard to take back.
(() => {
  const copy = async (button, text) => {
    await navigator.clipboard.writeText(text);
    button.dataset.copied = "";
    setTimeout(() => delete button.dataset.copied, 1500);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button, button.dataset.copy);
    if (button.dataset.copyFrom) copy(button, document.getElementById(button.dataset.copyFrom).textContent);
    if ("dismissToast" in button.dataset) button.closest(".toast").remove();
  });
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  const toast = (text, level, link) => {
    const box = document.createElement("div");
    box.className = `toast show toast-${level}`;
    const body = box.appendChild(document.createElement("div"));
    body.className = "toast-body";
    const said = body.appendChild(document.createElement("span"));
    said.textContent = `${text} `;
    if (link) said.append(Object.assign(document.createElement("a"), { href: link.url, textContent: link.title }));
    const close = Object.assign(document.createElement("button"), { type: "button", className: "btn-close", ariaLabel: "Close" });
    close.dataset.dismissToast = "";
    body.append(close);
    document.querySelector("[data-toasts]").append(box);
    fade(box);
  };
  const fade = (box) => {
    if (!box.classList.contains("toast-error")) setTimeout(() => box.remove(), 8000);
  };
  document.querySelectorAll(".toast").forEach(fade);
  document.body.addEventListener("strop:toast", (event) => toast(event.detail.text, event.detail.level, event.detail.link));
  document.body.addEventListener("htmx:responseError", (event) => {
    const request = event.detail.xhr.getResponseHeader("x-request-id");
    toast(`This did not work (${event.detail.xhr.status}). Request ${request}`, "error");
  });
  document.body.addEventListener("htmx:sendError", () => toast("The server did not answer.", "error"));

  const ago = (seconds) => {
    if (seconds < 0) return seconds > -5 ? "just now" : "in the future";
    for (const [limit, size, unit] of [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"]]) {
      if (seconds < limit) return `${Math.floor(seconds / size)} ${unit} ago`;
    }
    return `${Math.floor(seconds / 86400)} d ago`;
  };
  // The server's clock and this one may differ: measure from the page's own time of rendering.
  const shift = performance.timeOrigin + performance.now() - Date.now();
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      time.textContent = ago((Date.now() + shift - Date.parse(time.dateTime)) / 1000);
    }
  }, 5000);
})();
