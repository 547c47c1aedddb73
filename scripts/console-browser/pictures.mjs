// Run by scripts/console-browser/pictures: `node pictures.mjs FOLDER GALLERY`.
import fs from "node:fs";
import { World } from "./world.mjs";

const [folder, gallery] = process.argv.slice(2);
const WIDTHS = [[1280, 800], [390, 844]];
/** A longer page is cut there, in multiples of the window. */
const LONGEST = 1.6;

const world = await World.start();
const first = async (path, holds = () => true) => (await world.api("GET", path)).items.find(holds);
const task = await first("/handoffs?status=REJECTED&fromAgent=claims-triage&toAgent=damage-assessment");
const stuck = await first("/handoffs?status=REJECTED&toAgent=payout");
const letter = await first("/dead-letters?status=OPEN&fromAgent=claims-triage");
const decision = await first("/escalations?status=OPEN", (one) => one.reason === "HUMAN_TARGET");
const tried = await first("/handoffs?toAgent=fraud-check&limit=100", (one) => one.attempts > 1);
const subscription = await first("/subscriptions");

/** Name, words, address, and what is done before the picture. */
const SCREENS = [
  ["login", "Log in", "/login"],
  ["attention", "Needs attention", ""],
  ["tasks", "Tasks", "/tasks"],
  ["task", "A task", `/tasks/${task.taskId}`],
  ["task-waits", "A task that waits", `/tasks/${stuck.taskId}`],
  ["handoff", "A handoff with attempts", `/handoffs/${tried.handoffId}`],
  ["dead-letters", "Dead letters", "/dead-letters"],
  ["dead-letter", "A dead letter", `/dead-letters/${letter.handoffId}`],
  ["decisions", "Decisions", "/decisions"],
  ["decision", "A decision", `/decisions/${decision.escalationId}`],
  ["receivers", "Receivers", "/receivers"],
  ["receiver", "A receiver", "/receivers/translation"],
  ["refusals", "Refusals", "/refusals"],
  ["costs", "Costs", "/costs"],
  ["edges", "Edges and contracts", "/edges"],
  ["contract", "A contract", "/contracts/intake-to-triage"],
  ["evidence", "Evidence", "/evidence"],
  ["subscriptions", "Subscriptions", "/subscriptions"],
  ["subscription", "A subscription", `/subscriptions/${subscription.subscriptionId}`],
  ["keys", "Keys", "/keys"],
  ["sessions", "Sessions", "/sessions"],
  ["action", "An action asks", `/tasks/${stuck.taskId}`, (page) => page.getByRole("link", { name: "Cancel task…" }).first().click()],
  ["bulk", "An action by filter", "/do/discard-many?rule=SAFETY_VIOLATION&source=claims-triage"],
  ["empty", "An empty list", "/dead-letters?fromAgent=no-one"],
  ["unknown", "An unknown id", "/tasks/0b5ac7a1-0000-4000-8000-000000000000"],
];

/** While one works at a screen: its name alone. */
const only = process.env.ONLY?.split(",");
const wanted = SCREENS.filter(([name]) => !only || only.includes(name));

for (const [width, height] of WIDTHS) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await world.visitor({ viewport: { width, height }, colorScheme, deviceScaleFactor: 1, reducedMotion: "reduce" });
    for (const [name, , path, act] of wanted) {
      if (path === "/login") await page.context().clearCookies();
      await page.goto(`${world.base}/console${path}`);
      if (path === "/login") {
        await page.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png` });
        await world.logIn(page);
        continue;
      }
      if (act) {
        await act(page);
        await page.locator("dialog form.ask").waitFor();
      }
      const long = await page.evaluate(() => document.documentElement.scrollHeight);
      const cut = act ? height : Math.min(long, Math.round(height * LONGEST));
      await page.setViewportSize({ width, height: Math.max(height, cut) });
      await page.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png` });
      await page.setViewportSize({ width, height });
    }
    await page.context().close();
  }
}
await world.end();

const lines = ["# Pictures of the console", "", "Made by `scripts/console-browser/pictures` of `handoffd demo --console`, whose past is made up.", ""];
for (const [name, words] of SCREENS) {
  lines.push(`## ${words}`, "");
  for (const [width] of WIDTHS) {
    const one = (theme) => `![${words}, ${width} wide, ${theme}](${name}-${width}-${theme}.png)`;
    lines.push(`${one("light")} ${one("dark")}`, "");
  }
}
fs.writeFileSync(gallery, `${lines.join("\n").trimEnd()}\n`);
