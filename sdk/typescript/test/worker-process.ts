// A worker in a process of its own, which the tests kill. Each start of work is a line in the file.

import { appendFileSync } from "node:fs";
import { Client, Reject, Worker } from "../src/index.js";

const journal = process.argv[2] ?? "";
const worker = new Worker(
  new Client(),
  async (job) => {
    const from = Number((await job.restore())?.step ?? 0);
    appendFileSync(journal, `${job.handoffId} from ${from} attempt ${job.attempt}\n`);
    for (let step = from + 1; step <= 4; step++) {
      if (job.message.reason === "stall" && step === 3 && from === 0)
        await new Promise(() => setInterval(() => 0, 1000));
      await job.save({ step });
      appendFileSync(journal, `${job.handoffId} step ${step}\n`);
    }
    return { steps: 4, from };
  },
  {
    heartbeatMs: 250,
    pollSeconds: 1,
    decide: (job) => {
      if (job.message.reason === "refuse") throw new Reject("NOT_MINE", { why: "asked to" });
    },
    onEvent: (event) =>
      console.log(JSON.stringify({ ...event, error: "error" in event ? String(event.error) : undefined })),
  },
);
await worker.runUntilSignal();
console.log('{"type":"stopped"}');
