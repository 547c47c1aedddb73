import type { AgentState, Constraints, Target } from "./build.js";
import { canonicalize, type Json } from "./canonical.js";
import { type Client, type Given, type HandOffOptions, requiredAgent } from "./client.js";
import {
  ConflictError,
  type Failure,
  ForbiddenError,
  HandoffdError,
  NotFoundError,
  ProblemError,
  StaleLeaseError,
  UnauthenticatedError,
} from "./errors.js";
import { replaced } from "./guarded.js";
import { derivedExecutionId, traceparent } from "./ids.js";
import type { Completion, SaidCost, Sent } from "./services.js";
import { sleep } from "./transport.js";
import type { Handoff, HandoffMessage, HistoryTurn, QuestionItem, ReturnItem } from "./types.js";
import { INITIAL, validateHandoffMessage } from "./validate/index.js";
import { toDollars, toNanos } from "./validate/money.js";

/** Milliseconds between heartbeats at most; a third of the lease where that is less. */
export const HEARTBEAT_MS = 15_000;
/** Heartbeats that an accepted handoff misses before another worker of the agent takes it up. */
const ADOPT_HEARTBEATS = 4;
/** Pause between tries while the broker does not answer. */
const BACKOFF_MS = 2_000;
/** The same at most, where the broker says when to come back. */
const MOST_BACKOFF_MS = 60_000;

/** Code and words of a receiver that says no. */
abstract class Refusal extends HandoffdError {
  /** Capitals, digits and underscores, such as `MISSING_CLAUSE_TEXT`; stands in the audit record. */
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

/** What a handler may return in place of a bare result: rounds and a summary beside it. */
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

/** Of what a {@link Worker} makes a job. */
export type JobParts = Pick<
  Job,
  "handoffId" | "taskId" | "message" | "attempt" | "fencingToken" | "traceparent" | "resumed"
>;

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
  #spentNanos: bigint;
  #leftNanos: bigint;
  #promptTokens: number;
  #completionTokens: number;
  #spentHere = false;
  #isAsking = false;

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
    const { costSpentSoFarUSD, costBudgetRemainingUSD, tokenSpent } = parts.message.costTracking;
    this.#spentNanos = toNanos(costSpentSoFarUSD);
    this.#leftNanos = toNanos(costBudgetRemainingUSD);
    this.#promptTokens = tokenSpent.prompt;
    this.#completionTokens = tokenSpent.completion;
  }

  /** What is to be done: the task's description, or the first open subtask of an `INITIAL` handoff. */
  get task(): string {
    const { taskDescription, remainingSubtasks } = this.message;
    return taskDescription === INITIAL
      ? (remainingSubtasks[0]?.description ?? taskDescription)
      : taskDescription;
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
    await this.client.tasks.putCheckpoint(this.taskId, this.executionId, state, { signal: this.signal });
  }

  /** What this run saved last; `undefined` where it saved nothing. */
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
        view = await handoffs.get(this.handoffId, { wait: 20, signal: this.signal });
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

  /** Notes what the work cost since the last call: US dollars and tokens. Told with the verdict and when handing on. */
  spend(usd: number, tokens: { readonly prompt?: number; readonly completion?: number } = {}): void {
    this.#spentNanos += toNanos(usd);
    this.#leftNanos -= toNanos(usd);
    this.#promptTokens += tokens.prompt ?? 0;
    this.#completionTokens += tokens.completion ?? 0;
    this.#spentHere = true;
  }

  /**
   * Hands the task on: same task, this handoff as its parent; state, finished work, constraints and budget are relayed.
   *
   * @param constraints In place of those that came along.
   */
  async handOn(
    target: Target,
    given: string | Given,
    constraints: Constraints = this.message.constraints,
    options: HandOffOptions = {},
  ): Promise<Sent> {
    await this.acquire();
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
      completed: this.message.completedSubtasks,
      conversationId: this.message.conversationId,
      userId: this.message.userId,
    } satisfies Omit<AgentState, "agentId">;
    const more = typeof given === "string" ? { task: given } : given;
    return this.client.handOff(target, { ...relayed, ...this.plain(more) }, constraints, options);
  }

  /** The lease, asked for once. @internal */
  acquire(): Promise<Handoff> {
    this.#accepted ??= this.resumed
      ? this.client.handoffs.heartbeat(this.handoffId, this.fencingToken)
      : this.client.handoffs.accept(this.handoffId, this.fencingToken);
    return this.#accepted;
  }

  /** Whether it was accepted, or is being accepted. @internal */
  get isAccepted(): boolean {
    return this.#accepted !== undefined;
  }

  /** @internal */
  abort(reason: Error): void {
    this.#abort.abort(reason);
  }

  /** What was spent by now, cumulative; none where this agent spent nothing. @internal */
  get cost(): { costTracking?: SaidCost } {
    if (!this.#spentHere) return {};
    const tokenSpent = { prompt: this.#promptTokens, completion: this.#completionTokens };
    return { costTracking: { costSpentSoFarUSD: toDollars(this.#spentNanos), tokenSpent } };
  }
}

/** What a worker tells of its work, for logs. It holds no content of a message. */
export type WorkerEvent =
  | {
      readonly type: "claimed" | "resumed" | "accepted" | "completed" | "settled";
      readonly handoffId: string;
    }
  | { readonly type: "rejected" | "failed"; readonly handoffId: string; readonly code: string }
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
  /** What `currentState` must hold; a message without it is rejected with `INCOMPLETE_CONTEXT`. */
  readonly requiredState?: readonly string[];
  /** Milliseconds between heartbeats; {@link HEARTBEAT_MS} unless said, a third of the lease where that is less. */
  readonly heartbeatMs?: number;
  /** Take up what another worker of this agent left behind; yes unless said. */
  readonly adopt?: boolean;
  /** Seconds for which one poll waits, 60 at most; 10 unless said. A stop waits for the poll under way. */
  readonly pollSeconds?: number;
  /** Called with each task that came back (`returnTo`); without it an event tells of such a task. */
  readonly onReturn?: (item: ReturnItem, client: Client) => void | Promise<void>;
  /**
   * Called with each question of a receiver to this agent, which sent it a handoff; what it returns is the answer. Without it questions
   * wait for another process.
   */
  readonly onQuestion?: (item: QuestionItem, client: Client) => unknown;
  /** What happens, for logs. */
  readonly onEvent?: (event: WorkerEvent) => void;
  /** Milliseconds that a stop leaves to handlers; 30 000 unless said. What is unfinished then is left for another worker. */
  readonly graceMs?: number;
}

/** The work on one handoff. What it returns is the result: any JSON, or {@link Completed}. */
export type JobHandler = (job: Job) => unknown;

/**
 * Takes an agent's handoffs: claims, checks, accepts, runs the handler under heartbeats, completes.
 *
 * The handler says no by exception: {@link Reject} before the acceptance rejects with that code, after it fails with that
 * code; {@link Fail} fails with its code; any other error fails with its words. Each rolls the task back as the edge's contract says.
 *
 * A worker that dies leaves accepted handoffs behind. Another worker of the same agent sees that their lease is no longer
 * extended, and takes them up: the handler runs again with `resumed`, and `restore` gives what was saved. Of several such
 * workers one gets it. Completion alone is exactly once; an effect outside belongs behind `check`, and under an id that is
 * derived from `handoffId`.
 */
export class Worker {
  readonly agentId: string;
  /** Names this worker among those of its agent. */
  readonly workerId = crypto.randomUUID();
  readonly #client: Client;
  readonly #handler: JobHandler;
  readonly #options: WorkerOptions;
  readonly #held = new Map<string, { readonly job: Job; readonly done: Promise<void> }>();
  /** Deadlines of accepted handoffs of other workers, and since when each stands still, in milliseconds. */
  readonly #watched = new Map<string, { readonly deadline: string; readonly since: number }>();
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  /** @param client The agent's client, with `agentId`; the agent's `delivery.mode` is `pull`. */
  constructor(client: Client, handler: JobHandler, options: WorkerOptions = {}) {
    this.agentId = requiredAgent(client);
    this.#client = client;
    this.#handler = handler;
    this.#options = options;
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

  /** Runs until SIGINT or SIGTERM, and stops in good order then. */
  async runUntilSignal(): Promise<void> {
    const stop = (): void => void this.stop();
    for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, stop);
    try {
      await this.run();
    } finally {
      for (const name of ["SIGINT", "SIGTERM"] as const) process.off(name, stop);
    }
  }

  /** Takes no more handoffs, and resolves when the jobs under way have ended or the grace is over. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running?.catch(() => undefined);
  }

  #tell(event: WorkerEvent): void {
    this.#options.onEvent?.(event);
  }

  get #free(): number {
    return (this.#options.concurrency ?? 1) - this.#held.size;
  }

  async #poll(): Promise<void> {
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      if (this.#free <= 0) {
        await Promise.race([...[...this.#held.values()].map(({ done }) => done), aborted(stopping)]);
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
        for (const item of inbox.returns ?? []) {
          this.#tell({ type: "returned", handoffId: item.handoffId });
          await this.#options.onReturn?.(item, this.#client);
        }
        for (const item of inbox.questions ?? []) {
          // Answering takes its time; claims go on.
          void this.#question(item);
        }
      } catch (error) {
        if (isRefused(error)) throw error;
        await this.#pause(error);
      }
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
    await Promise.race([Promise.all([...this.#held.values()].map(({ done }) => done)), grace]);
    over.abort();
    for (const { job } of this.#held.values())
      job.abort(new WorkerStoppedError("the worker's grace is over"));
  }

  async #begin(parts: JobParts): Promise<void> {
    const { handoffId } = parts;
    if (this.#held.has(handoffId)) return;
    const executionId = await derivedExecutionId("worker", this.agentId, handoffId);
    const job = new Job(this.#client, executionId, parts);
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
      if (outcome instanceof Completed) await this.#complete(job, outcome);
      else await this.#refuse(job, outcome.error);
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
      await job.acquire();
      this.#tell({ type: job.resumed ? "resumed" : "accepted", handoffId: job.handoffId });
    }
    beginBeats();
    try {
      const result = await Promise.race([this.#handler(job), rejected(job.signal)]);
      job.check();
      await job.acquire();
      return result instanceof Completed ? result : new Completed(result ?? null);
    } catch (error) {
      job.check();
      if (isLost(error)) throw error;
      return { error };
    }
  }

  async #judge(job: Job): Promise<void> {
    const checked = validateHandoffMessage(job.message, { requiredState: this.#options.requiredState ?? [] });
    if (!checked.valid)
      throw new Reject(checked.reason, { failures: checked.failures satisfies readonly Failure[] });
    await this.#options.decide?.(job);
  }

  /** Accepts in time, then extends the lease until the work is done or the handoff is lost. */
  async #beat(job: Job, signal: AbortSignal): Promise<void> {
    let pause = job.isAccepted ? 0 : (this.#options.acceptWithinMs ?? 0);
    for (let lease: number | undefined; ; ) {
      if (job.isAccepted && lease === undefined) lease = leaseMs(await job.acquire().catch(() => undefined));
      if (job.isAccepted)
        pause = Math.min(this.#options.heartbeatMs ?? HEARTBEAT_MS, (lease ?? HEARTBEAT_MS) / 3);
      await sleep(pause, signal).catch(() => undefined);
      if (signal.aborted) return;
      // No lease runs while the sender is asked.
      if (job.isAsking) continue;
      try {
        if (!job.isAccepted) {
          await job.acquire();
          this.#tell({ type: "accepted", handoffId: job.handoffId });
          continue;
        }
        const view = await this.#client.handoffs.heartbeat(job.handoffId, job.fencingToken, { signal });
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

  /** Says that the work is done, as long as the lease holds: a result is not thrown away for a broker that is away. */
  async #complete(job: Job, outcome: Completed): Promise<void> {
    for (;;) {
      try {
        const said = { ...job.plain(outcome.said), ...job.cost };
        await this.#client.handoffs.complete(job.handoffId, job.fencingToken, said, { signal: job.signal });
        this.#tell({ type: "completed", handoffId: job.handoffId });
        return;
      } catch (error) {
        job.check();
        // Handed on and settled by its acceptance, or withdrawn: the broker's word counts.
        if (error instanceof ConflictError) return this.#tell({ type: "settled", handoffId: job.handoffId });
        if (isLost(error)) throw error;
        const refused = error instanceof ProblemError && error.status < 500 && error.status !== 429;
        // A defect of the broker meets the same verdict again.
        if (error instanceof ProblemError && error.status === 500) throw error;
        if (refused) return this.#refuse(job, new Fail(error.code, error.failures));
        this.#tell({ type: "unreachable", error });
        await sleep(BACKOFF_MS, job.signal);
      }
    }
  }

  async #refuse(job: Job, error: unknown): Promise<void> {
    const { handoffId, fencingToken } = job;
    const refusal = error instanceof Refusal ? error : undefined;
    const details = refusal?.details === undefined ? {} : { details: refusal.details };
    if (refusal instanceof Reject && !job.isAccepted) {
      await this.#client.handoffs.reject(handoffId, fencingToken, { reason: refusal.code, ...details });
      return this.#tell({ type: "rejected", handoffId, code: refusal.code });
    }
    const words = error instanceof Error ? error.message : String(error);
    const said = { error: refusal?.code ?? (words || "the handler failed"), ...details, ...job.cost };
    await this.#client.handoffs.fail(handoffId, fencingToken, said);
    this.#tell({ type: "failed", handoffId, code: refusal?.code ?? "HANDLER_ERROR" });
  }

  /** Answers a receiver's question. A failure leaves it open: the item comes again. */
  async #question(item: QuestionItem): Promise<void> {
    if (!this.#options.onQuestion) return;
    try {
      const answer = await this.#options.onQuestion(item, this.#client);
      await this.#client.handoffs.answer(item.handoffId, { answer, number: item.number });
    } catch (error) {
      if (!isLost(error)) this.#tell({ type: "unreachable", error });
    }
  }

  /** Takes up handoffs of this agent whose lease nobody extends. */
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
          if (!this.#isLeftBehind(handoff, beat * ADOPT_HEARTBEATS) || !(await this.#elected(handoff)))
            continue;
          const view = await this.#client.handoffs.get(handoff.handoffId, { include: "message" });
          if (view.status !== "ACCEPTED" || !view.message) continue;
          const message = view.message as HandoffMessage;
          await this.#begin({ ...view, message, attempt: view.attempts, resumed: true });
        }
      } catch (error) {
        if (isRefused(error)) return;
        this.#tell({ type: "unreachable", error });
      }
      await sleep(beat, stopping).catch(() => undefined);
    }
  }

  /** Whether its deadline stood still for that many milliseconds. One without a deadline was handed on. */
  #isLeftBehind(handoff: Handoff, after: number): boolean {
    const { handoffId, deadlineAt } = handoff;
    if (this.#held.has(handoffId) || !deadlineAt) {
      this.#watched.delete(handoffId);
      return false;
    }
    const seen = this.#watched.get(handoffId);
    if (seen?.deadline === deadlineAt) return performance.now() - seen.since >= after;
    this.#watched.set(handoffId, { deadline: deadlineAt, since: performance.now() });
    return false;
  }

  /** Of the workers that saw the same, the one whose claim is first in the broker's order of checkpoints. */
  async #elected(handoff: Handoff): Promise<boolean> {
    const { taskId, handoffId } = handoff;
    const run = await derivedExecutionId("owner", this.agentId, handoffId);
    // Milliseconds: the Python SDK's workers of the same agent write the same.
    const deadline = String(Date.parse(handoff.deadlineAt ?? ""));
    const stored = await this.#client.tasks.putCheckpoint(taskId, run, { worker: this.workerId, deadline });
    this.#watched.delete(handoffId);
    if (stored.seq === 1) return true;
    // Claims on an earlier standstill are over.
    const before = await this.#client.restore(taskId, run, stored.seq - 1);
    return before?.deadline !== deadline;
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

/** Whether the broker refuses the key or the inbox, which no repeat mends. */
function isRefused(error: unknown): boolean {
  return (
    error instanceof UnauthenticatedError || error instanceof ForbiddenError || error instanceof ConflictError
  );
}

/** The lease that is left, in milliseconds; `undefined` where none runs. */
function leaseMs(handoff: Handoff | undefined): number | undefined {
  const left = Date.parse(handoff?.deadlineAt ?? "") - Date.now();
  return Number.isFinite(left) ? Math.max(300, left) : undefined;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Rejects with the signal's reason once it is aborted. */
async function rejected(signal: AbortSignal): Promise<never> {
  await aborted(signal);
  throw signal.reason;
}
