// A form that sends files: how much is sent, a limit that is said before anything is sent, and refusals shown in place.
(() => {
  const form = document.querySelector("form[data-upload]");
  if (!form) return;
  const bar = form.querySelector("progress");
  const said = form.querySelector("[data-upload-said]");
  const limit = Number(form.dataset.upload);
  const mib = (bytes) => `${(bytes / 1048576).toFixed(1)} MiB`;
  const size = () => [...form.querySelectorAll("input[type=file]")].flatMap((input) => [...input.files]).reduce((sum, file) => sum + file.size, 0);

  form.addEventListener("change", () => {
    const total = size();
    const input = form.querySelector("[name=files]");
    input.setCustomValidity(total > limit ? `${mib(total)}; at most ${mib(limit)}. Use strop import runs for larger ones.` : "");
    said.textContent = input.validationMessage && total > limit ? input.validationMessage : total ? `${mib(total)} chosen` : "";
  });
  form.addEventListener("htmx:beforeRequest", () => { bar.hidden = false; bar.value = 0; said.textContent = "sending"; });
  form.addEventListener("htmx:xhr:progress", (event) => {
    if (!event.detail.lengthComputable || bar.value >= 1) return;
    bar.value = event.detail.loaded / event.detail.total;
    said.textContent = bar.value >= 1 ? "sent; being read" : `${mib(event.detail.loaded)} of ${mib(event.detail.total)} sent`;
  });
  form.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== form) return;
    bar.hidden = true;
    said.textContent = event.detail.successful || [400, 413].includes(event.detail.xhr.status) ? "" : `The upload failed (${event.detail.xhr.status || "no answer"}).`;
  });
  form.addEventListener("htmx:beforeSwap", (event) => { if ([400, 413].includes(event.detail.xhr.status)) event.detail.shouldSwap = true; });
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.id === "upload-outcome" && [400, 413].includes(event.detail.xhr.status)) event.detail.shouldSwap = true;
  });
})();
