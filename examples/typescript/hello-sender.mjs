// An agent that hands a task to `counter`, in another process, and prints what came of it.
import { localClient } from "handoffd/local";

const author = await localClient().enroll("author", { handoffTargets: ["counter"] });

const task = { task: "Count the words", state: { text: "hand me off with proof" } };
const done = await author.handOffAndWait("counter", task, { withinMs: 60_000 });
console.log(done.status, done.result);
