// An operator's ten tasks, each from the first page of the console. A dialog or a page asks, with or without JavaScript.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";

/** A visitor whose clicks are counted. */
class Hand {
  constructor(page, base) {
    Object.assign(this, { page, base, clicks: 0, waits: 0 });
  }

  async home() {
    await this.page.goto(`${this.base}/console`);
    this.clicks = 0;
    this.waits = 0;
    this.began = Date.now();
  }

  async click(target) {
    const place = typeof target === "string" ? this.page.locator(target) : target;
    this.clicks += 1;
    await place.first().click();
  }

  menu(label) {
    return this.click(this.page.locator("header nav").getByRole("link", { name: label, exact: true }));
  }

  link(label, within = "main") {
    return this.click(this.page.locator(within).getByRole("link", { name: label }));
  }

  /** A button of the form that asks. */
  submit(label) {
    return this.click(this.page.locator("form.ask").getByRole("button", { name: label, exact: true }));
  }

  /** A field, which is typed into or chosen from. */
  field(name) {
    return this.page.locator(`form.ask [name=${name}]`).last();
  }

  heading(words) {
    return this.page.waitForFunction((words) => document.querySelector("h1")?.textContent.includes(words), words);
  }

  good(words) {
    return this.page.locator(".flash.good", { hasText: words }).first().waitFor();
  }
}

async function eventually(holds, words) {
  for (let left = 600; left; left -= 1) {
    if (await holds()) return;
    await new Promise((later) => setTimeout(later, 100));
  }
  assert.fail(words);
}

const TASKS = [
  ["Find a stuck task and say why", async ({ hand, page }) => {
    const sentence = await page.locator(".card", { hasText: "Tasks idle" }).first().locator("h2").textContent();
    await hand.click(page.locator(".card", { hasText: "Tasks idle" }).locator("h2 a"));
    await hand.heading("Task ");
    const why = await page.textContent("#why .sentence");
    assert.ok(why.length > 20, why);
    assert.ok(sentence.length > 10, sentence);
  }],
  ["Release a dead letter after a dry run", async ({ world, hand, page }) => {
    const letter = await world.first("/dead-letters?status=OPEN&fromAgent=claims-triage");
    await hand.menu("Dead letters");
    await hand.heading("Dead letters");
    await hand.click(`main a[href$="/dead-letters/${letter.handoffId}"]`);
    await hand.heading("→");
    await hand.link("Dry run…");
    await hand.field("reason").fill("The workshop quotes a training text");
    await hand.submit("Dry run");
    await hand.good("A dry run");
    assert.equal((await world.api("GET", `/dead-letters/${letter.handoffId}`)).status, "OPEN");
    await hand.submit("Release by filter");
    await eventually(
      async () => (await world.api("GET", `/dead-letters/${letter.handoffId}`)).status === "RELEASED", "not released");
  }],
  ["Bulk by rule: discard all of one sender", async ({ world, hand, page }) => {
    await hand.menu("Dead letters");
    await hand.heading("Dead letters");
    await hand.link("Discard by filter…");
    await hand.field("rule").fill("SAFETY_VIOLATION");
    await hand.field("source").fill("claims-triage");
    await hand.field("reason").fill("Forged reports");
    await hand.submit("Dry run");
    await hand.good("A dry run");
    assert.ok((await world.first("/dead-letters?status=OPEN&fromAgent=claims-triage")) !== undefined);
    await hand.submit("Discard by filter");
    await eventually(
      async () => (await world.first("/dead-letters?status=OPEN&fromAgent=claims-triage")) === undefined, "not discarded");
    assert.ok(await world.first("/dead-letters?status=OPEN"), "letters of other senders stay");
  }],
  ["Decide an escalation", async ({ world, hand, page }) => {
    const open = await world.first("/escalations?status=OPEN");
    await hand.menu("Decisions");
    await hand.heading("Decisions");
    await hand.click(`main a[href$="/decisions/${open.escalationId}"]`);
    await hand.heading("asks for a decision");
    await hand.field("action").selectOption("rollback");
    await hand.field("reason").fill("The amount is wrong");
    await hand.submit("Decide");
    await hand.good("The decision is recorded");
    assert.equal((await world.api("GET", `/escalations/${open.escalationId}`)).status, "RESOLVED");
  }],
  ["Pause an agent with hold and watch the drain", async ({ world, hand, page }) => {
    const agent = "document-archive";
    await hand.menu("Receivers");
    await hand.heading("Receivers");
    await hand.link("fraud-check");
    await hand.heading("fraud-check");
    await hand.link("Pause and hold…");
    await hand.submit("Pause and hold");
    await hand.good("The receiver is paused");
    assert.equal((await world.api("GET", "/agents/fraud-check")).state, "PAUSED", agent);
    const waiting = () => page.locator("#figures dd").first().textContent();
    const before = Number(await waiting());
    let taken;
    await eventually(async () => {
      taken = await world.submit("claims-triage", "fraud-check");
      return ![429, 503].includes(taken.status);
    }, "the broker stays busy");
    assert.equal(taken.status, 202, JSON.stringify(taken.body));
    // The dispatcher may look at it for a moment before it leaves it.
    await eventually(async () => {
      await page.reload();
      return Number(await waiting()) === before + 1;
    }, "the handoff is not held");
    await hand.link("Resume…");
    await hand.submit("Resume");
    await hand.good("at work again");
    await eventually(async () => {
      await page.reload();
      return Number(await waiting()) === 0;
    }, "what was held is not delivered");
  }],
  ["Add an edge and try its contract by what-if", async ({ world, hand, page }) => {
    await hand.menu("Edges and contracts");
    await hand.heading("Edges");
    await hand.link("Add edge…");
    await hand.field("agent").fill("fraud-check");
    await hand.field("target").fill("customer-letters");
    await hand.submit("Add edge");
    await hand.good("The edge is added");
    await hand.click("details#what-if > summary");
    const contract = {
      id: "fraud-to-letters", version: "1.0.0", source: "claims-triage", target: "damage-assessment",
      trigger: { intent: "claim" },
      payload: { schema: { type: "object", required: ["claimNumber", "photos"] } },
    };
    await page.locator("#what-if [name=document]").fill(JSON.stringify(contract));
    await hand.click(page.locator("#what-if").getByRole("button", { name: "Ask what-if" }));
    await page.getByText("Newly refused").or(page.getByText("newlyRefused")).first().waitFor();
    const { handoffTargets } = await world.api("GET", "/agents/fraud-check/handoff-targets");
    assert.ok(handoffTargets.includes("customer-letters"));
  }],
  ["Costs of yesterday by edge", async ({ hand, page }) => {
    const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
    await hand.menu("Costs");
    await hand.heading("Costs");
    await page.fill("form.filters [name=from]", day(1));
    await page.fill("form.filters [name=to]", day(0));
    await hand.click(page.getByRole("button", { name: "Apply" }));
    await page.waitForURL((url) => url.search.includes("from="));
    const days = await page.locator("#costs tbody tr td:first-child").allTextContents();
    assert.ok(days.length > 3 && days.every((one) => one.trim() === day(1)), days.join());
  }],
  ["All tasks of a user", async ({ world, hand, page }) => {
    await hand.menu("Tasks");
    await hand.heading("Tasks");
    await page.fill("form.person [name=userId]", "j.okafor@example.org");
    await hand.click(page.locator("form.person").getByRole("button", { name: "Find" }));
    await page.waitForURL((url) => url.search.includes("userRef="));
    assert.ok(!page.url().includes("okafor"));
    assert.ok((await page.locator("#tasks tbody tr").count()) > 1);
  }],
  ["Export and check a bundle", async ({ world, hand, page }) => {
    await hand.menu("Tasks");
    await hand.heading("Tasks");
    await hand.click("#tasks tbody tr:has-text('Completed') a");
    await hand.heading("Task ");
    const [download] = await Promise.all([page.waitForEvent("download"), hand.link("Download bundle")]);
    const file = `${world.folder}/bundle.json`;
    await download.saveAs(file);
    const out = execFileSync(process.env.BROKER, ["verify", file], { encoding: "utf8" });
    assert.match(out, /^ok/);
  }],
  ["Rotate a key and log out everywhere", async ({ world, hand, page }) => {
    await hand.menu("Keys");
    await hand.heading("Keys");
    await hand.link("Create key…");
    await hand.field("role").selectOption("operator");
    await hand.field("label").fill("on call, new");
    await hand.submit("Create key");
    await page.locator("#secrets pre, dialog pre").first().waitFor();
    const secret = (await page.locator("main, dialog").last().locator("pre").first().textContent()).trim();
    assert.equal((await world.ask("GET", "/agents", undefined, secret)).status, 200);
    await hand.page.keyboard.press("Escape");
    await hand.menu("Keys");
    await hand.heading("Keys");
    await hand.click(page.locator("#keys tbody tr", { has: page.getByText("on call", { exact: true }) }).getByRole("link", { name: "Revoke…" }));
    await hand.submit("Revoke");
    await hand.good("The key is revoked");
    await hand.menu("Sessions");
    await hand.heading("Sessions");
    await hand.click(page.getByRole("button", { name: "Log out everywhere" }));
    await page.waitForURL(/\/console\/login/);
    assert.equal((await world.api("GET", "/sessions")).items.filter((one) => !one.endedAt).length, 0);
  }],
];

/** Plays the ten tasks, and prints clicks and seconds of each. */
export async function tasks(world, javaScriptEnabled) {
  const page = await world.visitor({ javaScriptEnabled, viewport: { width: 1280, height: 900 } });
  const hand = new Hand(page, world.base);
  console.log(`\n| task (${javaScriptEnabled ? "with" : "without"} JavaScript) | clicks | seconds |\n|---|---|---|`);
  for (const [name, play] of TASKS) {
    await hand.home();
    try {
      await play({ world, hand, page });
    } catch (error) {
      console.error(`at ${page.url()}: ${await page.locator(".flash").allTextContents()}`);
      await page.screenshot({ path: `${process.env.TOOLS}/failed.png` });
      throw new Error(`${name}: ${error.message}`, { cause: error });
    }
    console.log(`| ${name} | ${hand.clicks} | ${((Date.now() - hand.began) / 1000).toFixed(1)} |`);
  }
  await page.context().close();
}
