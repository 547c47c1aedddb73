// Tasks, and events as they happen.

import { AnswerError } from "../errors.js";
import { type Answer, type Body, bodyParts, type CallOptions, sleep } from "../transport.js";
import type { HandoffEvent } from "../types.js";
import { pages, type Query_, Service, split } from "./service.js";

/** Under which handoff a worker saves. */
export interface CheckpointOptions extends CallOptions {
  /** The handoff on which the worker works, beside its token: a worker whose handoff another one took over saves nothing. */
  readonly handoffId?: string | undefined;
  /** The token by which the worker holds that handoff. */
  readonly fencingToken?: number | undefined;
}

/** The feed of events. */
export class Events extends Service {
  /** One page of the feed, oldest first; `wait` holds an empty answer for up to 60 s. */
  list(query: Query_<"listEvents"> = {}): Promise<Answer<"listEvents">> {
    const { query: parameters, ...options } = split(query);
    return this.transport.call("listEvents", { query: parameters, waitSeconds: query.wait ?? 0, ...options });
  }
  /** Events as they happen, without an end; pass a signal to stop. */
  async *follow(query: Query_<"listEvents"> = {}): AsyncGenerator<HandoffEvent, never> {
    let since = query.since;
    for (;;) {
      const page = await this.list({
        ...query,
        wait: query.wait ?? 30,
        ...(since === undefined ? {} : { since }),
      });
      yield* page.items;
      since = page.nextCursor;
    }
  }
}

/** Tasks: what the handoffs are about. */
export class Tasks extends Service {
  /** One page of tasks, the newest first. */
  list(query: Query_<"listTasks"> = {}): Promise<Answer<"listTasks">> {
    return this.transport.call("listTasks", split(query));
  }
  /** All tasks that fit, page by page. */
  iterate(query: Query_<"listTasks"> = {}): AsyncGenerator<Answer<"listTasks">["items"][number], void> {
    return pages((cursor) => this.list({ ...query, ...(cursor === undefined ? {} : { cursor }) }));
  }
  /** One task: its state, its holder, its budget. */
  get(taskId: string, options?: CallOptions): Promise<Answer<"getTask">> {
    return this.transport.call("getTask", { path: { taskId }, ...options });
  }
  /** All that happened on a task, with its cost and the verification of its records. */
  async trace(taskId: string, query: Omit<Query_<"getTrace">, "format"> = {}): Promise<Answer<"getTrace">> {
    return this.transport.call("getTrace", { path: { taskId }, ...split(query) });
  }
  /** The regulator's bundle of a task, a zip that `handoffd verify` checks offline. */
  async bundle(taskId: string, query: Omit<Query_<"getTrace">, "format"> = {}): Promise<Uint8Array> {
    const { query: parameters, ...options } = split(query);
    const request = {
      path: { taskId },
      query: { ...parameters, format: "bundle" },
      accept: "application/zip",
      ...options,
    };
    return (await this.transport.send("getTrace", request)).bytes;
  }
  /** The cost of a task, hop by hop, in US dollars and tokens. */
  cost(taskId: string, options?: CallOptions): Promise<Answer<"getTaskCost">> {
    return this.transport.call("getTaskCost", { path: { taskId }, ...options });
  }
  /** All that waits for a person or another agent, the most urgent first. Operator or auditor. */
  attention(query: Query_<"listAttention"> = {}): Promise<Answer<"listAttention">> {
    return this.transport.call("listAttention", split(query));
  }
  /** Why a task does not go on, the most urgent reason first. Operator or auditor. */
  why(taskId: string, options?: CallOptions): Promise<Answer<"explainTask">> {
    return this.transport.call("explainTask", { path: { taskId }, ...options });
  }
  /** The hop that wrote a value of the state, by its RFC 6901 pointer. */
  blame(taskId: string, query: Query_<"getBlame">): Promise<Answer<"getBlame">> {
    return this.transport.call("getBlame", { path: { taskId }, ...split(query) });
  }
  /** Adds US dollars to the task's budget. Operator. */
  topUp(taskId: string, body: Body<"topUpTask">, options?: CallOptions): Promise<Answer<"topUpTask">> {
    return this.transport.call("topUpTask", { path: { taskId }, body, ...options });
  }
  /** Withdraws a task: its holder, the agent that began it, or an operator. Handoffs that wait are withdrawn at once. */
  cancel(taskId: string, body: Body<"cancelTask">, options?: CallOptions): Promise<Answer<"cancelTask">> {
    return this.transport.call("cancelTask", { path: { taskId }, body, ...options });
  }
  /** Cancels those that fit a filter, at the given rate; with `dryRun` they are counted. Operator. */
  cancelMany(body: Body<"cancelTasks">, options?: CallOptions): Promise<Answer<"cancelTasks">> {
    return this.transport.call("cancelTasks", { body, ...options });
  }
  /** The cost of tasks, by day, edge and agent. Operator. */
  costs(query: Query_<"listCosts"> = {}): Promise<Answer<"listCosts">> {
    return this.transport.call("listCosts", split(query));
  }
  /** Declares a task done: its holder, or an operator. */
  complete(taskId: string, output?: unknown, options?: CallOptions): Promise<Answer<"completeTask">> {
    const body = output === undefined ? {} : { output };
    return this.transport.call("completeTask", { path: { taskId }, body, ...options });
  }
  /** The checkpoints of a task, the newest first, over all of its runs; an agent sees its own. */
  checkpoints(taskId: string, query: Query_<"listCheckpoints"> = {}): Promise<Answer<"listCheckpoints">> {
    return this.transport.call("listCheckpoints", { path: { taskId }, ...split(query) });
  }
  /** The last checkpoint of a run, or the one with the number `seq`. */
  checkpoint(
    taskId: string,
    executionId: string,
    query: Query_<"getCheckpoint"> = {},
  ): Promise<Answer<"getCheckpoint">> {
    return this.transport.call("getCheckpoint", { path: { taskId, executionId }, ...split(query) });
  }
  /** Stores a state; the answer has its number within the run. */
  putCheckpoint(
    taskId: string,
    executionId: string,
    state: Record<string, unknown>,
    options: CheckpointOptions = {},
  ): Promise<Answer<"putCheckpoint">> {
    const { handoffId, fencingToken, ...rest } = options;
    const token = fencingToken === undefined ? undefined : String(fencingToken);
    const headers = { "handoff-id": handoffId, "handoff-fencing-token": token };
    return this.transport.call("putCheckpoint", {
      path: { taskId, executionId },
      body: state,
      headers,
      ...rest,
    });
  }
  /** Makes a stored checkpoint the task's current one: its holder, for a run of its own, or an operator. */
  restoreCheckpoint(
    taskId: string,
    executionId: string,
    seq: number,
    options?: CallOptions,
  ): Promise<Answer<"restoreCheckpoint">> {
    return this.transport.call("restoreCheckpoint", {
      path: { taskId, executionId },
      body: { seq },
      ...options,
    });
  }
  /**
   * A task's events so far, and each as it happens. The stream is opened again behind the last event where it breaks.
   *
   * @throws AnswerError where something else than a broker's stream of events answers.
   */
  async *watch(
    taskId: string,
    options: { readonly after?: string; readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<HandoffEvent, void> {
    let after = options.after;
    for (;;) {
      const response = await this.transport.stream("watchTask", {
        path: { taskId },
        headers: { "last-event-id": after },
        accept: "text/event-stream",
        signal: options.signal,
      });
      if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
        await response.body?.cancel();
        throw new AnswerError(`the events of task ${taskId}: the answer is no stream of events`);
      }
      for await (const { id, data } of serverSentEvents(response, options.signal)) {
        after = id ?? after;
        const event = parsed(data);
        yield event;
        if (event.type === "task.completed" || event.type === "task.canceled") return;
      }
      await sleep(REOPEN_MS, options.signal);
    }
  }
}

/** Milliseconds before a stream of events that ended is opened again. */
const REOPEN_MS = 250;

function parsed(data: string): HandoffEvent {
  try {
    return JSON.parse(data) as HandoffEvent;
  } catch {
    throw new AnswerError("an event of the stream is not JSON");
  }
}

/** Reads Server-Sent Events (HTML, §9.2.6) of an answer, to its end or until its connection breaks. */
async function* serverSentEvents(
  response: Response,
  signal: AbortSignal | undefined,
): AsyncGenerator<{ id: string | undefined; data: string }, void> {
  const decoder = new TextDecoder();
  const parts = bodyParts(response, signal);
  let rest = "";
  let id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await parts.next().catch((error: unknown) => {
        if (signal?.aborted) throw error;
        return { done: true, value: undefined };
      });
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { id, data: data.join("\n") };
          data = [];
        } else if (line.startsWith("id:")) id = line.slice(3).trimStart();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  } finally {
    await parts.return();
  }
}
