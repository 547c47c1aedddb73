// axe, the width and the weight of each screen, each action's form, empty states and errors.
import { axe, fault } from "./world.mjs";

/** Bytes of a page with its style and module, as they are. */
const HEAVIEST = 100 * 1024;

const EMPTY = [
  "/tasks?status=CANCELED&from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z", "/dead-letters?fromAgent=no-one", "/decisions?status=TIMED_OUT",
  "/refusals?fromAgent=no-one", "/costs?from=2020-01-01&to=2020-01-02", "/edges?source=no-one", "/handoffs?toAgent=no-one",
  "?agentId=no-one", "?kind=no-such-kind",
];
const ERRORS = [
  "/tasks/unknown", "/tasks/0b5ac7a1-0000-4000-8000-000000000000", "/handoffs/unknown", "/dead-letters/unknown", "/decisions/unknown",
  "/receivers/unknown", "/contracts/unknown", "/subscriptions/unknown", "/nothing/here", "/search?q=nothing",
  "/costs?from=yesterday", "/do/unknown",
];

const LOOKS = {
  all: [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]],
  ci: [[1280, "light"]],
};

/** Opens a page once, and looks at it in each width and theme. */
async function judge(page, where, looks = LOOKS.ci) {
  const response = await page.goto(where);
  for (const [width, colorScheme] of looks) {
    await page.setViewportSize({ width, height: 900 });
    // Without transitions: a colour half way has another contrast.
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    const at = `${new URL(where).pathname}${new URL(where).search} ${width} ${colorScheme}`;
    const found = await page.evaluate(`${axe};axe.run(document, { resultTypes: ["violations"] })`);
    for (const violation of found.violations) fault(`${at}: ${violation.id} at ${violation.nodes[0].target}: ${violation.nodes[0].failureSummary}`);
    await narrow(page, at);
  }
  await page.setViewportSize({ width: 320, height: 900 });
  await narrow(page, `${where} 320`);
  return { status: response.status(), bytes: (await response.body()).length };
}

async function narrow(page, at) {
  const over = await page.evaluate(() => {
    if (document.documentElement.scrollWidth <= innerWidth) return "";
    const wide = [...document.querySelectorAll("main *, header *")].find((one) => one.getBoundingClientRect().right > innerWidth + 1);
    return wide ? wide.outerHTML.slice(0, 160) : "the page";
  });
  if (over) fault(`${at}: wider than the window: ${over}`);
}

export async function screens(world, how) {
  const page = await world.visitor({ viewport: { width: 1280, height: 900 } });
  const weights = new Map();
  const look = async (where) => {
    const { bytes } = await judge(page, world.base + where, LOOKS[how]);
    weights.set(where, bytes);
  };
  const listed = await world.screens(page, how === "all" ? 2 : 1, look);
  for (const where of [...EMPTY, ...ERRORS]) await look(`/console${where}`);
  const forms = listed.filter((one) => one.includes("/console/do/")).length;
  await opened(page, world);
  await strangers(world);
  const size = async (name) => {
    const url = await page.getAttribute(`[${name}*="/console/assets/"]`, name);
    return (await (await page.request.get(world.base + url)).body()).length;
  };
  await page.goto(`${world.base}/console`);
  const [css, js] = [await size("href"), await size("src")];
  const [heaviest, bytes] = [...weights].sort((a, b) => b[1] - a[1])[0];
  if (bytes + css + js > HEAVIEST) fault(`${heaviest}: ${bytes + css + js} bytes`);
  console.log(
    `${weights.size} screens, of them ${forms} forms of actions, ${EMPTY.length} empty, ${ERRORS.length} errors, in ${LOOKS[how].length} looks and 320 wide; ` +
    `heaviest: ${heaviest}: ${bytes} bytes + ${css} of style + ${js} of script = ${bytes + css + js}`);
  await page.context().close();
}

/** What opens within a page: details, the dialog of an action, the list of keys. */
async function opened(page, world) {
  await page.setViewportSize({ width: 1280, height: 900 });
  const task = await world.first("/tasks?status=PENDING_HANDOFF");
  await page.goto(`${world.base}/console/tasks/${task.taskId}`);
  for (const part of await page.locator("details > summary").all()) await part.click();
  const look = async (words) => {
    const found = await page.evaluate(`${axe};axe.run(document, { resultTypes: ["violations"] })`);
    for (const violation of found.violations) fault(`${words}: ${violation.id} at ${violation.nodes[0].target}`);
  };
  await look("an open task");
  await page.getByRole("link", { name: "Cancel task…" }).first().click();
  await page.locator("dialog form.ask").waitFor();
  await look("the dialog of an action");
  await page.keyboard.press("Escape");
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await page.locator("dialog .keys").waitFor();
  await look("the list of keys");
  await page.keyboard.press("Escape");
}

/** Pages of those who may not, or who are not logged in. */
async function strangers(world) {
  const auditor = await world.visitor({ viewport: { width: 390, height: 800 } }, await world.keyOf("auditor"));
  for (const place of ["/keys", "/sessions", "/do/cancel-task?of=x"]) {
    const { status } = await judge(auditor, `${world.base}/console${place}`);
    if (status !== 403) fault(`${place} of an auditor: ${status}`);
  }
  const home = await judge(auditor, `${world.base}/console`);
  if (home.status !== 200 || await auditor.locator("a[data-ask]").count()) fault("an auditor is offered an action");
  await auditor.context().clearCookies();
  await judge(auditor, `${world.base}/console/tasks?status=RUNNING`);
  if (!auditor.url().includes("/console/login?next=")) fault(`without a session: ${auditor.url()}`);
  await auditor.fill("#key", "hk_not_a_key_of_this_broker_at_all");
  await auditor.click("button");
  await auditor.locator(".flash.bad").waitFor();
  const found = await auditor.evaluate(`${axe};axe.run(document, { resultTypes: ["violations"] })`);
  for (const violation of found.violations) fault(`a refused login: ${violation.id}`);
  await auditor.context().close();
}
