// What a page needs a script for: its live parts, and a log that keeps to its end. Everything else works without.
"use strict";
(() => {
  const mostLog = 2 << 20; // characters of a log that a page holds
  const body = document.body;
  let skew = body.dataset.now ? Date.now() - body.dataset.now : 0; // of this computer's clock to the server's

  // long writes a duration as the server does.
  function long(ms) {
    if (ms < 1000) return "0s";
    let s = Math.floor(ms / 1000);
    if (s < 60) return s + "s";
    const parts = [];
    for (const [n, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
      const k = Math.floor(s / n);
      if (k > 0 || parts.length > 0) parts.push(k + unit);
      s -= k * n;
    }
    return parts[1] && parts[1][0] !== "0" ? parts[0] + " " + parts[1] : parts[0];
  }

  function tick() {
    for (const e of document.querySelectorAll(".ticks")) {
      const words = long(Date.now() - skew - e.dataset.since);
      if (e.textContent !== words) e.textContent = words;
    }
  }

  // localTimes shows times of day where the reader is.
  function localTimes(root) {
    for (const e of root.querySelectorAll("time[datetime]")) e.title = new Date(e.getAttribute("datetime")).toLocaleString();
  }

  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

  // morph makes the node a like b and keeps what is the same, so that focus, selection and scrolling stay.
  function morph(a, b) {
    if (a.nodeType !== Node.ELEMENT_NODE) {
      if (a.nodeValue !== b.nodeValue) a.nodeValue = b.nodeValue;
      return;
    }
    for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    for (const { name } of [...a.attributes]) {
      const kept = name === "open" && a.nodeName === "DETAILS";
      if (!b.hasAttribute(name) && !kept) a.removeAttribute(name);
    }
    const children = [...b.childNodes], ids = new Set(children.map((n) => n.id).filter(Boolean));
    const wanted = (n) => n.id && ids.has(n.id); // it has its own place, and is not moved if that can be helped
    let at = a.firstChild;
    for (const want of children) {
      let have = at;
      while (have && !same(have, want) && (want.id || !wanted(have))) have = have.nextSibling;
      if (!have || !same(have, want)) {
        a.insertBefore(want, at);
        continue;
      }
      while (at !== have && !wanted(at)) at = drop(at);
      if (at === have) at = at.nextSibling;
      else a.insertBefore(have, at);
      morph(have, want);
    }
    while (at) at = drop(at);
  }

  function drop(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  function fragment(html) {
    const t = document.createElement("template");
    t.innerHTML = html;
    return t.content;
  }

  function part(p) {
    skew = Date.now() - p.now;
    const have = document.getElementById(p.id), want = fragment(p.html).firstElementChild;
    if (!have || !want) return;
    morph(have, want);
    localTimes(have);
    if (have.dataset.title) document.title = have.dataset.title + " · Trainyard";
  }

  // The log.
  const box = document.getElementById("log");
  const log = box && {
    text: document.getElementById("log-text"), done: document.getElementById("log-done"), open: document.getElementById("log-open"),
    jump: document.getElementById("log-jump"), earlier: document.getElementById("log-earlier"),
    fixed: "fixed" in box.dataset, stick: !("fixed" in box.dataset), at: box.dataset.at, length: 0,
  };

  function toEnd() {
    log.text.scrollTop = log.text.scrollHeight;
  }

  function showEarlier(name, offset) {
    const u = new URL(location.href);
    u.searchParams.set("log", name);
    u.searchParams.set("end", offset);
    u.hash = "log";
    const a = document.createElement("a");
    a.href = u.href;
    a.textContent = "Load earlier";
    log.earlier.replaceChildren(a);
    log.earlier.hidden = !(offset > 0);
  }

  function addLog(p, id) {
    const before = log.at.slice(log.at.lastIndexOf(":") + 1);
    log.at = id;
    if (p.reset) {
      log.done.replaceChildren();
      log.length = 0;
      log.text.setAttribute("aria-label", p.name);
      showEarlier(p.name, p.start);
    }
    if (p.done) {
      const piece = document.createElement("span");
      piece.dataset.at = p.reset ? p.start : before;
      piece.append(fragment(p.done));
      log.length += piece.textContent.length;
      piece.dataset.length = piece.textContent.length;
      log.done.append(piece);
    }
    log.open.replaceChildren(fragment(p.open));
    if (log.stick) trim(p.name);
    box.classList.toggle("blank", !log.text.textContent);
    if (log.stick) toEnd();
    else log.jump.hidden = false;
  }

  // trim forgets the beginning of a log that has grown long, while nobody reads there.
  function trim(name) {
    const pieces = log.done.children;
    let cut = false;
    while (log.length > mostLog && pieces.length > 1) {
      log.length -= pieces[0].dataset.length || pieces[0].textContent.length;
      pieces[0].remove();
      cut = true;
    }
    if (cut) showEarlier(name, pieces[0].dataset.at);
  }

  if (log) {
    if (log.done.childNodes.length > 0) { // what came with the page is the first piece
      const first = document.createElement("span");
      first.append(...log.done.childNodes);
      first.dataset.length = log.length = first.textContent.length;
      log.done.append(first);
    }
    log.text.addEventListener("scroll", () => {
      if (log.fixed) return;
      log.stick = log.text.scrollHeight - log.text.scrollTop - log.text.clientHeight < 30;
      if (log.stick) log.jump.hidden = true;
    }, { passive: true });
    log.jump.addEventListener("click", () => { log.stick = true; log.jump.hidden = true; toEnd(); });
    if (log.stick) toEnd();
  }

  // Buttons that copy an element's text. Without a script, one click marks all of it.
  document.documentElement.classList.add("scripted");
  document.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-copy]");
    if (!button) return;
    const from = document.getElementById(button.dataset.copy);
    getSelection().selectAllChildren(from);
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(from.textContent); // there is none over plain HTTP from afar
      else document.execCommand("copy");
      button.textContent = "Copied";
    } catch {
      button.textContent = "Marked";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // The stream.
  const live = body.dataset.live, offline = document.getElementById("offline");
  let source = null, ended = !live, failures = 0, timer = 0;

  function connect() {
    clearTimeout(timer);
    if (ended || source) return;
    const u = new URL(live, location.href);
    if (log && !log.fixed) u.searchParams.set("at", log.at);
    const s = source = new EventSource(u);
    s.onopen = () => { failures = 0; offline.hidden = true; };
    s.onerror = () => {
      if (++failures > 1) offline.hidden = false;
      if (s.readyState !== EventSource.CLOSED) return; // it comes back by itself
      source = null;
      timer = setTimeout(connect, Math.min(30000, 1000 * 2 ** failures));
    };
    s.addEventListener("part", (e) => part(JSON.parse(e.data)));
    s.addEventListener("log", (e) => addLog(JSON.parse(e.data), e.lastEventId));
    s.addEventListener("end", () => { ended = true; disconnect(); });
  }

  function disconnect() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }

  localTimes(document);
  setInterval(tick, 1000);
  connect();
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
  // A browser has six connections to a server that speaks plain HTTP: pages that nobody looks at give theirs back.
  if (location.protocol === "http:") {
    document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  }
})();
