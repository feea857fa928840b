// The gallery: sends what a person asks for, and hangs each picture when it comes. Text is only ever put in as text.
(() => {
  const { runs, limits, first, prompts } = JSON.parse(document.getElementById("data").textContent);
  const by = id => document.getElementById(id), known = new Map(runs.map(run => [run.key, run]));
  const page = [...crypto.getRandomValues(new Uint8Array(8))].map(n => n.toString(16).padStart(2, "0")).join("");
  const boxes = [...document.querySelectorAll("input[name=run]")];
  const make = (tag, name = "", text = "") => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text) element.textContent = text;
    return element;
  };
  const number = n => n.toLocaleString("en");
  const whole = (text, low, high, usual) => {
    const value = Math.round(Number(text));
    return text !== "" && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : usual;
  };
  const PAUSE = 600, SLIDE = 90;                 // milliseconds after a letter, and after a slider's move
  let timer = 0, stop = null;

  // What is asked for --------------------------------------------------------------------------------------------------
  const chosen = () => boxes.filter(box => box.checked).map(box => known.get(box.value)).slice(0, limits.columns);
  const points = () => [...new Set(chosen().flatMap(run => run.points))].sort((a, b) => a - b);
  const own = (id, name) => {                    // a slider, or what each run has of its own
    const values = [...new Set(chosen().map(run => run[name]))];
    if (by(id + "-own").checked && values.length) by(id).value = values[0];
    return { values, value: by(id + "-own").checked ? null : Number(by(id).value) };
  };
  let newest = true, wanted = 0;                 // of the training: the last point, or the images that were chosen
  const state = () => ({
    prompt: by("prompt").value.slice(0, limits.letters),
    seed: whole(by("seed").value, 0, limits.seed, 0),
    count: whole(by("count").value, 1, limits.pictures, 1),
    guidance: own("guidance", "guidance").value,
    steps: own("steps", "steps").value,
    columns: chosen().map(run => (newest ? { key: run.key } : { key: run.key, at: wanted })),
  });

  const label = () => {                          // what the sliders say
    for (const id of ["guidance", "steps"]) {
      const { values, value } = own(id, id);
      const text = value === null ? values.join(", ") : String(value);
      by(id + "-value").textContent = text;
      by(id).setAttribute("aria-valuetext", value === null ? text + ", each run’s own" : text);
    }
    const all = points(), last = all.length - 1;
    by("at").max = Math.max(last, 0);
    by("at").disabled = last < 1;
    const place = newest ? last : Math.max(0, all.findLastIndex(point => point <= wanted));
    by("at").value = Math.max(place, 0);
    const text = all.length ? number(all[place]) + (newest ? " (newest)" : "") : "";
    by("at-value").textContent = text;
    by("at").setAttribute("aria-valuetext", text + " images");
    by("at-note").textContent = last < 1 ? "one point each; fulcrum train --keep-checkpoints 8 keeps more"
      : last + 1 + " points; each run shows its last one up to there";
  };
  const remember = asked => {                    // the address says what is shown: it can be kept and sent on
    const words = new URLSearchParams();
    if (asked.prompt) words.set("prompt", asked.prompt);
    for (const name of ["seed", "guidance", "steps"]) if (asked[name]) words.set(name, asked[name]);
    if (asked.count > 1) words.set("count", asked.count);
    if (!newest) words.set("at", wanted);
    words.set("runs", chosen().map(run => run.key.slice(0, 8)).join("."));
    history.replaceState(null, "", "/?" + words);
  };
  const recall = () => {
    const words = new URLSearchParams(location.search), keys = (words.get("runs") || "").split(".").filter(Boolean);
    by("prompt").value = (words.has("prompt") ? words.get("prompt") : prompts[0] || "").slice(0, limits.letters);
    by("seed").value = whole(words.get("seed") || "", 0, limits.seed, 0);
    by("count").value = whole(words.get("count") || "", 1, limits.pictures, 1);
    for (const [name, most] of [["guidance", limits.guidance], ["steps", limits.steps]]) {
      const value = Number(words.get(name));
      const widest = Math.max(Number(by(name).max), ...runs.map(run => Math.min(most, run[name])));
      by(name).max = value > widest && value <= most ? value : widest;
      if (value > 0 && value <= most) { by(name + "-own").checked = false; by(name).value = value; }
    }
    if (Number(words.get("at")) > 0) { newest = false; wanted = Number(words.get("at")); }
    boxes.forEach((box, place) => { box.checked = keys.length ? keys.some(key => box.value.startsWith(key)) : place < first; });
    if (!boxes.some(box => box.checked)) boxes.slice(0, first).forEach(box => { box.checked = true; });
  };

  // What is shown ------------------------------------------------------------------------------------------------------
  const hang = asked => {                        // one column for each run, its former pictures dimmed until others come
    const wall = by("wall"), before = new Map([...wall.children].map(column => [column.dataset.key, column]));
    wall.replaceChildren(...chosen().map(run => {
      const column = before.get(run.key) || make("article", "shown " + run.colour);
      if (!column.dataset.key) {
        column.dataset.key = run.key;
        column.setAttribute("aria-label", run.name);
        const head = make("div");
        head.append(make("h2", "", run.name), make("p", "detail", run.detail));
        if (run.state) head.append(make("p", "state", run.state));
        column.append(head, make("div", "pictures"));
      }
      const frames = column.querySelectorAll(".frame");
      if (frames.length !== asked.count) column.lastChild.replaceChildren(...Array.from({ length: asked.count }, () => {
        const figure = make("figure");
        figure.append(make("div", "frame"));
        return figure;
      }));
      column.querySelectorAll(".frame").forEach(frame => frame.classList.add("waits"));
      column.setAttribute("aria-busy", "true");
      return column;
    }));
  };
  const copy = async (command, button) => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy command"; }, 1500);
    } catch (_) {                                // no clipboard here: shown, chosen, ready for the person's own keys
      by("typed").hidden = false;
      by("command").value = command;
      by("command").focus();
      by("command").select();
    }
  };
  const show = (answer, asked) => {
    const column = [...by("wall").children].find(one => one.dataset.key === answer.key), run = known.get(answer.key);
    if (!column) return;
    column.removeAttribute("aria-busy");
    if (answer.error) return column.lastChild.replaceChildren(make("p", "fault", answer.error));
    const facts = [number(answer.images) + " images seen", "guidance " + answer.guidance, answer.steps + " steps", answer.size + " px"];
    column.lastChild.replaceChildren(...answer.pictures.map(picture => {
      const figure = make("figure"), frame = make("div", "frame"), image = make("img"), acts = make("div", "acts");
      image.src = "/picture/" + picture.id;
      image.alt = run.name + ": " + (asked.prompt || "no prompt") + (asked.count > 1 ? ", picture " + (picture.number + 1) : "");
      frame.append(image);
      const save = make("a", "act", "Save PNG"), button = make("button", "act", "Copy command");
      const which = " of " + run.name + (asked.count > 1 ? ", picture " + (picture.number + 1) : "");
      Object.assign(save, { href: image.src, download: picture.file, ariaLabel: "Save PNG" + which });
      Object.assign(button, { type: "button", ariaLabel: "Copy command" + which, title: answer.command });
      button.addEventListener("click", () => copy(answer.command, button));
      acts.append(save, button);
      figure.append(frame, acts);
      return figure;
    }), make("p", "detail drawn", facts.join(" · ")));
  };
  const note = notes => by("notes").replaceChildren(...[...notes].map(text => make("li", "", text)));

  const draw = async () => {
    clearTimeout(timer);
    if (stop) stop.abort();
    const mine = stop = new AbortController(), asked = state(), begun = performance.now(), notes = new Set();
    label();
    remember(asked);
    hang(asked);
    if (!asked.columns.length) return void (by("status").textContent = "Choose a run.");
    if (new Set(chosen().map(run => run.noise)).size > 1)
      notes.add("These runs draw pictures of unlike size or through unlike codecs: the same noise is shared only by those that agree.");
    let done = 0, ended = false;
    note(notes);
    by("status").textContent = "Drawing …";
    try {
      const answer = await fetch("/draw", {
        method: "POST", signal: mine.signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ page, ...asked }),
      });
      if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || "The gallery refused this: " + answer.status);
      const stream = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", part; !(part = await stream.read()).done;) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (mine !== stop) return;             // a newer one is under way
          const record = JSON.parse(line);
          if (record.error && !record.key) throw new Error(record.error);
          if (record.done) ended = true;
          if (!record.key) continue;
          show(record, asked);
          (record.notes || []).forEach(text => notes.add(text));
          note(notes);
          by("status").textContent = "Drawn: " + ++done + " of " + asked.columns.length;
        }
      }
      if (!ended) throw new Error("The gallery stopped in the middle of drawing.");
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      const pictures = by("wall").querySelectorAll("img").length;
      by("status").textContent = pictures + (pictures === 1 ? " picture" : " pictures") + " in " + seconds + " s, seed " + asked.seed;
      by("wall").dataset.prompt = asked.prompt;
    } catch (error) {
      if (mine !== stop) return;
      const gone = error instanceof TypeError;
      by("status").textContent = gone ? "The gallery does not answer: was it stopped in its terminal?" : error.message;
      by("wall").querySelectorAll(".waits").forEach(frame => frame.classList.remove("waits"));
    }
  };
  const soon = pause => { clearTimeout(timer); timer = setTimeout(draw, pause); };

  // Who asks -----------------------------------------------------------------------------------------------------------
  by("ask").addEventListener("submit", event => { event.preventDefault(); draw(); });
  by("prompt").addEventListener("input", () => soon(PAUSE));
  for (const id of ["guidance", "steps"]) {
    by(id).addEventListener("input", () => { by(id + "-own").checked = false; label(); soon(SLIDE); });
    by(id + "-own").addEventListener("change", () => { label(); soon(0); });
  }
  by("at").addEventListener("input", () => {
    const all = points(), place = Number(by("at").value);
    newest = place >= all.length - 1;
    wanted = all[place] || 0;
    label();
    soon(SLIDE);
  });
  by("seed").addEventListener("input", () => soon(SLIDE));
  by("count").addEventListener("input", () => soon(SLIDE));
  by("another").addEventListener("click", () => { by("seed").value = Math.floor(Math.random() * 1e6); draw(); });
  for (const button of document.querySelectorAll(".try"))
    button.addEventListener("click", () => { by("prompt").value = button.dataset.prompt; draw(); });
  for (const box of boxes) box.addEventListener("change", () => {
    if (boxes.filter(one => one.checked).length > limits.columns) box.checked = false;
    label();
    soon(0);
  });
  if (matchMedia("(max-width: 34rem)").matches) by("settings").open = false;      // a phone shows pictures first
  recall();
  draw();
})();
