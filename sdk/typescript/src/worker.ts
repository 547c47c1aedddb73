import { type AgentState, type Constraints, optionsOf, type Target } from "./build.js";
import { canonicalize, type Json } from "./canonical.js";
import { type Client, type Given, type HandOffOptions, OPTIONS, requiredAgent } from "./client.js";
import {
  AnswerError,
  ConflictError,
  type Failure,
  ForbiddenError,
  HandoffdError,
  InvalidRequestError,
  NotFoundError,
  ProblemError,
  StaleLeaseError,
  TransportError,
  UnauthenticatedError,
} from "./errors.js";
import { replaced, taskOf } from "./guarded.js";
import { derivedExecutionId, traceparent } from "./ids.js";
import type { Completion, SaidCost, Sent } from "./services.js";
import { type Answer, sleep } from "./transport.js";
import type { Handoff, HandoffMessage, HistoryTurn, QuestionItem, ReturnItem } from "./types.js";
import { validateHandoffMessage } from "./validate/index.js";
import { toDollars, toNanos } from "./validate/money.js";

/** Milliseconds between heartbeats at most; a third of the lease where that is less. */
export const HEARTBEAT_MS = 15_000;
/** Intervals that the holder of a handoff misses before the broker gives it to another worker of the agent. */
const ADOPT_HEARTBEATS = 4;
/** Pause between tries while the broker does not answer. */
const BACKOFF_MS = 2_000;
/** The same at most, where the broker says when to come back. */
const MOST_BACKOFF_MS = 60_000;
/** Characters of an error's message that a verdict carries at most. */
const MOST_WORDS = 500;
/** The code of a failure whose error has none. */
const HANDLER_ERROR = "HANDLER_ERROR";

/** Code and words of a receiver that says no. */
abstract class Refusal extends HandoffdError {
  /** Capitals, digits and underscores, such as `MISSING_CLAUSE_TEXT`; the audit record has it. */
  readonly code: string;
  /** More about it, for the sender. */
  readonly details: unknown;

  constructor(code: string, details?: unknown) {
    const words = typeof details === "string" ? details : JSON.stringify(details);
    super(details === undefined ? code : `${code}: ${words}`);
    if (!/^[A-Z0-9_]{1,128}$/.test(code))
      throw new TypeError(`a code has capitals, digits and underscores: ${code}`);
    this.code = code;
    this.details = details;
  }
}

/** Thrown by a worker's code: not this handoff. Before the acceptance it rejects, after it fails with that code. */
export class Reject extends Refusal {
  override name = "Reject";
}

/** Thrown by a worker's code: the work cannot be done. The task goes back, or where the contract says. */
export class Fail extends Refusal {
  override name = "Fail";
}

/** The reason of a job's aborted signal: the handoff is another's, or has ended. */
export class LeaseLostError extends HandoffdError {
  override name = "LeaseLostError";
}

/** The reason of a job's aborted signal: the worker's grace is over. Another worker takes the handoff up. */
export class WorkerStoppedError extends HandoffdError {
  override name = "WorkerStoppedError";
}

/** A handler's return value in place of a bare result: rounds and a summary beside it. */
export class Completed {
  readonly said: Completion;

  constructor(
    result: unknown,
    more: { readonly iterations?: number; readonly conversationSummary?: string } = {},
  ) {
    this.said = { ...more, result };
  }
}

/** How much of a message a prompt shows. */
export interface PromptExtent {
  /** Turns of the conversation, counted from the end; 5 unless said. */
  readonly turns?: number;
  /** Tokens that the text has at most, by the receiver's tokenizer, 500 or more. */
  readonly maxTokens?: number;
}

/** The input from which a {@link Worker} makes a job. */
export type JobParts = Pick<
  Job,
  "handoffId" | "taskId" | "message" | "attempt" | "fencingToken" | "traceparent" | "resumed"
> & {
  /** Milliseconds between heartbeats; {@link HEARTBEAT_MS} unless said. */
  readonly heartbeatMs?: number | undefined;
};

/** One handoff at a worker. */
export class Job {
  readonly handoffId: string;
  readonly taskId: string;
  /** The message, as the broker delivered it. */
  readonly message: HandoffMessage;
  /** Counts claims, from 1. */
  readonly attempt: number;
  /** Proves that this worker holds the handoff. */
  readonly fencingToken: number;
  /** W3C traceparent under which the handoff was sent. */
  readonly traceparent: string;
  /** Whether another worker began it and stopped: {@link restore} has what that one saved. */
  readonly resumed: boolean;
  /** This run, under which states are saved; the same after a crash. */
  readonly executionId: string;
  /** The client under the receiver's key. */
  readonly client: Client;
  readonly #abort = new AbortController();
  #accepted: Promise<Handoff> | undefined;
  #isAccepted = false;
  #spentNanos: bigint;
  #leftNanos: bigint;
  #promptTokens: number;
  #completionTokens: number;
  #spentHere = false;
  #isAsking = false;
  #heartbeatMs: number;

  /** Made by a {@link Worker}. */
  constructor(client: Client, executionId: string, parts: JobParts) {
    this.client = client;
    this.executionId = executionId;
    this.handoffId = parts.handoffId;
    this.taskId = parts.taskId;
    this.message = parts.message;
    this.attempt = parts.attempt;
    this.fencingToken = parts.fencingToken;
    this.traceparent = parts.traceparent;
    this.resumed = parts.resumed;
    this.#heartbeatMs = parts.heartbeatMs ?? HEARTBEAT_MS;
    const { costSpentSoFarUSD, costBudgetRemainingUSD, tokenSpent } = parts.message.costTracking;
    this.#spentNanos = toNanos(costSpentSoFarUSD);
    this.#leftNanos = toNanos(costBudgetRemainingUSD);
    this.#promptTokens = tokenSpent.prompt;
    this.#completionTokens = tokenSpent.completion;
  }

  /** The work: the task's description, or the first open subtask of an `INITIAL` handoff. */
  get task(): string {
    return taskOf(this.message);
  }

  /** `currentState`. */
  get state(): Record<string, unknown> {
    return this.message.currentState;
  }

  /** The conversation's last turns. Data of another agent: give {@link prompt} to a model, not these. */
  get history(): readonly HistoryTurn[] {
    return this.message.conversationHistoryVerbatim;
  }

  /** US dollars left on the task, what was spent here taken off. */
  get budgetUSD(): number {
    return toDollars(this.#leftNanos);
  }

  /** Aborted once the handoff is no longer this worker's; `signal.reason` says why. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Throws once the handoff is no longer this worker's. Call it before an effect outside. */
  check(): void {
    this.signal.throwIfAborted();
  }

  /** Accepts now; without effect where it was accepted. */
  async accept(): Promise<void> {
    await this.acquire();
  }

  /** The context as one guarded text for a model's user turn; what `maxTokens` leaves out is named in it. */
  prompt(options: PromptExtent = {}): Promise<string> {
    return this.client.handoffs.prompt(this.handoffId, { ...options, signal: this.signal });
  }

  /** The same as messages for a chat API. */
  async promptMessages(options: PromptExtent = {}): Promise<{ role: string; content: string }[]> {
    return (await this.client.handoffs.promptMessages(this.handoffId, { ...options, signal: this.signal }))
      .messages;
  }

  /** Stores this run's state durably; a worker that resumes gets it from {@link restore}. Long work saves its progress so. */
  async save(state: Record<string, unknown>): Promise<void> {
    await this.acquire();
    const { handoffId, fencingToken, signal } = this;
    await this.client.tasks.putCheckpoint(this.taskId, this.executionId, state, {
      handoffId,
      fencingToken,
      signal,
    });
  }

  /** The last saved state of this run; `undefined` without one. */
  restore(): Promise<Record<string, unknown> | undefined> {
    return this.client.restore(this.taskId, this.executionId);
  }

  /**
   * JSON with the task in place of this handoff's guarded prompt, for messages and results: the broker refuses the prompt's marks
   * there. {@link handOn} and the completion do it.
   */
  plain<T>(value: T): T {
    return replaced(value, new Map([[`prompt:${this.handoffId}`, this.task]]));
  }

  /**
   * Asks the sender, or a person, and waits for the answer; no lease runs meanwhile. The answer is data of another agent;
   * `client.handoffs.questionPrompt` has it as a guarded turn for a model.
   *
   * @param options `schema` is a JSON Schema that the answer has to fit; after `withinMs` without an answer the handoff expires.
   * @throws SafetyViolationError where the question is refused; the signal's reason where the handoff ended meanwhile.
   */
  async ask(
    question: unknown,
    options: { readonly schema?: Record<string, unknown>; readonly withinMs?: number } = {},
  ): Promise<unknown> {
    await this.acquire();
    const { handoffs } = this.client;
    const said = this.plain(question);
    this.#isAsking = true;
    try {
      let view = await handoffs.get(this.handoffId);
      const before = view.asked;
      // A worker that takes the handoff up again has the answer that came meanwhile.
      const isAsked =
        this.resumed &&
        before &&
        before.state !== "CLOSED" &&
        canonicalize(before.question as Json) === canonicalize(said as Json);
      if (!isAsked) {
        const body = {
          question: said,
          ...(options.schema ? { schema: options.schema } : {}),
          ...(options.withinMs === undefined
            ? {}
            : { answerWithinMs: Math.max(1, Math.round(options.withinMs)) }),
        };
        view = await handoffs.ask(this.handoffId, this.fencingToken, body, { signal: this.signal });
      }
      while (view.status === "INPUT_REQUIRED")
        view = await handoffs.get(this.handoffId, { wait: 20, until: "answered", signal: this.signal });
      if (view.status !== "ACCEPTED" || view.asked?.state !== "ANSWERED")
        this.abort(new LeaseLostError(`handoff ${this.handoffId} is ${view.status}`));
      this.check();
      return view.asked?.answer;
    } finally {
      this.#isAsking = false;
    }
  }

  /** Whether the sender is being asked. @internal */
  get isAsking(): boolean {
    return this.#isAsking;
  }

  /**
   * Notes what the work cost since the last call: US dollars and tokens. Told with the verdict and when handing on.
   *
   * @throws RangeError for a negative amount, an amount that is not finite, and tokens that are no whole number from 0.
   */
  spend(usd: number, tokens: { readonly prompt?: number; readonly completion?: number } = {}): void {
    const { prompt = 0, completion = 0 } = tokens;
    if (!Number.isFinite(usd) || usd < 0) throw new RangeError(`spent US dollars are 0 or more: ${usd}`);
    for (const count of [prompt, completion])
      if (!Number.isSafeInteger(count) || count < 0)
        throw new RangeError(`spent tokens are a whole number from 0: ${count}`);
    this.#spentNanos += toNanos(usd);
    this.#leftNanos -= toNanos(usd);
    this.#promptTokens += prompt;
    this.#completionTokens += completion;
    this.#spentHere = true;
  }

  /**
   * Hands the task on: same task, this handoff as its parent; state, finished work, constraints and budget are relayed. If
   * nothing was finished before, the conversation so far becomes the one completed subtask.
   *
   * @param options `constraints` in place of those that came along.
   */
  handOn(target: Target, given: string | Given, options?: HandOffOptions): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOn(target: Target, given: string | Given, constraints: readonly string[]): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOn(
    target: Target,
    given: string | Given,
    constraints: Constraints,
    options: HandOffOptions,
  ): Promise<Sent>;
  async handOn(
    target: Target,
    given: string | Given,
    third: HandOffOptions | Constraints = {},
    fourth?: HandOffOptions,
  ): Promise<Sent> {
    const options = optionsOf(third, fourth, OPTIONS);
    const { constraints = this.message.constraints } = options;
    await this.acquire();
    const { completedSubtasks, conversationHistoryVerbatim } = this.message;
    // The broker asks every later handoff for work that was done.
    const before = {
      subtaskId: this.handoffId,
      description: "The conversation before",
      result: { turns: conversationHistoryVerbatim.length },
    };
    const relayed: Given = {
      task: "",
      taskId: this.taskId,
      parentHandoffId: this.handoffId,
      executionId: this.executionId,
      spentUSD: toDollars(this.#spentNanos),
      budgetUSD: this.budgetUSD,
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      traceparent: traceparent(this.traceparent),
      state: this.state,
      completed: completedSubtasks.length > 0 ? completedSubtasks : [before],
      conversationId: this.message.conversationId,
      userId: this.message.userId,
    } satisfies Omit<AgentState, "agentId">;
    const more = typeof given === "string" ? { task: given } : given;
    const { fencingToken } = this;
    const told = { ...relayed, ...this.plain(more) };
    return this.client.handOff(target, told, { fencingToken, ...options, constraints });
  }

  /** The lease, asked for until the broker gives it. @internal */
  acquire(): Promise<Handoff> {
    if (this.#accepted) return this.#accepted;
    this.#isAccepted = true;
    const { handoffs } = this.client;
    const { heartbeatIntervalMs } = this;
    this.#accepted = this.resumed
      ? handoffs.heartbeat(this.handoffId, this.fencingToken, { heartbeatIntervalMs })
      : handoffs.accept(this.handoffId, this.fencingToken, { heartbeatIntervalMs });
    this.#accepted.catch(() => {
      this.#accepted = undefined;
    });
    return this.#accepted;
  }

  /** How often the broker hears of this worker, as the broker takes it. @internal */
  get heartbeatIntervalMs(): number {
    return Math.max(1, Math.round(this.#heartbeatMs));
  }

  /** Notes another pause between heartbeats, in milliseconds. @internal */
  beatEvery(ms: number): void {
    this.#heartbeatMs = ms;
  }

  /** Whether an acceptance was sent: without its answer, the broker may have it all the same. @internal */
  get isAccepted(): boolean {
    return this.#isAccepted;
  }

  /** @internal */
  abort(reason: Error): void {
    this.#abort.abort(reason);
  }

  /** The amount spent up to now, cumulative; none if this agent spent nothing. @internal */
  get cost(): { costTracking?: SaidCost } {
    if (!this.#spentHere) return {};
    const tokenSpent = { prompt: this.#promptTokens, completion: this.#completionTokens };
    return { costTracking: { costSpentSoFarUSD: toDollars(this.#spentNanos), tokenSpent } };
  }
}

/** A worker's events, for logs. It holds no content of a message. */
export type WorkerEvent =
  | {
      readonly type: "claimed" | "resumed" | "accepted" | "completed" | "settled";
      readonly handoffId: string;
    }
  | { readonly type: "rejected"; readonly handoffId: string; readonly code: string }
  /** `error` is what the handler threw. */
  | { readonly type: "failed"; readonly handoffId: string; readonly code: string; readonly error: unknown }
  | { readonly type: "lost"; readonly handoffId: string; readonly error: unknown }
  | { readonly type: "unreachable"; readonly error: unknown }
  | { readonly type: "returned"; readonly handoffId: string };

/** How a worker takes, keeps and ends handoffs. */
export interface WorkerOptions {
  /** Looks at a handoff before it is accepted: throws {@link Reject}, or returns. */
  readonly decide?: (job: Job) => void | Promise<void>;
  /** Handoffs at work at once; 1 unless said. */
  readonly concurrency?: number;
  /**
   * Milliseconds for which the handler may still reject: it starts first, and the worker accepts when they are over, or when
   * the handler returns. 0, unless said: accepted before the handler starts.
   */
  readonly acceptWithinMs?: number;
  /** Members that `currentState` must have; a message without one is rejected with `INCOMPLETE_CONTEXT`. */
  readonly requiredState?: readonly string[];
  /**
   * Milliseconds between heartbeats; {@link HEARTBEAT_MS} unless said, a third of the lease where that is less. The broker is told, and
   * lets another worker take over after four of them without a word.
   */
  readonly heartbeatMs?: number;
  /** Take up what another worker of this agent left behind; yes unless said. */
  readonly adopt?: boolean;
  /** Seconds for which one poll waits, 60 at most; 10 unless said. A stop waits for the poll under way. */
  readonly pollSeconds?: number;
  /**
   * Called with each task that came back (`returnTo`); without it an event tells of such a task. An error that it throws becomes an event, and the
   * task comes again.
   */
  readonly onReturn?: (item: ReturnItem, client: Client) => void | Promise<void>;
  /**
   * Called with each question of a receiver to this agent, which sent it a handoff; what it returns is the answer. Without it questions
   * wait for another process.
   */
  readonly onQuestion?: (item: QuestionItem, client: Client) => unknown;
  /**
   * Receives events, for logs. Without it errors are written to standard error with `console.error`, as
   * `handoffd.worker <agentId>: …`: handlers that throw, handoffs that are lost, a broker that does not answer.
   */
  readonly onEvent?: (event: WorkerEvent) => void;
  /** Milliseconds that a stop leaves to handlers; 30 000 by default. Handoffs that are unfinished then are left for another worker. */
  readonly graceMs?: number;
}

/** The work on one handoff. Its return value is the result: any JSON, or {@link Completed}. */
export type JobHandler = (job: Job) => unknown;

/**
 * Takes an agent's handoffs: claims, checks, accepts, runs the handler under heartbeats, completes.
 *
 * The handler says no by exception: {@link Reject} before the acceptance rejects with that code, after it fails with that
 * code; {@link Fail} fails with its code; any other error fails with its words. Each rolls the task back as the edge's contract says.
 *
 * A worker that dies leaves accepted handoffs behind. The broker hears of each worker by its heartbeats, and gives a handoff whose
 * holder missed four of its own intervals to another worker of the agent, under a new fencing token: the handler runs again with
 * `resumed`, and `restore` gives what was saved. Of several such workers one gets it. A worker that was only cut off can do nothing
 * to the handoff any more: its verdicts, its `save` and its `handOn` are refused (`StaleLeaseError`). Completion alone is exactly
 * once; an effect outside belongs behind `check`, and under an id that is derived from `handoffId`.
 */
export class Worker {
  readonly agentId: string;
  /** Names this worker among those of its agent. */
  readonly workerId = crypto.randomUUID();
  readonly #client: Client;
  readonly #handler: JobHandler;
  readonly #options: WorkerOptions;
  readonly #held = new Map<string, { readonly job: Job; readonly done: Promise<void> }>();
  /** Calls of `onReturn` under way, by the handoff. */
  readonly #returning = new Map<string, Promise<void>>();
  /** The poll for returns and questions alone, while one is under way. */
  #hearing: Promise<void> | undefined;
  #hears: boolean;
  /** Questions with a call of `onQuestion` under way: the handoff's id and the question's number. */
  readonly #answering = new Set<string>();
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  /** @param client The agent's client, with `agentId`; the agent's `delivery.mode` is `pull`. */
  constructor(client: Client, handler: JobHandler, options: WorkerOptions = {}) {
    this.agentId = requiredAgent(client);
    this.#client = client;
    this.#handler = handler;
    this.#options = options;
    this.#hears = options.onReturn !== undefined || options.onQuestion !== undefined;
  }

  /**
   * Works until {@link stop}, or until the signal is aborted, which is the same.
   *
   * @throws ProblemError where the broker refuses the key or the inbox.
   */
  run(signal?: AbortSignal): Promise<void> {
    if (this.#running) throw new HandoffdError("the worker runs already");
    signal?.addEventListener("abort", () => void this.stop(), { once: true });
    if (signal?.aborted) this.#stopping.abort();
    const adopting = this.#options.adopt === false ? Promise.resolve() : this.#adopt();
    this.#running = this.#poll()
      .finally(() => this.#stopping.abort())
      .finally(() => adopting)
      .finally(() => this.#windDown());
    return this.#running;
  }

  /**
   * Runs until SIGINT or SIGTERM, and stops in good order then: handlers have `graceMs` to end. A second signal ends at once, and leaves
   * the handoffs to another worker.
   */
  async runUntilSignal(): Promise<void> {
    const names = ["SIGINT", "SIGTERM"] as const;
    const stop = (name: NodeJS.Signals): void => {
      for (const each of names) process.off(each, stop);
      // The next one has its own effect, which is the end of the process.
      for (const each of names) process.once(each, () => process.kill(process.pid, each));
      if (this.#held.size > 0)
        console.error(
          `handoffd.worker ${this.agentId}: ${name}: stops when ${this.#held.size} handoffs are done; a second signal ends at once`,
        );
      void this.stop();
    };
    for (const name of names) process.on(name, stop);
    try {
      await this.run();
    } finally {
      for (const name of names) process.off(name, stop);
    }
  }

  /** Takes no more handoffs, and resolves when the jobs under way have ended or the grace is over. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running?.catch(() => undefined);
  }

  #tell(event: WorkerEvent): void {
    const { onEvent } = this.#options;
    if (onEvent) onEvent(event);
    else if ("error" in event) {
      // A worker that says nothing looks as one that works.
      const what = "handoffId" in event ? `handoff ${event.handoffId} ${event.type}` : event.type;
      const isOwn = event.error instanceof Refusal || event.type === "unreachable";
      console.error(`handoffd.worker ${this.agentId}: ${what}:`, isOwn ? wordsOf(event.error) : event.error);
    }
  }

  get #free(): number {
    return (this.#options.concurrency ?? 1) - this.#held.size;
  }

  async #poll(): Promise<void> {
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      if (this.#free <= 0) {
        const round = new AbortController();
        const ends = [...this.#held.values()].map((held) => held.done);
        if (this.#hears) ends.push(this.#hear());
        await Promise.race([...ends, aborted(stopping, round.signal)]);
        round.abort();
        continue;
      }
      try {
        // A poll under way is waited for: what it claims would else lie until the claim ends.
        const inbox = await this.#client.handoffs.inbox(this.agentId, {
          wait: this.#options.pollSeconds ?? 10,
          max: this.#free,
          // The pauses are this loop's, so that a stop waits for no repeat.
          retries: 0,
        });
        for (const { message, ...item } of inbox.items) {
          this.#tell({ type: "claimed", handoffId: item.handoffId });
          await this.#begin({ ...item, message: message as HandoffMessage, resumed: false });
        }
        this.#takeWords(inbox);
      } catch (error) {
        const isWrong = error instanceof ConflictError || error instanceof InvalidRequestError;
        if (isWrong || isRefused(error)) throw error;
        await this.#pause(error);
      }
    }
  }

  /** Questions and returns of handoffs that this agent sent; answering takes its time, and claims go on. */
  #takeWords({ returns, questions }: Answer<"pollInbox">): void {
    for (const item of returns ?? []) this.#takeBack(item);
    for (const item of questions ?? []) void this.#question(item);
  }

  /** Polls for returns and questions alone while all places are taken: a handler may wait for the agent that asks. */
  #hear(): Promise<void> {
    this.#hearing ??= this.#heard().finally(() => {
      this.#hearing = undefined;
    });
    return this.#hearing;
  }

  async #heard(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      const wait = this.#options.pollSeconds ?? 10;
      this.#takeWords(await this.#client.handoffs.inbox(this.agentId, { wait, max: 0, retries: 0, signal }));
    } catch (error) {
      if (signal.aborted) return;
      // An older broker has no such poll. A refusal of all polls ends the worker at the next one.
      if (error instanceof InvalidRequestError || isRefused(error)) this.#hears = false;
      else await this.#pause(error);
    }
  }

  async #pause(error: unknown): Promise<void> {
    this.#tell({ type: "unreachable", error });
    const asked = error instanceof ProblemError ? Math.min(error.retryAfterMs ?? 0, MOST_BACKOFF_MS) : 0;
    await sleep(Math.max(BACKOFF_MS, asked), this.#stopping.signal).catch(() => undefined);
  }

  async #windDown(): Promise<void> {
    const over = new AbortController();
    const grace = sleep(this.#options.graceMs ?? 30_000, over.signal).catch(() => undefined);
    const left = [...[...this.#held.values()].map(({ done }) => done), ...this.#returning.values()];
    await Promise.race([Promise.all(left), grace]);
    over.abort();
    for (const { job } of this.#held.values())
      job.abort(new WorkerStoppedError("the worker's grace is over"));
  }

  async #begin(parts: JobParts): Promise<void> {
    const { handoffId } = parts;
    if (this.#held.has(handoffId)) return;
    const executionId = await derivedExecutionId("worker", this.agentId, handoffId);
    const { heartbeatMs } = this.#options;
    const job = new Job(this.#client, executionId, { heartbeatMs, ...parts });
    const done = this.#answer(job)
      .catch((error: unknown) => this.#tell({ type: "lost", handoffId, error }))
      .finally(() => this.#held.delete(handoffId));
    this.#held.set(handoffId, { job, done });
  }

  /** Answers for one handoff; throws where it is no longer this worker's, or the broker is away. */
  async #answer(job: Job): Promise<void> {
    const beating = new AbortController();
    let beats: Promise<void> | undefined;
    try {
      const outcome = await this.#outcome(job, () => {
        beats = this.#beat(job, beating.signal);
      });
      if (outcome instanceof Completed) {
        await this.#untilAnswered(job, () => job.acquire());
        await this.#complete(job, outcome);
      } else await this.#refuse(job, outcome.error);
    } finally {
      beating.abort();
      await beats;
    }
  }

  async #outcome(job: Job, beginBeats: () => void): Promise<Completed | { readonly error: unknown }> {
    try {
      if (!job.resumed) await this.#judge(job);
    } catch (error) {
      return { error };
    }
    const acceptFirst = job.resumed || (this.#options.acceptWithinMs ?? 0) <= 0;
    if (acceptFirst) {
      await this.#untilAnswered(job, () => job.acquire());
      this.#tell({ type: job.resumed ? "resumed" : "accepted", handoffId: job.handoffId });
    }
    beginBeats();
    try {
      const result = await Promise.race([this.#handler(job), rejected(job.signal)]);
      job.check();
      return result instanceof Completed ? result : new Completed(result ?? null);
    } catch (error) {
      job.check();
      // Any other refusal that a handler meets may be of something else than this handoff.
      if (error instanceof LeaseLostError || error instanceof StaleLeaseError) throw error;
      return { error };
    }
  }

  async #judge(job: Job): Promise<void> {
    const checked = validateHandoffMessage(job.message, { requiredState: this.#options.requiredState ?? [] });
    if (!checked.valid)
      throw new Reject(checked.reason, { failures: checked.failures satisfies readonly Failure[] });
    await this.#options.decide?.(job);
  }

  /** Accepts in time, then extends the lease until the work is done, or the handoff is lost or was handed on. */
  async #beat(job: Job, signal: AbortSignal): Promise<void> {
    let pause = job.isAccepted ? 0 : (this.#options.acceptWithinMs ?? 0);
    for (let [isHeld, isFirst] = [false, false]; ; ) {
      await sleep(pause, signal).catch(() => undefined);
      if (signal.aborted) return;
      // No lease runs while the sender is asked.
      if (job.isAsking) continue;
      try {
        if (!isHeld) {
          isFirst ||= !job.isAccepted;
          pause = BACKOFF_MS;
          const lease = leaseMs(await job.acquire());
          isHeld = true;
          pause = Math.min(this.#options.heartbeatMs ?? HEARTBEAT_MS, (lease ?? HEARTBEAT_MS) / 3);
          job.beatEvery(pause);
          if (isFirst) this.#tell({ type: "accepted", handoffId: job.handoffId });
          continue;
        }
        const view = await this.#extended(job, signal);
        // No lease runs any more, and the handler ends in its own time.
        if (isHandedOn(view)) return;
        if (view.status !== "ACCEPTED" && view.status !== "INPUT_REQUIRED")
          throw new LeaseLostError(`handoff ${job.handoffId} is ${view.status}`);
      } catch (error) {
        if (signal.aborted) return;
        if (!isLost(error) || job.isAsking) continue;
        job.abort(new LeaseLostError(`handoff ${job.handoffId} is no longer held`, { cause: error }));
        return;
      }
    }
  }

  /**
   * The handoff with its lease extended, or as it is where there is none to extend: it was handed on, or its task was canceled and the
   * grace runs.
   */
  async #extended(job: Job, signal: AbortSignal): Promise<Handoff> {
    const { handoffs } = this.#client;
    try {
      const { heartbeatIntervalMs } = job;
      return await handoffs.heartbeat(job.handoffId, job.fencingToken, { heartbeatIntervalMs, signal });
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      const view = await handoffs.get(job.handoffId, { signal });
      const isHeld = view.status === "ACCEPTED" && view.fencingToken === job.fencingToken;
      if (!isHeld && !isHandedOn(view)) throw error;
      return view;
    }
  }

  /** Repeats a request while the broker is away and the handoff is this worker's: no verdict is thrown away for that. */
  async #untilAnswered(job: Job, send: () => Promise<unknown>): Promise<void> {
    for (;;) {
      try {
        await send();
        return;
      } catch (error) {
        job.check();
        if (!isAway(error)) throw error;
        this.#tell({ type: "unreachable", error });
        await sleep(BACKOFF_MS, job.signal);
      }
    }
  }

  async #complete(job: Job, outcome: Completed): Promise<void> {
    const { handoffId, fencingToken, signal } = job;
    try {
      const said = { ...job.plain(outcome.said), ...job.cost };
      const { handoffs } = this.#client;
      await this.#untilAnswered(job, () => handoffs.complete(handoffId, fencingToken, said, { signal }));
      this.#tell({ type: "completed", handoffId });
    } catch (error) {
      job.check();
      // Handed on and settled by its acceptance, or withdrawn: the broker's word counts.
      if (error instanceof ConflictError) return this.#tell({ type: "settled", handoffId });
      if (isLost(error)) throw error;
      // The broker refuses the result, or JSON cannot hold it.
      const refused = error instanceof ProblemError;
      await this.#refuse(job, refused ? new Fail(error.code, error.failures) : error);
    }
  }

  async #refuse(job: Job, error: unknown): Promise<void> {
    const { handoffId, fencingToken, signal } = job;
    const { handoffs } = this.#client;
    const refusal = error instanceof Refusal ? error : undefined;
    const code = refusal?.code ?? HANDLER_ERROR;
    const details = refusal?.details === undefined ? {} : { details: refusal.details };
    if (refusal instanceof Reject && !job.isAccepted) {
      await this.#orCodeAlone(job, { reason: code, ...details }, { reason: code }, (said) =>
        handoffs.reject(handoffId, fencingToken, said, { signal }),
      );
      return this.#tell({ type: "rejected", handoffId, code });
    }
    const said = { error: refusal?.code ?? wordsOf(error), ...details, ...job.cost };
    await this.#orCodeAlone(job, said, { error: code }, (each) =>
      handoffs.fail(handoffId, fencingToken, each, { signal }),
    );
    this.#tell({ type: "failed", handoffId, code, error });
  }

  /** Sends a verdict; the code alone where the broker refuses the rest of it, or JSON cannot hold it. */
  async #orCodeAlone<T>(job: Job, said: T, code: T, send: (said: T) => Promise<unknown>): Promise<void> {
    try {
      await this.#untilAnswered(job, () => send(said));
    } catch (error) {
      job.check();
      if (isLost(error)) throw error;
      await this.#untilAnswered(job, () => send(code));
    }
  }

  /** Tells of a task that came back while claims go on. It comes again until it moves on, and is told once at a time. */
  #takeBack(item: ReturnItem): void {
    const { handoffId } = item;
    if (this.#returning.has(handoffId)) return;
    this.#tell({ type: "returned", handoffId });
    const told = Promise.resolve(item)
      .then((given) => this.#options.onReturn?.(given, this.#client))
      .catch((error: unknown) => this.#tell({ type: "unreachable", error }))
      .finally(() => this.#returning.delete(handoffId));
    this.#returning.set(handoffId, told);
  }

  /** Answers a receiver's question, which comes again until it is closed, once at a time. A failure leaves it open. */
  async #question(item: QuestionItem): Promise<void> {
    const question = `${item.handoffId} ${item.number}`;
    if (!this.#options.onQuestion || this.#answering.has(question)) return;
    this.#answering.add(question);
    try {
      const answer = await this.#options.onQuestion(item, this.#client);
      await this.#client.handoffs.answer(item.handoffId, { answer, number: item.number });
    } catch (error) {
      if (!isLost(error)) this.#tell({ type: "unreachable", error });
    } finally {
      this.#answering.delete(question);
    }
  }

  /** Takes up handoffs of this agent whose holder is silent. The broker decides that, by the holder's own interval. */
  async #adopt(): Promise<void> {
    const beat = this.#options.heartbeatMs ?? HEARTBEAT_MS;
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      try {
        for await (const handoff of this.#client.handoffs.iterate({
          status: "ACCEPTED",
          toAgent: this.agentId,
        })) {
          if (this.#free <= 0 || stopping.aborted) break;
          if (this.#isLeftBehind(handoff)) await this.#takeUp(handoff.handoffId);
        }
      } catch (error) {
        if (isRefused(error)) return;
        this.#tell({ type: "unreachable", error });
      }
      await sleep(beat, stopping).catch(() => undefined);
    }
  }

  async #takeUp(handoffId: string): Promise<void> {
    const { handoffs } = this.#client;
    const heartbeatIntervalMs = Math.max(1, Math.round(this.#options.heartbeatMs ?? HEARTBEAT_MS));
    try {
      const { message, status } = await handoffs.get(handoffId, { include: "message" });
      if (status !== "ACCEPTED" || !message) return;
      const view = await handoffs.takeOver(handoffId, { heartbeatIntervalMs });
      await this.#begin({
        ...view,
        attempt: view.attempts,
        message: message as HandoffMessage,
        resumed: true,
      });
    } catch (error) {
      // Another worker was first, its holder was heard of, or its task was canceled: the others are looked at all the same.
      if (!isLost(error)) throw error;
    }
  }

  /**
   * Whether it is worth asking: its holder states an interval, and was not heard of for that long by this clock. A clock that is wrong
   * costs a request, or a look later.
   */
  #isLeftBehind({ handoffId, deadlineAt, heartbeatIntervalMs, heardAt }: Handoff): boolean {
    if (this.#held.has(handoffId) || !deadlineAt || !heartbeatIntervalMs || !heardAt) return false;
    const silent = Date.now() - Date.parse(heardAt);
    return silent < 0 || silent >= heartbeatIntervalMs * ADOPT_HEARTBEATS;
  }
}

/** Whether the broker said that the handoff is not this worker's any more. */
function isLost(error: unknown): boolean {
  return (
    error instanceof LeaseLostError ||
    error instanceof StaleLeaseError ||
    error instanceof ConflictError ||
    error instanceof NotFoundError
  );
}

/** Whether its receiver handed the task on, and that was accepted. */
function isHandedOn(handoff: Handoff): boolean {
  return handoff.status === "COMPLETED" && handoff.reason === "HANDED_ON";
}

/**
 * Whether the broker did not answer, or something in its place did. A defect of the broker (500), and a proxy that takes no body of that
 * size (413), meet the same verdict again.
 */
function isAway(error: unknown): boolean {
  if (!(error instanceof ProblemError))
    return error instanceof TransportError || error instanceof AnswerError;
  const { status } = error;
  return status > 500 || status === 429 || (error.requestId === "" && status !== 413);
}

/** Whether the broker refuses the key, which no repeat mends. */
function isRefused(error: unknown): boolean {
  return error instanceof UnauthenticatedError || error instanceof ForbiddenError;
}

/** An error's message, as text that a verdict can carry. */
function wordsOf(error: unknown): string {
  let words: string;
  try {
    words = String(error instanceof Error ? error.message : error);
  } catch {
    words = "";
  }
  return words.slice(0, MOST_WORDS).toWellFormed() || "the handler failed";
}

/** The lease that is left, in milliseconds; `undefined` where none runs. */
function leaseMs(handoff: Handoff | undefined): number | undefined {
  const left = Date.parse(handoff?.deadlineAt ?? "") - Date.now();
  return Number.isFinite(left) ? Math.max(300, left) : undefined;
}

/** Resolves once the signal is aborted; `over` ends the wait for it, and no listener stays. */
function aborted(signal: AbortSignal, over?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true, ...(over ? { signal: over } : {}) });
  });
}

/** Rejects with the signal's reason once it is aborted. */
async function rejected(signal: AbortSignal): Promise<never> {
  await aborted(signal);
  throw signal.reason;
}
