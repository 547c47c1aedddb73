import {
  type AgentState,
  BUILD_OPTIONS,
  type BuildOptions,
  buildHandoffMessage,
  type Constraints,
  optionsOf,
  type Target,
  toTarget,
} from "./build.js";
import {
  AnswerError,
  HandoffdError,
  HandoffEndedBadlyError,
  NotFoundError,
  TransportError,
} from "./errors.js";
import {
  Agents,
  Allowlist,
  Audit,
  Caps,
  Contracts,
  DataSubjects,
  DeadLetters,
  Escalations,
  Events,
  Handoffs,
  Keys,
  LegalHolds,
  Schemas,
  type Sent,
  ServiceStatus,
  type SubmitOptions,
  Subscriptions,
  Tasks,
  type WaitOptions,
} from "./services.js";
import { signHandoffMessage } from "./sign.js";
import { statedDigest, withDigest } from "./step.js";
import { type Answer, type CallOptions, Transport, type TransportOptions } from "./transport.js";
import type { Agent, AgentSpec, ChunkBody, Handoff } from "./types.js";

/** Which broker, under which key, as which agent. */
export interface ClientOptions extends Partial<Omit<TransportOptions, "key">> {
  /** The agent of the key, for {@link Client.handOff} and workers; `HANDOFFD_AGENT_ID` unless said. */
  readonly agentId?: string | undefined;
  /** Semantic version of that agent; `1.0.0` unless said. */
  readonly agentVersion?: string | undefined;
  /** The agent's signing secret (`hss_…`): {@link Client.handOff} signs with it. `HANDOFFD_SIGNING_SECRET` unless said. */
  readonly signingSecret?: string | undefined;
  /** The key; `HANDOFFD_API_KEY` unless said. */
  readonly apiKey?: string | undefined;
  /** @deprecated The name until 0.3: `apiKey`. */
  readonly key?: string | undefined;
}

/** A sender's statements on a handoff, except its own id, which is the client's. */
export type Given = Omit<AgentState, "agentId"> & { readonly agentId?: never };

/** How a message is built, and how it is submitted. */
export type HandOffOptions = BuildOptions & SubmitOptions;

/** How one message goes to several receivers. */
export type ManyOptions = HandOffOptions & {
  readonly join?: string;
  readonly onReject?: "rollback" | "drop";
};

/** The members of {@link HandOffOptions}. @internal */
export const OPTIONS = [
  ...BUILD_OPTIONS,
  ...["waitSeconds", "idempotencyKey", "traceparent", "tracestate", "fencingToken"],
  ...["signal", "timeoutMs", "retries"],
];

/** The address of a broker that was started without settings. */
export const DEFAULT_URL = "http://127.0.0.1:8080";

/**
 * A client of one broker under one key. It has a property for each resource of the API.
 *
 * `url` and `apiKey` are taken from `HANDOFFD_URL` and `HANDOFFD_API_KEY` unless said.
 */
export class Client {
  readonly agents: Agents;
  readonly allowlist: Allowlist;
  readonly audit: Audit;
  readonly caps: Caps;
  readonly contracts: Contracts;
  readonly dataSubjects: DataSubjects;
  readonly deadLetters: DeadLetters;
  readonly escalations: Escalations;
  readonly events: Events;
  readonly handoffs: Handoffs;
  readonly keys: Keys;
  readonly legalHolds: LegalHolds;
  readonly schemas: Schemas;
  readonly service: ServiceStatus;
  readonly subscriptions: Subscriptions;
  readonly tasks: Tasks;
  /** The agent of the key. */
  readonly agentId: string | undefined;
  readonly #options: ClientOptions & { readonly url: string };

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? environment("HANDOFFD_URL") ?? DEFAULT_URL;
    const key = options.apiKey ?? options.key ?? environment("HANDOFFD_API_KEY");
    this.#options = { ...options, url, apiKey: key, key };
    this.agentId = options.agentId ?? environment("HANDOFFD_AGENT_ID");
    const transport = new Transport(this.#options as TransportOptions);
    this.agents = new Agents(transport);
    this.allowlist = new Allowlist(transport);
    this.audit = new Audit(transport);
    this.caps = new Caps(transport);
    this.contracts = new Contracts(transport);
    this.dataSubjects = new DataSubjects(transport);
    this.deadLetters = new DeadLetters(transport);
    this.escalations = new Escalations(transport);
    this.events = new Events(transport);
    this.handoffs = new Handoffs(transport);
    this.keys = new Keys(transport);
    this.legalHolds = new LegalHolds(transport);
    this.schemas = new Schemas(transport);
    this.service = new ServiceStatus(transport);
    this.subscriptions = new Subscriptions(transport);
    this.tasks = new Tasks(transport);
  }

  /**
   * Builds a message and submits it, signed where the client has a signing secret. A repeated `step` counts as sent.
   *
   * @param given What the receiver is to do, or the state of which the message is built.
   * @param options Constraints among them.
   * @throws HandoffdError where the client has no `agentId`.
   * @throws TypeError for a task without words.
   * @throws ProblemError where the gate refuses; `failures` names each thing.
   * @throws TransportError where the broker did not answer; its `handoffId` names the handoff all the same.
   */
  handOff(target: Target, given: string | Given, options?: HandOffOptions): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOff(target: Target, given: string | Given, constraints: readonly string[]): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOff(
    target: Target,
    given: string | Given,
    constraints: Constraints,
    options: HandOffOptions,
  ): Promise<Sent>;
  async handOff(
    target: Target,
    given: string | Given,
    third: HandOffOptions | Constraints = {},
    fourth?: HandOffOptions,
  ): Promise<Sent> {
    return this.#send(target, given, optionsOf(third, fourth, OPTIONS), {});
  }

  /**
   * Hands one message to several receivers: one commit, a handoff for each, and a group that gathers their results in the order of
   * `targets`. The answer is the group's: `handoffs.waitEnded(sent.handoffId)` has the results.
   *
   * @param options `join` says how many are needed (`all` unless said, `any`, `quorum:N`), `onReject` is `rollback` or `drop`.
   * @throws ProblemError where the gate refuses; one receiver that cannot have the message refuses the whole list.
   */
  handOffToMany(targets: readonly Target[], given: string | Given, options?: ManyOptions): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOffToMany(
    targets: readonly Target[],
    given: string | Given,
    constraints: readonly string[],
  ): Promise<Sent>;
  /** @deprecated Constraints are a member of the options. */
  handOffToMany(
    targets: readonly Target[],
    given: string | Given,
    constraints: Constraints,
    options: ManyOptions,
  ): Promise<Sent>;
  async handOffToMany(
    targets: readonly Target[],
    given: string | Given,
    third: ManyOptions | Constraints = {},
    fourth?: ManyOptions,
  ): Promise<Sent> {
    const options = optionsOf(third, fourth, [...OPTIONS, "join", "onReject"]);
    const { join = "all", onReject, ...rest } = options;
    const [first] = targets;
    if (first === undefined) throw new HandoffdError("handOffToMany needs a target");
    const group = { schemaVersion: "2.2", receiverList: targets.map(toTarget), join };
    return this.#send(first, given, rest, onReject ? { ...group, onReject } : group);
  }

  async #send(
    target: Target,
    given: string | Given,
    options: HandOffOptions,
    members: Record<string, unknown>,
  ): Promise<Sent> {
    const { constraints, maxTurns, maxBytes, windowTokens, countTokens, summarize, ...submit } = options;
    const built = { constraints, maxTurns, maxBytes, windowTokens, countTokens, summarize };
    const { agentVersion } = this.#options;
    const state = typeof given === "string" ? { task: given } : given;
    const from = { agentVersion, ...state, agentId: requiredAgent(this) };
    const single = await buildHandoffMessage(from, target, built);
    const whole = { ...single, ...members };
    // The receivers of a list are part of the step.
    const message = members.receiverList && statedDigest(single) ? await withDigest(whole) : whole;
    const secret = this.#options.signingSecret ?? environment("HANDOFFD_SIGNING_SECRET");
    return this.handoffs.submit(secret ? await signHandoffMessage(message, secret) : message, submit);
  }

  /**
   * Opens a handoff whose message goes out in pieces, and gives it to `write`. Once that is done the stream is closed, and the broker runs
   * the whole gate over the message; where it throws, the stream is aborted, and the task goes back to the sender's checkpoint.
   *
   * @throws ProblemError where the gate refuses the opening, a chunk or the whole.
   */
  async stream(
    target: Target,
    given: string | Given,
    write: (stream: HandoffStream) => void | Promise<void>,
    options: HandOffOptions = {},
  ): Promise<Sent> {
    const opening = { schemaVersion: "2.2", stream: { open: true } };
    const sent = await this.#send(target, given, options, opening);
    const stream = new HandoffStream(this.handoffs, sent.handoffId, options);
    try {
      await write(stream);
    } catch (error) {
      await stream.abort(error instanceof Error ? error.name : "the sender stopped").catch(() => undefined);
      throw error;
    }
    await stream.close();
    return sent;
  }

  /**
   * Hands off and waits for the end. Returns the completed handoff with its `result`.
   *
   * @throws HandoffEndedBadlyError where it was rejected, failed, expired, dead-lettered or cancelled; `words` has what the receiver said.
   * @throws WaitTimeoutError after `withinMs`; the handoff goes on.
   * @throws TransportError where the broker did not answer; `handoffId` names the handoff, and `handoffs.waitEnded` waits on.
   */
  handOffAndWait(
    target: Target,
    given: string | Given,
    options?: HandOffOptions & WaitOptions,
  ): Promise<Handoff>;
  /** @deprecated Constraints are a member of the options. */
  handOffAndWait(target: Target, given: string | Given, constraints: readonly string[]): Promise<Handoff>;
  /** @deprecated Constraints are a member of the options. */
  handOffAndWait(
    target: Target,
    given: string | Given,
    constraints: Constraints,
    options: HandOffOptions & WaitOptions,
  ): Promise<Handoff>;
  async handOffAndWait(
    target: Target,
    given: string | Given,
    third: (HandOffOptions & WaitOptions) | Constraints = {},
    fourth?: HandOffOptions & WaitOptions,
  ): Promise<Handoff> {
    const options = optionsOf(third, fourth, [...OPTIONS, "withinMs"]);
    const { withinMs, ...rest } = options;
    const { handoffId, taskId } = await this.handOff(target, given, rest);
    const { signal, timeoutMs, retries } = options;
    const ended = await this.handoffs
      .waitEnded(handoffId, { withinMs, signal, timeoutMs, retries })
      .catch((error: unknown) => {
        if (error instanceof TransportError || error instanceof AnswerError)
          Object.assign(error, { handoffId, taskId });
        throw error;
      });
    if (ended.status !== "COMPLETED") {
      // The failure is told without them where they cannot be read.
      const view = await this.handoffs.get(ended.handoffId, { include: "verdict" }).catch(() => undefined);
      const words = wordsOf(view?.verdict, ended.reason);
      throw new HandoffEndedBadlyError(ended.handoffId, ended.status, ended.reason ?? undefined, words);
    }
    return ended;
  }

  /**
   * Cancels a task: undelivered handoffs are withdrawn, and the holder may finish within the grace.
   *
   * @param reason Why, in words; kept with the record.
   * @param options `graceMs` is the broker's setting unless said.
   * @throws ConflictError where the task has ended.
   */
  cancel(
    taskId: string,
    reason: string,
    options: CallOptions & { readonly graceMs?: number } = {},
  ): Promise<Answer<"cancelTask">> {
    const { graceMs, ...rest } = options;
    const body = { reason, ...(graceMs === undefined ? {} : { graceMs: Math.round(graceMs) }) };
    return this.tasks.cancel(taskId, body, rest);
  }

  /** The last checkpoint of a run, or the one with the number `seq`; `undefined` where there is none. */
  async restore(
    taskId: string,
    executionId: string,
    seq?: number,
  ): Promise<Record<string, unknown> | undefined> {
    try {
      const query = seq === undefined ? {} : { seq };
      return (await this.tasks.checkpoint(taskId, executionId, query)).state ?? undefined;
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  }

  /**
   * Registers an agent where it is missing, makes a key for it, and returns its client. A registered agent is changed to
   * `spec`. For development and set-up scripts: each call makes one more key. The key of an admin.
   */
  async enroll(agentId: string, spec: AgentSpec = {}): Promise<Client> {
    let agent: Agent;
    try {
      agent = await this.agents.get(agentId);
      if (Object.keys(spec).length > 0) agent = await this.agents.update(agentId, spec);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      agent = await this.agents.create({ ...spec, agentId });
    }
    const { apiKey } = await this.keys.create({ role: "agent", agentId, label: "handoffd SDK" });
    return this.as(agentId, apiKey ?? "", { agentVersion: agent.agentVersion });
  }

  /** The same broker under the key of an agent. */
  as(
    agentId: string,
    apiKey: string,
    more: Pick<ClientOptions, "agentVersion" | "signingSecret"> = {},
  ): Client {
    const { signingSecret: _, agentVersion: __, ...kept } = this.#options;
    return new Client({ ...kept, ...more, agentId, apiKey });
  }
}

/** A message that goes out in pieces. */
export class HandoffStream {
  readonly handoffId: string;
  readonly #handoffs: Handoffs;
  readonly #options: CallOptions;
  #seq = 1;
  #ended = false;

  /** Made by {@link Client.stream}. */
  constructor(handoffs: Handoffs, handoffId: string, options: CallOptions = {}) {
    this.#handoffs = handoffs;
    this.handoffId = handoffId;
    const { signal, timeoutMs, retries } = options;
    this.#options = { signal, timeoutMs, retries };
  }

  /**
   * Adds a chunk: `append` has items for arrays and texts for texts, `set` has values, both by JSON pointers.
   *
   * @throws ConflictError where the stream has ended.
   */
  send(chunk: Pick<ChunkBody, "append" | "set">): Promise<Answer<"appendChunks">> {
    return this.#put(chunk);
  }

  /** Adds a turn of the conversation. */
  turn(role: string, content: unknown): Promise<Answer<"appendChunks">> {
    return this.send({ append: { "/conversationHistoryVerbatim": [{ role, content }] } });
  }

  /** The message is whole. Once; {@link Client.stream} calls it at the end. */
  async close(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    await this.#put({ close: true });
  }

  /** There will be no message. */
  async abort(reason: string): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    await this.#put({ abort: true, reason });
  }

  async #put(chunk: Omit<ChunkBody, "seq">): Promise<Answer<"appendChunks">> {
    const taken = await this.#handoffs.appendChunks(
      this.handoffId,
      [{ ...chunk, seq: this.#seq }],
      this.#options,
    );
    this.#seq = taken.expectedSeq;
    return taken;
  }
}

/** A receiver's words on its refusal or failure, without the code that begins them or that is all of them. */
export function wordsOf(verdict: unknown, reason?: string | null): string | undefined {
  const { error, details } = (verdict ?? {}) as { error?: unknown; details?: unknown };
  const isObject = typeof error === "object" && error !== null;
  const { code, message } = (isObject ? error : { message: error }) as { code?: unknown; message?: unknown };
  const isPresent = (words: unknown): boolean => words !== undefined && words !== null && words !== "";
  const codes = [code, reason].filter((one) => typeof one === "string" && one !== "");
  let words = isPresent(message) ? message : details;
  if (codes.includes(words) && isPresent(details)) words = details;
  if (!isPresent(words)) return undefined;
  const text = typeof words === "string" ? words : JSON.stringify(words);
  const prefix = codes.map((one) => `${String(one)}: `).find((one) => text.startsWith(one) && text !== one);
  return prefix === undefined ? text : text.slice(prefix.length);
}

/** The agent of a client that has to have one. */
export function requiredAgent(client: Client): string {
  if (!client.agentId) throw new HandoffdError("the client has no agentId");
  return client.agentId;
}

/** An environment variable; none where the runtime has no environment or does not let it be read. */
export function environment(name: string): string | undefined {
  try {
    return globalThis.process?.env[name] || undefined;
  } catch {
    return undefined;
  }
}
