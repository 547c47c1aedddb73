// Milliseconds from a click to a usable page: parsed, styled, and its module run. Reads { address, key, places, rounds } as JSON from
// standard input, and writes the medians by name.
import fs from "node:fs";
import { createRequire } from "node:module";

const { CHROMIUM, TOOLS } = process.env;
const { chromium } = createRequire(`${TOOLS}/package.json`)("playwright-core");
const { address, key, places, rounds } = JSON.parse(fs.readFileSync(0, "utf8"));

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
page.setDefaultTimeout(600_000);
await page.goto(`http://${address}/console/login`);
await page.fill("#key", key);
await Promise.all([page.waitForURL((url) => !url.pathname.endsWith("/login")), page.click("button")]);

const times = new Map(Object.keys(places).map((name) => [name, []]));
for (let turn = 0; turn <= rounds; turn++) {
  for (const [name, place] of Object.entries(places)) {
    await page.goto(`http://${address}${place}`, { waitUntil: "domcontentloaded" });
    const usable = await page.evaluate(() => performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd);
    if (turn) times.get(name).push(usable);
  }
}
await browser.close();
const median = (all) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)];
console.log(JSON.stringify(Object.fromEntries([...times].map(([name, all]) => [name, median(all)]))));
