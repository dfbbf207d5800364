// A link to a turn that the page's window does not hold (#<turn id>) opens the window around that turn.
(() => {
  const seek = () => {
    const sought = decodeURIComponent(location.hash.slice(1));
    const there = new URL(location.href);
    if (!sought || document.getElementById(sought) || there.searchParams.get("turn") === sought) return;
    there.searchParams.set("turn", sought);
    fetch(there, { method: "HEAD" }).then((answer) => { if (answer.ok) location.replace(there); });
  };
  seek();
  addEventListener("hashchange", seek);
})();
