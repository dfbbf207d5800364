// The command palette: Ctrl or Cmd+K, type, arrows, Enter. The server finds; this shows and follows.
(() => {
  const dialog = document.querySelector("[data-palette]");
  if (!dialog) return;
  const input = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  const note = dialog.querySelector("[data-palette-note]");
  let items = [], at = 0, asked = 0, timer = 0;

  const acts = {
    theme: (to) => { const theme = document.querySelector("[data-theme-switch]"); theme.value = to; theme.dispatchEvent(new Event("change")); },
    keys: () => document.querySelector("[data-keys-open]").click(),
    sidebar: () => document.querySelector("[data-sidebar-fold]").click(),
  };
  const follow = (item, inNewTab) => {
    dialog.close();
    if (item.act) return acts[item.act.split(":")[0]](item.act.split(":")[1]);
    if (inNewTab) window.open(item.url, "_blank"); else location.assign(item.url);
  };
  const move = (to) => {
    if (!items.length) return;
    at = (to + items.length) % items.length;
    [...list.querySelectorAll("[role=option]")].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    const option = document.getElementById(`palette-${at}`);
    option.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", option.id);
  };
  const show = (found) => {
    items = found;
    list.replaceChildren();
    let group = "";
    items.forEach((item, i) => {
      if (item.group !== group) {
        group = item.group;
        const head = list.appendChild(document.createElement("li"));
        head.setAttribute("role", "presentation");
        head.className = "palette-group";
        head.textContent = group;
      }
      const option = list.appendChild(document.createElement("li"));
      option.setAttribute("role", "option");
      option.id = `palette-${i}`;
      option.append(Object.assign(document.createElement("span"), { textContent: item.title }));
      option.append(Object.assign(document.createElement("span"), { textContent: item.note, className: "meta" }));
      option.addEventListener("click", (event) => follow(item, event.ctrlKey || event.metaKey));
      option.addEventListener("mousemove", () => { if (at !== i) move(i); });
    });
    note.textContent = items.length ? "" : "Nothing found. A whole id of any kind also leads to its page.";
    input.removeAttribute("aria-activedescendant");
    move(0);
  };
  const search = async () => {
    const turn = ++asked;
    const answer = await fetch(`${dialog.dataset.palette}?q=${encodeURIComponent(input.value)}`);
    if (turn !== asked) return;
    if (!answer.ok) { note.textContent = `The search did not work (${answer.status}). Request ${answer.headers.get("x-request-id")}`; return; }
    show((await answer.json()).items);
  };
  const open = () => { input.value = ""; dialog.showModal(); search(); };

  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 120); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") move(at + 1);
    else if (event.key === "ArrowUp") move(at - 1);
    else if (event.key === "Enter" && items[at]) follow(items[at], event.ctrlKey || event.metaKey);
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (dialog.open) dialog.close(); else open();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette-open]")) open();
    if (event.target === dialog) dialog.close();
  });
})();
