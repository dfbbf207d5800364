// Keys that work on every page: g then a letter, ? for the sheet, [ for the sidebar, / and t where a page has them.
// A page's own control answers a key by data-key="x". Nothing fires while typing or while a dialog is open.
(() => {
  const sheet = document.querySelector("[data-keys]");
  const isTyping = (target) => target.closest("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]") !== null;
  const isBusy = (event) => event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented ||
    isTyping(event.target) || document.querySelector("dialog[open]") !== null;
  let afterG = false;

  const go = (letter) => {
    const link = document.querySelector(`[data-go="${CSS.escape(letter)}"]`);
    if (link) location.assign(link.href);
  };
  const press = (key) => {
    if (key === "?") sheet.showModal();
    else if (key === "[") document.querySelector("[data-sidebar-fold]")?.click();
    else if (key === "/") document.querySelector("[data-query]")?.focus();
    else if (key === "t") document.querySelector("[data-time-range] > button")?.click();
    else {
      const control = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (!control) return false;
      control.click();
    }
    return true;
  };
  document.addEventListener("keydown", (event) => {
    if (isBusy(event)) return;
    if (afterG) {
      afterG = false;
      go(event.key);
    } else if (event.key === "g") {
      afterG = true;
      setTimeout(() => { afterG = false; }, 1500);
    } else if (!press(event.key)) return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys-open]")) sheet.showModal();
    if (event.target === sheet) sheet.close();
  });
})();
