// Runs before the first paint, so that a dark page never flashes white and a folded sidebar never jumps.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const wanted = () => localStorage.getItem("strop-theme") || "system";
  const apply = () => {
    const theme = wanted() === "system" ? (dark.matches ? "dark" : "light") : wanted();
    if (document.documentElement.dataset.bsTheme === theme) return;
    document.documentElement.dataset.bsTheme = theme;
    document.dispatchEvent(new Event("strop:theme"));
  };
  const fold = () => { document.documentElement.dataset.sidebar = localStorage.getItem("strop-sidebar") || "wide"; };
  const shut = () => new Set(JSON.parse(localStorage.getItem("strop-groups") || "[]"));
  apply();
  fold();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    for (const select of document.querySelectorAll("[data-theme-switch]")) {
      select.value = wanted();
      select.addEventListener("change", () => {
        localStorage.setItem("strop-theme", select.value);
        apply();
      });
    }
    document.querySelector("[data-sidebar-fold]")?.addEventListener("click", () => {
      localStorage.setItem("strop-sidebar", document.documentElement.dataset.sidebar === "narrow" ? "wide" : "narrow");
      fold();
    });
    for (const group of document.querySelectorAll("[data-group]")) {
      group.open = !shut().has(group.dataset.group) || group.querySelector("[aria-current]") !== null;
      group.addEventListener("toggle", () => {
        const names = shut();
        names[group.open ? "delete" : "add"](group.dataset.group);
        localStorage.setItem("strop-groups", JSON.stringify([...names]));
      });
    }
  });
})();
