// A link to a turn that the page's window does not hold (#<turn id>) opens the window around that turn.
(() => {
  const sought = decodeURIComponent(location.hash.slice(1));
  const there = new URL(location.href);
  if (!sought || sought === "content" || document.getElementById(sought) || there.searchParams.has("turn")) return;
  there.searchParams.set("turn", sought);
  fetch(there, { method: "HEAD" }).then((answer) => { if (answer.ok) location.replace(there); });
})();
