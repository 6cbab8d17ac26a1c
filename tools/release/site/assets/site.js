// Search, the menu on small screens, copying code, and the button for the theme.
(() => {
  const root = document.currentScript.dataset.root;
  const query = document.getElementById("query");
  const results = document.getElementById("results");
  const menu = document.getElementById("menu");
  const maxResults = 12;

  document.getElementById("theme").addEventListener("click", () => window.toggleTheme());

  menu.addEventListener("click", () => {
    const open = document.body.classList.toggle("menu-open");
    menu.setAttribute("aria-expanded", String(open));
  });

  for (const block of document.querySelectorAll(".code")) {
    if (block.classList.contains("code-text")) continue;
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.querySelector("pre").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }

  // The index is fetched when somebody is about to search.
  let loading;
  const load = () => loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search.js";
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });

  const words = text => text.toLowerCase().split(/[^\p{L}\p{N}_.\-]+/u).filter(Boolean);

  // score is 0 unless every word is in the part.
  const score = (part, wanted) => {
    const title = part.p.toLowerCase(), heading = (part.h || "").toLowerCase(), text = part.t.toLowerCase();
    let sum = 0;
    for (const word of wanted) {
      let s = 0;
      if (title.includes(word)) s += part.h ? 4 : 12;
      if (heading.includes(word)) s += 10;
      const at = text.indexOf(word);
      if (at >= 0) s += /[\p{L}\p{N}]/u.test(text[at - 1] || " ") ? 1 : 3;
      if (s === 0) return 0;
      sum += s;
    }
    if (part.u.startsWith("doc/guide/")) sum *= 1.5;
    if (part.u.startsWith("doc/adr/") || part.u.startsWith("CHANGELOG")) sum *= 0.6;
    return sum;
  };

  // marked returns an element with text around the first word, and the words marked.
  const marked = (text, wanted) => {
    const at = Math.max(0, Math.min(...wanted.map(w => text.toLowerCase().indexOf(w)).filter(i => i >= 0).concat(text.length)) - 40);
    const span = document.createElement("span");
    let rest = (at > 0 ? "…" : "") + text.slice(at, at + 140) + (text.length > at + 140 ? "…" : "");
    while (rest) {
      const hits = wanted.map(w => [rest.toLowerCase().indexOf(w), w.length]).filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0]);
      if (!hits.length) break;
      const [i, n] = hits[0];
      const mark = document.createElement("mark");
      mark.textContent = rest.slice(i, i + n);
      span.append(rest.slice(0, i), mark);
      rest = rest.slice(i + n);
    }
    span.append(rest);
    return span;
  };

  let chosen = -1;
  const choose = i => {
    const links = results.querySelectorAll("a");
    if (!links.length) return;
    chosen = (i + links.length) % links.length;
    links.forEach((a, n) => a.classList.toggle("chosen", n === chosen));
    links[chosen].scrollIntoView({ block: "nearest" });
  };

  const search = async () => {
    const wanted = words(query.value);
    if (!wanted.length) {
      results.hidden = true;
      return;
    }
    const index = await load();
    const hits = index.map(part => [score(part, wanted), part]).filter(([s]) => s > 0)
      .sort((a, b) => b[0] - a[0]).slice(0, maxResults);
    results.replaceChildren(...hits.map(([, part]) => {
      const item = document.createElement("li"), a = document.createElement("a");
      const title = document.createElement("strong");
      a.href = root + part.u;
      title.textContent = part.h && part.h !== part.p ? part.p + " › " + part.h : part.p;
      a.append(title, marked(part.t, wanted));
      item.append(a);
      return item;
    }));
    if (!hits.length) {
      const item = document.createElement("li");
      item.className = "none";
      item.textContent = "Nothing has all of these words.";
      results.append(item);
    }
    results.hidden = false;
    choose(0);
  };

  query.addEventListener("focus", () => { load().catch(() => {}); });
  query.addEventListener("input", search);
  query.addEventListener("keydown", event => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") results.querySelectorAll("a")[chosen]?.click();
    else if (event.key === "Escape") { results.hidden = true; query.blur(); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !/input|textarea/i.test(event.target.tagName)) {
      query.focus();
      event.preventDefault();
    }
  });
  document.addEventListener("click", event => {
    if (!event.target.closest(".search")) results.hidden = true;
  });

  // A link such as index.html?q=progress searches at once.
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    query.value = asked;
    search();
  }
})();
