// Runs before the first paint, so that a dark page never flashes white.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const wanted = () => localStorage.getItem("strop-theme") || "system";
  const apply = () => {
    const theme = wanted() === "system" ? (dark.matches ? "dark" : "light") : wanted();
    if (document.documentElement.dataset.bsTheme === theme) return;
    document.documentElement.dataset.bsTheme = theme;
    document.dispatchEvent(new Event("strop:theme"));
  };
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    for (const select of document.querySelectorAll("[data-theme-switch]")) {
      select.value = wanted();
      select.addEventListener("change", () => {
        localStorage.setItem("strop-theme", select.value);
        apply();
      });
    }
  });
})();
