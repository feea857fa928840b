// A running study's page renews itself without losing the place of its reader. Only a running page holds this.
(() => {
  const KEPT = "fulcrum:" + location.pathname, SECONDS = 5, SILENT = 120;
  const folded = () => [...document.querySelectorAll("details[id]")].map(d => [d.id, d.open]);
  const refold = all => all.forEach(([id, open]) => { const d = document.getElementById(id); if (d) d.open = open; });
  const say = text => { const place = document.getElementById("live"); if (place) place.textContent = text; };
  const heard = when => {                        // a study touches its page every five seconds: when did it last?
    const place = document.getElementById("silent"), silent = (Date.now() - new Date(when)) / 1000;
    if (!place || !(silent > SILENT)) return;
    const minutes = Math.round(silent / 60), hours = Math.floor(minutes / 60);
    place.querySelector("b").textContent = hours ? hours + " h " + minutes % 60 + " min" : minutes + " min";
    place.hidden = false;
    Object.assign(document.getElementById("state"), { textContent: "not heard of", className: "late" });
  };
  heard(document.lastModified);
  try {                                          // a page from disk is loaded anew: put back what was open, and where
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
    if (kept) { refold(kept.folded); scrollTo({ top: kept.y, behavior: "instant" }); }
    sessionStorage.removeItem(KEPT);
  } catch (_) { /* no storage: nothing was kept */ }

  const reload = () => {
    try { sessionStorage.setItem(KEPT, JSON.stringify({ folded: folded(), y: scrollY })); } catch (_) { /* as above */ }
    location.reload();
  };
  const swap = text => {                         // a served page is exchanged in place
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const before = folded(), y = scrollY, running = fresh.querySelector("[data-state=running]") !== null;
    const at = document.activeElement, focused = at && (at.id || (at.closest("[id]") || {}).id);
    for (const tag of ["header", "main"]) document.querySelector(tag).replaceWith(fresh.querySelector(tag));
    document.title = fresh.title;
    refold(before);
    const again = focused && document.getElementById(focused);
    if (again) (again.matches("details") ? again.querySelector("summary") : again).focus({ preventScroll: true });
    scrollTo({ top: y, behavior: "instant" });
    return running;
  };
  const renew = async () => {
    if (String(getSelection())) return setTimeout(renew, 1000 * SECONDS);      // somebody is copying text
    if (location.protocol === "file:") return reload();
    let running = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) { running = swap(await answer.text()); heard(answer.headers.get("Last-Modified")); }
    } catch (_) { say("The server does not answer; this is what was last known."); }
    if (running) setTimeout(renew, 1000 * SECONDS);
  };
  setTimeout(renew, 1000 * SECONDS);
})();
