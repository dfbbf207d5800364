// A list's toolbar: columns, ticked rows, and the sheet of query keys that puts a key into the bar.
(() => {
  const facets = document.querySelector("details.facets");
  if (facets && matchMedia("(max-width: 991px)").matches) facets.open = false;

  const columns = document.querySelector("[data-columns]");
  columns?.addEventListener("submit", () => {
    const picked = [...columns.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value);
    columns.querySelector("[name=columns]").value = picked.join(",");
  });

  const bulk = document.querySelector("[data-bulk]");
  const boxes = () => [...document.querySelectorAll("[data-pick]")];
  const count = () => {
    if (!bulk) return;
    const picked = boxes().filter((box) => box.checked).length;
    bulk.hidden = picked === 0;
    bulk.querySelector("[data-bulk-count]").textContent = picked === 1 ? "1 ticked" : `${picked} ticked`;
    const all = document.querySelector("[data-pick-all]");
    if (all) { all.checked = picked > 0 && picked === boxes().length; all.indeterminate = picked > 0 && !all.checked; }
  };
  let last = null;
  document.addEventListener("click", (event) => {
    const box = event.target.closest("[data-pick]");
    if (box && event.shiftKey && last) {
      const all = boxes();
      const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
      all.slice(from, to + 1).forEach((other) => { other.checked = box.checked; });
    }
    if (box) last = box;
    if (event.target.closest("[data-bulk-clear]")) { boxes().forEach((other) => { other.checked = false; }); count(); }
    const key = event.target.closest("[data-query-key]");
    if (key) {
      const bar = document.querySelector("[data-query]");
      bar.value = `${bar.value.trimEnd()} ${key.dataset.queryKey}`.trimStart();
      bar.focus();
      bar.setSelectionRange(bar.value.length, bar.value.length);
    }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) boxes().forEach((box) => { box.checked = event.target.checked; });
    if (event.target.matches("[data-pick], [data-pick-all]")) count();
  });
  document.body.addEventListener("htmx:afterSwap", count);
})();
