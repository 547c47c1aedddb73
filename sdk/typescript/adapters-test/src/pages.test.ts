// The programs of docs/sdk/typescript.md as they stand there, each in a process of its own; a scripted model stands for OpenAI's.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { type Broker, startBroker } from "./broker.js";

const repository = new URL("../../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, repository), "utf8");
const page = read("docs/sdk/typescript.md");
const folder = new URL("page/", import.meta.url);
mkdirSync(folder, { recursive: true });
const MODEL = 'import { openai } from "@ai-sdk/openai";';

let broker: Broker;
const children: ChildProcess[] = [];
beforeEach(async () => {
  broker = await startBroker();
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await broker.stop();
});

/** Starts a program with these variables beside the present ones; a scripted model stands for OpenAI's. */
function started(
  name: string,
  program: string,
  variables: Record<string, string>,
): ChildProcess & { said: () => string } {
  const file = new URL(name, folder);
  writeFileSync(file, program.replace(MODEL, 'import { openai } from "../page-model.js";'));
  const child = spawn(process.execPath, [fileURLToPath(file)], {
    env: { ...process.env, ...variables },
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  return Object.assign(child, { said: () => text });
}

/** The two programs of a framework's section. */
function programsOf(framework: string): [string, string] {
  const section = page.split("\n## ").find((each) => each.startsWith(`${framework}\n`)) ?? "";
  const programs = [...section.matchAll(/```js\n(.*?)```/gs)].map(([, program = ""]) => program);
  const [sending, working, ...more] = programs.filter((program) => program.startsWith(MODEL));
  assert.ok(sending && working && more.length === 0);
  return [sending, working];
}

describe("the page of the TypeScript SDK", () => {
  for (const framework of ["AI SDK", "Mastra"]) {
    it(`shows two programs with ${framework} that work together`, async () => {
      const [sending, working] = programsOf(framework);
      const start = async (
        role: "legal" | "intake",
        program: string,
      ): Promise<ReturnType<typeof started>> => {
        await broker.admin.enroll(role, role === "legal" ? {} : { handoffTargets: ["legal"] });
        const { apiKey } = await broker.admin.keys.create({ role: "agent", agentId: role });
        const own = { HANDOFFD_URL: broker.url, HANDOFFD_API_KEY: apiKey ?? "", PAGE_ROLE: role };
        return started(`${framework.replace(" ", "-")}-${role}.mjs`, program, own);
      };
      const worker = await start("legal", working);
      const sender = await start("intake", sending);
      assert.deepEqual(await once(sender, "close"), [0, null]);
      assert.match(sender.said(), /Legal says: .*low risk/s);
      worker.kill("SIGTERM");
      assert.deepEqual(await once(worker, "close"), [0, null]);
    });
  }

  it("counts the lines of the programs that there are", async () => {
    const lines = read("docs/sdk/lines.md");
    const count = (program: string): number => program.split("\n").filter((line) => line.trim()).length;
    for (const [framework, name] of [
      ["AI SDK", "ai-sdk"],
      ["Mastra", "mastra"],
    ] as const) {
      const alone = read(`examples/typescript/alone/${name}.mjs`);
      const counted = [...programsOf(framework), alone].map(count).join(" | ");
      assert.ok(
        lines.includes(`| [${framework}](typescript.md#${name}) | ${counted} |`),
        `${framework} ${counted}`,
      );
      const child = started(`${name}-alone.mjs`, alone, { PAGE_ROLE: "legal" });
      assert.deepEqual(await once(child, "close"), [0, null]);
      assert.equal(child.said(), "low risk\n");
    }
  });
});
