// Run by scripts/console-browser/run: `node main.mjs PART`.
import { World, faultCount } from "./world.mjs";
import { screens } from "./screens.mjs";
import { tasks } from "./tasks.mjs";
import { hostile } from "./hostile.mjs";
import { changes } from "./changes.mjs";

const PARTS = {
  tasks: [[tasks, true], [tasks, false]],
  plain: [[tasks, false]],
  screens: [[screens, "all"]],
  hostile: [[hostile]],
  changes: [[changes]],
  ci: [[tasks, true], [screens, "ci"]],
};
PARTS.all = [...PARTS.tasks, ...PARTS.screens, ...PARTS.hostile, ...PARTS.changes];

const part = process.argv[2];
if (!PARTS[part]) {
  console.error(`no part ${part}: ${Object.keys(PARTS).join(", ")}`);
  process.exit(2);
}
for (const [play, how] of PARTS[part]) {
  const world = await World.start();
  const began = Date.now();
  try {
    await play(world, how);
  } finally {
    await world.end();
  }
  console.log(`${play.name}${how === undefined ? "" : ` (${how})`}: ${((Date.now() - began) / 1000).toFixed(0)} s`);
}
console.log(faultCount() ? `${faultCount()} faults` : "no fault");
process.exit(faultCount() ? 1 : 0);
