// Run by scripts/console-browser/run.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const { BASE, KEY_FILE, CHROMIUM, TOOLS } = process.env;
const load = createRequire(`${TOOLS}/package.json`);
const { chromium } = load("playwright-core");
const axe = fs.readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");
const key = fs.readFileSync(KEY_FILE, "utf8").trim();

async function api(method, path, body) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(BASE + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
}

const first = async (path) => (await api("GET", path)).items[0];
const letter = await first("/dead-letters?status=OPEN");
const task = await first("/tasks?status=PENDING_HANDOFF");
const handoff = await first("/handoffs");
const agent = await first("/agents");

const SCREENS = [
  "", "/tasks", `/tasks/${task.taskId}`, "/handoffs", `/handoffs/${handoff.handoffId}`, "/dead-letters",
  `/dead-letters/${letter.handoffId}`, "/decisions", "/receivers", `/receivers/${agent.agentId}`, "/refusals", "/costs",
  "/edges", "/evidence", "/keys", "/sessions", "/subscriptions", "/tasks/unknown", `/do/cancel-task?of=${task.taskId}`,
];

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
let faults = 0;

/** A page of a visitor who logged in. */
async function visitor(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("pageerror", (error) => {
    faults += 1;
    console.error(`script error at ${page.url()}: ${error.message}`);
  });
  await page.goto(`${BASE}/console/login`);
  await page.fill("#key", key);
  await page.click("button");
  await page.waitForURL(`${BASE}/console`);
  return page;
}

async function judge() {
  for (const [width, colorScheme] of [[1280, "light"], [1280, "dark"], [390, "light"], [320, "dark"]]) {
    const page = await visitor({ viewport: { width, height: 800 }, colorScheme });
    for (const screen of SCREENS) {
      await page.goto(`${BASE}/console${screen}`);
      const found = await page.evaluate(`${axe};axe.run(document)`);
      for (const violation of found.violations) {
        faults += 1;
        console.error(`${screen} ${width} ${colorScheme}: ${violation.id} at ${violation.nodes[0].target}`);
      }
      if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) {
        faults += 1;
        console.error(`${screen} ${width}: wider than the window`);
      }
    }
    await page.context().close();
  }
}

/** Three of an operator's tasks. A dialog or a page asks, with or without JavaScript. */
async function operate(javaScriptEnabled) {
  const page = await visitor({ javaScriptEnabled });
  const submit = (label) => page.locator("form.ask").getByRole("button", { name: label, exact: true }).click();
  // Why is a task stuck?
  await page.fill("#q", task.taskId);
  await page.press("#q", "Enter");
  await page.waitForURL(`**/tasks/${task.taskId}`);
  assert.ok((await page.textContent("#why .sentence")).length > 20);
  // Pause a receiver with hold, and let it go on.
  for (const [button, state] of [["Pause and hold", "PAUSED"], ["Resume", "RUNNABLE"]]) {
    await page.goto(`${BASE}/console/receivers/${agent.agentId}`);
    await page.getByRole("link", { name: `${button}…` }).click();
    await submit(button);
    await page.waitForSelector(".flash.good");
    assert.equal((await api("GET", `/agents/${agent.agentId}`)).state, state);
  }
  // A dry run of a dead letter's release.
  await page.goto(`${BASE}/console/dead-letters/${letter.handoffId}`);
  await page.getByRole("link", { name: "Dry run…" }).click();
  await page.locator("form.ask input[name=reason]").fill("read it");
  await submit("Dry run");
  await page.waitForSelector(".flash.good");
  assert.equal((await first("/dead-letters?status=OPEN")).handoffId, letter.handoffId);
  await page.context().close();
}

try {
  await operate(true);
  await operate(false);
  await judge();
} finally {
  await browser.close();
}
console.log(faults ? `${faults} faults` : `${SCREENS.length} screens without a fault`);
process.exit(faults ? 1 : 0);
