// What changes under a page: back, another tab, an ended session, a restart, and live updates.
import assert from "node:assert/strict";
import { fault } from "./world.mjs";

const WATCH = () => {
  window.shifts = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
};

export async function changes(world) {
  for (const [name, play] of [
    ["back", back], ["two tabs", tabs], ["an ended session", expiry], ["live updates", live], ["a restart", restart],
  ]) {
    try {
      await play(world);
      console.log(`${name}: as it should be`);
    } catch (error) {
      fault(`${name}: ${error.message}`);
    }
  }
}

async function back(world) {
  const page = await world.visitor();
  await page.goto(`${world.base}/console`);
  await page.locator("header nav").getByRole("link", { name: "Tasks", exact: true }).click();
  await page.waitForURL("**/console/tasks");
  await page.selectOption("form.filters [name=status]", "COMPLETED");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForURL("**/console/tasks?status=COMPLETED");
  await page.locator("#tasks tbody tr a").first().click();
  await page.waitForURL(/\/console\/tasks\/[0-9a-f-]{36}/);
  await page.goBack();
  await page.waitForURL("**/console/tasks?status=COMPLETED");
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Tasks");
  assert.equal(await page.inputValue("form.filters [name=status]"), "COMPLETED", "the filter is as it was");
  await page.goBack();
  await page.waitForURL("**/console/tasks");
  await page.waitForFunction(() => document.querySelector("form.filters [name=status]")?.value === "");
  await page.goBack();
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Needs attention");
  await page.goForward();
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Tasks");
  await page.context().close();
}

/** Both tabs ask to cancel one task; the second is told that it was done. */
async function tabs(world) {
  const first = await world.visitor();
  const second = await first.context().newPage();
  const task = await world.first("/tasks?status=PENDING_HANDOFF");
  for (const page of [first, second]) {
    await page.goto(`${world.base}/console/tasks/${task.taskId}`);
    await page.getByRole("link", { name: "Cancel task…" }).first().click();
    await page.locator("dialog [name=reason]").fill("two of us");
  }
  const submit = (page) => page.locator("dialog").getByRole("button", { name: "Cancel task", exact: true }).click();
  await submit(first);
  await first.locator(".flash.good").waitFor();
  await submit(second);
  const words = await second.locator(".flash").first().textContent();
  assert.ok(words.length > 10, words);
  assert.equal((await world.api("GET", `/tasks/${task.taskId}`)).status, "CANCELED");
  await first.context().close();
}

/** The session ends while somebody types: the words are there again, or the page says that nothing was sent. */
async function expiry(world) {
  for (const javaScriptEnabled of [true, false]) {
    const page = await world.visitor({ javaScriptEnabled });
    const task = await world.first("/tasks?status=RUNNING");
    const words = `Typed ${javaScriptEnabled ? "with" : "without"} scripts`;
    const open = async () => {
      await page.goto(`${world.base}/console/tasks/${task.taskId}`);
      await page.getByRole("link", { name: "Top up…" }).first().click();
    };
    await open();
    await page.locator("form.ask [name=addUSD]").fill("1.5");
    await page.locator("form.ask [name=reason]").fill(words);
    for (const session of (await world.api("GET", "/sessions")).items) {
      if (!session.endedAt) await world.ask("DELETE", `/sessions/${session.sessionId}`);
    }
    await page.locator("form.ask").getByRole("button", { name: "Top up", exact: true }).click();
    await page.waitForURL(/\/console\/login/);
    assert.match(await page.locator(".flash").textContent(), /nothing of the form was sent/);
    await page.fill("#key", world.key);
    await page.click("button");
    await page.waitForURL((url) => !url.pathname.endsWith("/login"));
    if (javaScriptEnabled) {
      assert.ok(page.url().includes(`/tasks/${task.taskId}`), page.url());
      await open();
      await page.locator("form.ask .flash").waitFor();
      assert.equal(await page.inputValue("form.ask [name=reason]"), words);
      assert.equal(await page.inputValue("form.ask [name=addUSD]"), "1.5");
    }
    await page.context().close();
  }
}

/** An event behind a page: an offer to show it, and nothing moves. */
async function live(world) {
  const task = await world.first("/tasks?status=PENDING_HANDOFF");
  for (const place of ["/console", "/console/tasks", "/console/receivers", "/console/receivers/fraud-check", "/console/dead-letters"]) {
    const page = await world.visitor({ viewport: { width: 1280, height: 900 } });
    await page.addInitScript(WATCH);
    await page.goto(world.base + place);
    await page.waitForTimeout(500);
    await world.submit("claims-triage", "fraud-check");
    await page.locator("#news button").waitFor();
    await page.waitForTimeout(500);
    const shifts = await page.evaluate(() => window.shifts);
    if (shifts) fault(`${place}: the layout shifts by ${shifts} at a live update`);
    await page.locator("#news button").click();
    await page.locator("#news button").waitFor({ state: "detached" });
    await page.waitForTimeout(300);
    const after = await page.evaluate(() => window.shifts);
    if (after) fault(`${place}: the layout shifts by ${after} when the news are shown`);
    await page.context().close();
  }
  assert.ok(task);
}

/** The broker stops under an open page, and starts again at its address. */
async function restart(world) {
  const page = await world.visitor();
  const task = await world.first("/tasks?status=RUNNING");
  await page.goto(`${world.base}/console/tasks/${task.taskId}`);
  await page.getByRole("link", { name: "Top up…" }).first().click();
  await page.locator("dialog [name=addUSD]").fill("1");
  await page.locator("dialog [name=reason]").fill("typed before the restart");
  await world.halt();
  const submit = () => page.locator("dialog").getByRole("button", { name: "Top up", exact: true }).click();
  await submit();
  assert.match(await page.locator("dialog .flash.bad").textContent(), /does not answer/);
  assert.equal(await page.inputValue("dialog [name=reason]"), "typed before the restart");
  await world.restart();
  await submit();
  await page.locator(".flash.good", { hasText: "topped up" }).waitFor();
  await page.goto(`${world.base}/console`);
  await world.halt();
  await page.locator("header nav").getByRole("link", { name: "Tasks", exact: true }).click();
  await page.locator("#news button", { hasText: "does not answer" }).waitFor();
  await world.restart();
  await page.locator("#news button").click();
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Tasks");
  await page.context().close();
}
