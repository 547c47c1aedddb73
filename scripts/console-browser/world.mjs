// The broker of the demo, and browsers of its visitors.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createRequire } from "node:module";

const { BROKER, CHROMIUM, TOOLS, ASSETS } = process.env;
const load = createRequire(`${TOOLS}/package.json`);
const { chromium } = load("playwright-core");
export const axe = fs.readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");

let faults = 0;
export function fault(words) {
  faults += 1;
  console.error(`FAULT ${words}`);
}
export const faultCount = () => faults;

/** A broker on a store of its own, with the made-up past. */
export class World {
  static async start() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "handoffd-console-"));
    const world = new World();
    Object.assign(world, { folder, store: path.join(folder, "store") });
    await world.run(["demo", "--console", "--keep", world.store], {}, fs.openSync(`${folder}/story.log`, "w"));
    world.key = fs.readFileSync(`${world.store}/admin.key`, "utf8").trim();
    world.browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    });
    return world;
  }

  /** Runs the broker until it says where its console is. */
  async run(args, env, out) {
    this.child = spawn(BROKER, args, { env: { ...process.env, ...env }, stdio: ["ignore", out ?? "ignore", "pipe"] });
    let words = "";
    this.base = await new Promise((resolve, reject) => {
      this.child.once("exit", (code) => reject(new Error(`the broker ended with ${code}: ${words}`)));
      this.child.stderr.on("data", (piece) => {
        words += piece;
        const place = /the console is at (http:\/\/[^/\s]+)\/console/.exec(words);
        if (place) resolve(place[1]);
      });
    });
  }

  /** Ends the broker in order. */
  async halt() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGTERM");
    return ended;
  }

  /** Serves the same store at the same address. */
  async restart() {
    await this.run(["serve"], {
      HANDOFFD_LISTEN: this.base.replace("http://", ""), HANDOFFD_DATA_DIR: this.store,
      HANDOFFD_EGRESS_ALLOW: "127.0.0.0/8", HANDOFFD_LOG__FILTER: "error",
    });
  }

  async end() {
    await this.browser.close();
    if (this.child.exitCode === null) await this.halt();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  async ask(method, where, body, key = this.key) {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(this.base + where, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    return { status: answer.status, body: text ? JSON.parse(text) : null };
  }

  async api(method, where, body, key) {
    const { status, body: document } = await this.ask(method, where, body, key);
    assert.ok(status < 300, `${method} ${where}: ${status} ${JSON.stringify(document)}`);
    return document;
  }

  async first(where) {
    return (await this.api("GET", where)).items[0];
  }

  /** A key of a role, or of an agent. */
  async keyOf(role, agentId) {
    return (await this.api("POST", "/keys", { role, agentId, label: "browser test" })).apiKey;
  }

  /** A page of a visitor who logged in. */
  async visitor(options = {}, key = this.key) {
    const context = await this.browser.newContext({ acceptDownloads: true, ...options });
    // While one works at the style: its files from the source tree.
    if (ASSETS) {
      await context.route("**/console/assets/*", (route) => {
        const kind = route.request().url().split(".").pop();
        const type = { css: "text/css", js: "text/javascript" }[kind];
        route.fulfill({ contentType: type, body: fs.readFileSync(`${ASSETS}/console.${kind}`, "utf8") });
      });
    }
    const page = await context.newPage();
    page.setDefaultTimeout(Number(process.env.PATIENCE ?? 60_000));
    page.on("pageerror", (error) => fault(`script error at ${page.url()}: ${error.message}`));
    page.on("dialog", (dialog) => {
      fault(`a dialog at ${page.url()}: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(this.base) && !/^(data|blob|about):/.test(url)) fault(`a request to ${url} from ${page.url()}`);
    });
    // One login serves many visitors: logins are limited for each minute.
    this.cookies ??= new Map();
    await context.addCookies(this.cookies.get(key) ?? []);
    await page.goto(`${this.base}/console`);
    if (page.url().includes("/console/login")) await this.logIn(page, key);
    this.cookies.set(key, await context.cookies());
    return page;
  }

  async logIn(page, key = this.key) {
    if (!page.url().includes("/console/login")) await page.goto(`${this.base}/console/login`);
    await page.fill("#key", key);
    await Promise.all([page.waitForURL((url) => !url.pathname.endsWith("/login")), page.click("button")]);
  }

  /** The addresses of all screens: the links of each page, two of each kind. */
  async screens(page, most = 2, visit = (where) => page.goto(this.base + where)) {
    const shape = (url) => url.pathname.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|[^/]{30,}/g, "*")
      .replace(/^(\/console\/(?:receivers|contracts|subscriptions|tasks|handoffs|decisions|dead-letters))\/.+/, "$1/*");
    const counts = new Map();
    const queue = [`${this.base}/console`];
    const all = [];
    const listed = new Set(queue);
    while (queue.length) {
      const at = queue.shift();
      all.push(at.slice(this.base.length));
      await visit(at.slice(this.base.length));
      for (const href of await page.$$eval("a[href]", (links) => links.map((link) => link.href))) {
        const url = new URL(href);
        url.hash = "";
        const kind = shape(url);
        const skip = !url.href.startsWith(`${this.base}/console`) || url.search.includes("format=json") ||
          url.pathname.endsWith("/bundle") || listed.has(url.href);
        if (skip || (counts.get(kind) ?? 0) >= (kind.includes("/do/") ? 1 : most)) continue;
        counts.set(kind, (counts.get(kind) ?? 0) + 1);
        listed.add(url.href);
        queue.push(url.href);
      }
    }
    return all;
  }
}

const uuid = () => crypto.randomUUID();

/** A message between two agents of the demo, with changes. */
export function message(from, to, changes = {}) {
  return {
    schemaVersion: "2.2", handoffId: uuid(), taskId: uuid(), parentHandoffId: null,
    fromAgent: { agentId: from, agentVersion: "1.4.0", executionId: uuid() },
    toAgent: { agentId: to }, timestamp: new Date().toISOString(), taskDescription: "Look at the claim",
    completedSubtasks: [{ subtaskId: "s1", description: "Read it", result: { ok: true }, completedAt: new Date().toISOString() }],
    remainingSubtasks: [{ subtaskId: "s2", description: "Look at it" }],
    currentState: { intent: "claim", claimNumber: "C-2026-41999" }, relevantContext: [], constraints: [],
    costTracking: { costSpentSoFarUSD: 0.01, costBudgetRemainingUSD: 0.2, tokenSpent: { prompt: 100, completion: 10 } },
    conversationHistorySummary: "A claim.", conversationHistoryVerbatim: [], toolCallHistory: [],
    traceparent: `00-${uuid().replaceAll("-", "")}-00f067aa0ba902b7-01`, ...changes,
  };
}

/** Submits a message in the name of an agent. */
World.prototype.submit = async function submit(from, to, changes) {
  this.agentKeys ??= new Map();
  if (!this.agentKeys.has(from)) this.agentKeys.set(from, await this.keyOf("agent", from));
  return this.ask("POST", "/handoffs", message(from, to, changes), this.agentKeys.get(from));
};
