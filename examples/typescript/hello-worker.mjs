// An agent that counts words: it waits for handoffs, and answers each with a result.
import { Worker } from "handoffd";
import { localClient } from "handoffd/local";

const counter = await localClient().enroll("counter"); // 127.0.0.1:8080, with the key in ./handoffd-data

console.log("counter waits for handoffs");
await new Worker(counter, (job) => {
  console.log(`counter: ${job.task}`);
  return { words: String(job.state.text).split(" ").length };
}).runUntilSignal();
