// The form of a new key shows what belongs to the chosen kind.
(() => {
  const form = document.querySelector("[data-key-form]");
  if (!form) return;
  const show = () => {
    for (const part of form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== form.elements.kind.value;
  };
  form.addEventListener("change", show);
  show();
})();
