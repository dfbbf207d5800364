// The time range: the browser's list of zones, its own zone on request, the zone kept for the next page, and a range
// drawn on a chart.
(() => {
  const zonesKnown = ["UTC", ...Intl.supportedValuesOf("timeZone")];
  const keep = (zone) => {
    if (zonesKnown.includes(zone)) document.cookie = `strop-zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  };
  const form = document.querySelector("[data-time-range-form]");
  window.stropRange = (from, to) => {
    const zone = form?.querySelector("[data-zone]").value || "UTC";
    const here = new URL(location.href);
    for (const name of ["range", "before", "after", "page"]) here.searchParams.delete(name);
    here.searchParams.set("from", from);
    here.searchParams.set("to", to);
    here.searchParams.set("tz", zone);
    location.assign(here);
  };
  if (!form) return;
  const zone = form.querySelector("[data-zone]");
  const zones = document.getElementById("range-zones");
  for (const name of zonesKnown.slice(1)) zones.append(Object.assign(document.createElement("option"), { value: name }));
  form.querySelector("[data-zone-here]").addEventListener("click", () => {
    keep(Intl.DateTimeFormat().resolvedOptions().timeZone);
    const here = new URL(location.href);
    here.searchParams.set("tz", Intl.DateTimeFormat().resolvedOptions().timeZone);
    location.assign(here);
  });
  const ends = [...form.querySelectorAll("[type=datetime-local]")];
  const drawn = ends.map((end) => end.value);
  form.addEventListener("submit", () => {
    keep(zone.value);
    // Only the zone changed: a moving range stays moving.
    const preset = new URL(location.href).searchParams.get("range");
    if (ends.every((end, i) => end.value === drawn[i]) && form.dataset.timeRangeForm) {
      ends.forEach((end) => { end.disabled = true; });
      const range = Object.assign(document.createElement("input"), { type: "hidden", name: "range", value: preset || form.dataset.timeRangeForm });
      form.append(range);
    }
  });
})();
