// The console's module. Every page works without it: it swaps pages in place, asks in a dialog, watches for news, and
// listens to keys.

const make = (tag, of = {}) => Object.assign(document.createElement(tag), of);
const page = () => document.querySelector("main");
const parser = new DOMParser();
let typed = "";
let row = -1;
let watching = new AbortController();

// --- pages in place ---------------------------------------------------------------------------

async function read(address, options = {}) {
  const answer = await fetch(address, { ...options, headers: { accept: "text/html" } });
  const html = (answer.headers.get("content-type") || "").startsWith("text/html");
  return { answer, document: html ? parser.parseFromString(await answer.text(), "text/html") : null };
}

/** Shows a document of the console in place of this one. */
function show(next, address, { push = true, keep = false } = {}) {
  // The page of the login, or no page of the console.
  if (!next?.getElementById("main")) return location.assign(address);
  const open = new Set([...document.querySelectorAll("details[open][id]")].map((one) => one.id));
  const at = window.scrollY;
  document.title = next.title;
  document.body.replaceChildren(...next.body.childNodes);
  for (const name of ["data-live", "data-since", "data-task"]) {
    document.body.setAttribute(name, next.body.getAttribute(name) || "");
  }
  document.documentElement.dataset.theme = next.documentElement.dataset.theme;
  if (push && address !== location.href) history.pushState(null, "", address);
  if (keep) {
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    window.scrollTo(0, at);
  } else {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView();
    else window.scrollTo(0, 0);
    page().focus({ preventScroll: true });
  }
  arrive();
}

async function go(address, how) {
  try {
    const { answer, document: next } = await read(address);
    const hash = new URL(address, location.href).hash;
    show(next, answer.url.includes("#") ? answer.url : answer.url + hash, how);
  } catch {
    silent(() => go(address, how));
  }
}

const inside = (link) =>
  link.origin === location.origin &&
  link.pathname.startsWith("/console") &&
  !link.pathname.includes("/assets/") &&
  !link.pathname.endsWith("/bundle") &&
  !link.search.includes("format=json");

document.addEventListener("click", (event) => {
  const copy = event.target.closest(".copy");
  if (copy) return copyText(copy);
  const link = event.target.closest("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.matches("dialog [data-close]")) {
    event.preventDefault();
    return link.closest("dialog").close();
  }
  const bare = link.getAttribute("href").startsWith("#");
  if (bare || !inside(link)) return;
  event.preventDefault();
  if ("ask" in link.dataset) ask(link.href);
  else go(link.href);
});

window.addEventListener("popstate", () => go(location.href, { push: false }));

// --- forms ------------------------------------------------------------------------------------

document.addEventListener("submit", async (event) => {
  const form = event.target;
  // By attribute: a field may have the name of a property of its form, such as "action".
  const action = form.getAttribute("action");
  const address = new URL(action || location.href, location.href);
  if (!inside(address) || /\/(login|logout|logout-everywhere|theme)$/.test(address.pathname)) return;
  event.preventDefault();
  const data = new URLSearchParams(new FormData(form, event.submitter));
  if (form.getAttribute("method") === "get") {
    for (const [name, value] of [...data]) if (!value) data.delete(name);
    address.search = data;
    return go(address.href);
  }
  const able = (able) => form.querySelectorAll("button").forEach((button) => (button.disabled = !able));
  able(false);
  try {
    const { answer, document: next } = await read(address, { method: "POST", body: data });
    if (new URL(answer.url).pathname === "/console/login") {
      sessionStorage.setItem("typed", JSON.stringify([action, [...data]]));
      return location.assign(answer.url);
    }
    // Whoever stopped meanwhile is elsewhere.
    if ("continue" in form.dataset && !form.isConnected) return;
    const dialog = form.closest("dialog");
    if (dialog && next && !answer.redirected && next.querySelector("form.ask, .part")) {
      return fill(dialog, next);
    }
    dialog?.close();
    show(next, answer.redirected ? answer.url : location.href, { push: answer.redirected });
  } catch {
    able(true);
    tell(form, "bad", "The broker does not answer. Look whether it was done before you send it again.");
  }
});

/** Says something above the fields of a form. */
function tell(form, tone, words) {
  form.querySelector(".flash")?.remove();
  form.prepend(make("p", { className: `flash ${tone}`, role: "alert", textContent: words }));
}

/** Fills in what was typed into a form when its session ended. */
function refill(form) {
  const [action, typed] = JSON.parse(sessionStorage.getItem("typed") || "[]");
  if (!typed || form.getAttribute("action") !== action) return;
  sessionStorage.removeItem("typed");
  for (const [name, value] of typed) {
    const field = form.querySelector(`[name="${CSS.escape(name)}"]:not([type=hidden], button)`);
    if (field) field.value = value;
  }
  tell(form, "good", "Filled in as it was when your session ended. Nothing was sent yet.");
}

// --- asking -----------------------------------------------------------------------------------

function makeDialog(label) {
  document.querySelector("dialog")?.remove();
  const dialog = make("dialog", { ariaLabel: label });
  const from = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (from?.isConnected) from.focus();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  return dialog;
}

function fill(dialog, next) {
  const parts = [...next.querySelectorAll("main > .flash, main > .part")];
  dialog.replaceChildren(...parts);
  arrive(dialog);
  dialog.querySelector("input:not([type=hidden]), select, textarea, button")?.focus();
}

async function ask(address) {
  try {
    const { answer, document: next } = await read(address);
    if (!answer.ok || !next?.querySelector("form.ask")) return show(next, answer.url);
    const dialog = makeDialog(next.querySelector("h1")?.textContent.trim() || "Action");
    fill(dialog, next);
    dialog.showModal();
  } catch {
    silent(() => ask(address));
  }
}

// --- news -------------------------------------------------------------------------------------

/** Waits for events behind this page, and offers to show them: nothing moves by itself. */
async function watch() {
  watching.abort();
  watching = new AbortController();
  const { signal } = watching;
  const { live, task, since } = document.body.dataset;
  if (live !== "true") return;
  let [cursor, count] = [since, 0];
  while (!signal.aborted) {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    const query = new URLSearchParams({ since: cursor, ...(task ? { task } : {}) });
    try {
      const answer = await fetch(`/console/live?${query}`, { signal });
      if (!answer.ok || answer.redirected) return;
      const news = await answer.json();
      cursor = news.cursor;
      count += news.count;
      const again = () => go(location.href, { push: false, keep: true });
      if (count && !signal.aborted) chip(`${count > 99 ? "99+" : count} new · show`, again);
    } catch {
      if (signal.aborted) return;
      await new Promise((later) => setTimeout(later, 5000));
    }
  }
}

function chip(words, act) {
  document.getElementById("news")?.replaceChildren(make("button", { textContent: words, onclick: act }));
}

const silent = (again) => chip("The broker does not answer · try again", again);

// --- copying ----------------------------------------------------------------------------------

async function copyText(button) {
  const text = button.parentElement.firstChild.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.parentElement.firstElementChild);
  }
}

// --- keys -------------------------------------------------------------------------------------

const KEYS = [
  ["?", "this list"],
  ["/", "find an id"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["f", "only failures, on a task"],
  ["r", "read the page again"],
  ["Esc", "close"],
];

function help() {
  const dialog = makeDialog("Keys");
  const list = make("dl");
  const places = [...document.querySelectorAll("nav a[data-key]")].map((link) => [
    `g ${link.dataset.key}`,
    link.textContent,
  ]);
  for (const [key, words] of [...KEYS, ...places]) {
    const term = make("dt");
    term.append(make("kbd", { textContent: key }));
    list.append(term, make("dd", { textContent: words }));
  }
  const close = make("button", { textContent: "Close", onclick: () => dialog.close() });
  const box = make("div", { className: "keys" });
  box.append(make("h2", { textContent: "Keys" }), list, close);
  dialog.append(box);
  dialog.showModal();
}

function move(by) {
  const rows = [...document.querySelectorAll("main tbody tr, main .hop > summary, main .card")];
  if (!rows.length) return;
  row = Math.max(0, Math.min(rows.length - 1, row + by));
  for (const one of rows) one.classList.toggle("here", one === rows[row]);
  const target = rows[row].matches("summary") ? rows[row] : rows[row].querySelector("a[href]");
  (target || rows[row]).focus();
  rows[row].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea, [contenteditable]")) return;
  if (document.querySelector("dialog[open]")) return;
  const key = event.key;
  if (typed === "g") {
    typed = "";
    const link = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
    if (link) return go(link.href);
  }
  const acts = {
    "?": help,
    "/": () => document.getElementById("q")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    f: () => document.querySelector("#hops .tools a")?.click(),
    r: () => go(location.href, { push: false, keep: true }),
    g: () => (typed = "g"),
  };
  if (!(key in acts)) return;
  event.preventDefault();
  acts[key]();
});

// --- arriving ---------------------------------------------------------------------------------

/** Readies what was just shown: copy buttons, and the watch for news. */
function arrive(within) {
  for (const block of (within || document).querySelectorAll("pre[data-copy]:not(:has(.copy))")) {
    const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
    block.replaceChildren(make("span", { textContent: block.textContent }), button);
  }
  for (const form of (within || document).querySelectorAll("form.ask")) refill(form);
  const more = (within || document).querySelector("form[data-continue]");
  if (more) setTimeout(() => more.isConnected && more.requestSubmit(), 400);
  if (within) return;
  row = -1;
  watch();
}

arrive();
