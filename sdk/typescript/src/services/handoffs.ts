// Handoffs: submitting, waiting, reading, verdicts, the inbox.

import {
  AnswerError,
  BudgetExhaustedError,
  BudgetMismatchError,
  ConflictError,
  LineageMismatchError,
  LoopDetectedError,
  type ProblemError,
  StepReusedError,
  TransportError,
  WaitTimeoutError,
} from "../errors.js";
import { statedDigest } from "../step.js";
import type { Answer, Body, CallOptions } from "../transport.js";
import type { ChunkBody, Handoff, HandoffMessage, Submitted } from "../types.js";
import { pages, type Query_, Service, split, wholeSeconds } from "./service.js";

/** How a message is submitted. */
export interface SubmitOptions extends CallOptions {
  /** Seconds to hold the answer for the verdict, 60 at most. */
  readonly waitSeconds?: number | undefined;
  /**
   * Names the submission: the same message under the same key counts once, and another message under it is refused (422). `handOff`
   * writes new ids and times into each message: `run` and `step` make its repeats safe.
   */
  readonly idempotencyKey?: string | undefined;
  /** W3C trace context of the request; a valid one goes before the message's. */
  readonly traceparent?: string | undefined;
  /** The vendors' additions to the trace context. */
  readonly tracestate?: string | undefined;
  /** The token by which the sender holds `parentHandoffId`: refused where another worker took that over. */
  readonly fencingToken?: number | undefined;
}

/** A handoff that is with the broker. */
export interface Sent extends Submitted {
  /** The sender's run, under which its checkpoint is stored. */
  readonly executionId: string;
  /** Whether the broker had this handoff before. */
  readonly replayed: boolean;
}

/** A receiver's statement at the end of its part. Further members are kept with the record. */
export type Completion = Omit<Body<"completeHandoff">, "fencingToken">;
/** The amount spent on a task up to now, cumulative as in a message. */
export type SaidCost = NonNullable<Completion["costTracking"]>;

/** How a question or an answer is sent. */
export interface DialogueOptions extends CallOptions {
  /** Names the request: the same request under the same key counts once, also after the question is closed. */
  readonly idempotencyKey?: string | undefined;
}

/** A lease holder's statement on itself. */
export interface LeaseOptions extends CallOptions {
  /** How often the broker will hear of this worker, in milliseconds: after four such intervals of silence another one may take over. */
  readonly heartbeatIntervalMs?: number | undefined;
}

/** How long a wait lasts. */
export interface WaitOptions extends CallOptions {
  /** Milliseconds to wait at most; without it the wait has no end. */
  readonly withinMs?: number | undefined;
}

/** Handoffs: submissions, verdicts, inboxes. */
export class Handoffs extends Service {
  /** The message behind a claim check, by the token of its link. */
  claimed(token: string, options?: CallOptions): Promise<Answer<"readClaim">> {
    return this.transport.call("readClaim", { path: { token }, ...options });
  }
  /**
   * Submits a message. The answer comes once handoff, checkpoint and record are durable.
   *
   * A message whose `handoffId` the broker has already, from the same agent on the same task, counts as sent: the step was
   * done before. Sent again with another body it is not changed. If the messages have digests of their steps, as
   * `buildHandoffMessage` writes them, and these differ, it is another step under the same name, and an error.
   *
   * @throws StepReusedError where the id was used for another step.
   * @throws StaleLeaseError where `fencingToken` is not the current one.
   * @throws ProblemError where the gate refuses; `failures` names each thing.
   * @throws ConflictError where the id belongs to a handoff of another sender or task.
   */
  async submit(message: HandoffMessage, options: SubmitOptions = {}): Promise<Sent> {
    const { waitSeconds, idempotencyKey, traceparent, tracestate, fencingToken, ...rest } = options;
    const prefer = waitSeconds === undefined ? undefined : `wait=${wholeSeconds(waitSeconds)}`;
    const token = fencingToken === undefined ? undefined : String(fencingToken);
    const headers = {
      prefer,
      "idempotency-key": idempotencyKey,
      "handoff-fencing-token": token,
      traceparent,
      tracestate,
    };
    const { executionId } = message.fromAgent;
    try {
      const response = await this.transport.send("submitHandoff", {
        body: message,
        headers,
        waitSeconds,
        ...rest,
      });
      const replayed = response.headers.get("idempotency-replayed") === "true";
      return { ...(response.json() as Submitted), executionId, replayed };
    } catch (error) {
      // Whether it was committed is unknown; its id finds it.
      if (error instanceof TransportError || error instanceof AnswerError)
        Object.assign(error, { handoffId: message.handoffId, taskId: message.taskId });
      if (!SENT_BEFORE.some((each) => error instanceof each)) throw error;
      const { problem } = error as ProblemError;
      const own = statedDigest(message);
      const told = problem.storedStepDigest ?? undefined;
      const include = own && !told ? ({ include: "message" } as const) : {};
      const known = await this.get(message.handoffId, { ...include, ...rest }).catch(() => undefined);
      // The broker writes UUIDs in small letters.
      const sameTask = known?.taskId.toLowerCase() === message.taskId.toLowerCase();
      if (!known || !sameTask || known.fromAgent.agentId !== message.fromAgent.agentId) throw error;
      const stored = told ?? statedDigest(known.message);
      if (own && stored && own !== stored) throw new StepReusedError(problem, own, stored);
      return {
        ...submittedOf(known),
        executionId: known.fromAgent.executionId ?? executionId,
        replayed: true,
      };
    }
  }
  /** Runs the gate and writes nothing. */
  validate(
    message: HandoffMessage | object,
    query: Query_<"validateHandoff"> = {},
  ): Promise<Answer<"validateHandoff">> {
    return this.transport.call("validateHandoff", { body: message, ...split(query) });
  }
  /** One handoff with its result; `include: "message"` adds the stored message. */
  get(handoffId: string, query: Query_<"getHandoff"> = {}): Promise<Answer<"getHandoff">> {
    return this.transport.call("getHandoff", {
      path: { handoffId },
      waitSeconds: query.wait ?? 0,
      ...split(query),
    });
  }
  /** One page of handoffs, the newest first. */
  list(query: Query_<"listHandoffs"> = {}): Promise<Answer<"listHandoffs">> {
    return this.transport.call("listHandoffs", split(query));
  }
  /** All handoffs that fit, page by page. */
  iterate(query: Query_<"listHandoffs"> = {}): AsyncGenerator<Answer<"listHandoffs">["items"][number], void> {
    return pages((cursor) => this.list({ ...query, ...(cursor === undefined ? {} : { cursor }) }));
  }
  /** One page of refused messages, the newest first: ids, codes and places. Operator. */
  refusals(query: Query_<"listRefusals"> = {}): Promise<Answer<"listRefusals">> {
    return this.transport.call("listRefusals", split(query));
  }
  /** All refused messages that fit, page by page. */
  iterateRefusals(
    query: Query_<"listRefusals"> = {},
  ): AsyncGenerator<Answer<"listRefusals">["items"][number], void> {
    return pages((cursor) => this.refusals({ ...query, ...(cursor === undefined ? {} : { cursor }) }));
  }
  /** The last attempts at delivering a handoff, the newest first, with the receiver's answers. Operator. */
  attempts(handoffId: string): Promise<Answer<"listAttempts">> {
    return this.transport.call("listAttempts", { path: { handoffId } });
  }
  /** The handed-over context as one guarded user turn, in text. */
  async prompt(handoffId: string, query: Omit<Query_<"getPrompt">, "format"> = {}): Promise<string> {
    const response = await this.transport.send("getPrompt", {
      path: { handoffId },
      accept: "text/plain",
      ...split(query),
    });
    return response.text();
  }
  /** The same as messages for a chat API. */
  promptMessages(
    handoffId: string,
    query: Omit<Query_<"getPrompt">, "format"> = {},
  ): Promise<Answer<"getPrompt">> {
    return this.transport.call("getPrompt", {
      path: { handoffId },
      ...split({ ...query, format: "messages" }),
    });
  }
  /** The conversation as it was sent, turn by turn, also where a compressed message was delivered. */
  history(handoffId: string, query: Query_<"getHistory"> = {}): Promise<Answer<"getHistory">> {
    return this.transport.call("getHistory", { path: { handoffId }, ...split(query) });
  }
  /** Waits up to `wait` seconds (60 at most) for handoffs and claims up to `max` of them. The receiver's key. */
  inbox(agentId: string, query: Query_<"pollInbox"> = {}): Promise<Answer<"pollInbox">> {
    const { query: parameters, ...options } = split(query);
    return this.transport.call("pollInbox", {
      path: { agentId },
      query: parameters,
      waitSeconds: query.wait ?? 0,
      ...options,
    });
  }
  /**
   * Takes responsibility: the task is the receiver's, and its lease begins.
   *
   * .
   * @throws StaleLeaseError where the claim is over.
   */
  accept(
    handoffId: string,
    fencingToken: number,
    options: LeaseOptions = {},
  ): Promise<Answer<"acceptHandoff">> {
    const { heartbeatIntervalMs, ...rest } = options;
    const body = { fencingToken, ...(heartbeatIntervalMs === undefined ? {} : { heartbeatIntervalMs }) };
    return this.transport.call("acceptHandoff", { path: { handoffId }, body, ...rest });
  }
  /** The record has a reason in capitals, digits and underscores unchanged. Only before an acceptance. */
  reject(
    handoffId: string,
    fencingToken: number,
    said: { readonly reason: string; readonly details?: unknown },
    options?: CallOptions,
  ): Promise<Answer<"rejectHandoff">> {
    return this.transport.call("rejectHandoff", {
      path: { handoffId },
      body: { ...said, fencingToken },
      ...options,
    });
  }
  /** Extends the lease. */
  heartbeat(
    handoffId: string,
    fencingToken: number,
    options: LeaseOptions = {},
  ): Promise<Answer<"heartbeatHandoff">> {
    const { heartbeatIntervalMs, ...rest } = options;
    const body = { fencingToken, ...(heartbeatIntervalMs === undefined ? {} : { heartbeatIntervalMs }) };
    return this.transport.call("heartbeatHandoff", { path: { handoffId }, body, ...rest });
  }
  /**
   * Takes an accepted handoff over from another worker of the agent whose holder is silent; the answer has the new fencing token.
   *
   * @throws ConflictError where the holder was heard of, or said no interval.
   */
  takeOver(handoffId: string, options: LeaseOptions = {}): Promise<Answer<"takeOverHandoff">> {
    const { heartbeatIntervalMs, ...rest } = options;
    const body = heartbeatIntervalMs === undefined ? {} : { heartbeatIntervalMs };
    return this.transport.call("takeOverHandoff", { path: { handoffId }, body, ...rest });
  }
  /**
   * Ends the work with its result; the same request again changes nothing.
   *
   * .
   * @throws StaleLeaseError where the lease is over.
   * .
   * @throws SafetyViolationError where the result is refused.
   */
  complete(
    handoffId: string,
    fencingToken: number,
    said: Completion,
    options?: CallOptions,
  ): Promise<Answer<"completeHandoff">> {
    return this.transport.call("completeHandoff", {
      path: { handoffId },
      body: { ...said, fencingToken },
      ...options,
    });
  }
  /**
   * Gives up: the task goes back to the sender's checkpoint, or as the contract says. An error in capitals, digits and
   * underscores goes into the record as it is; any other text is content.
   */
  fail(
    handoffId: string,
    fencingToken: number,
    said: { readonly error: string; readonly details?: unknown; readonly costTracking?: SaidCost },
    options?: CallOptions,
  ): Promise<Answer<"failHandoff">> {
    return this.transport.call("failHandoff", {
      path: { handoffId },
      body: { ...said, fencingToken },
      ...options,
    });
  }
  /**
   * Adds chunks to a handoff whose message comes in pieces (`stream: {open: true}`), in order. Those before the first that is refused are
   * kept; the same chunks again do nothing.
   *
   * @throws ConflictError for a gap, another content under a number, or a stream that has ended; `problem.expectedSeq` comes next.
   */
  async appendChunks(
    handoffId: string,
    chunks: readonly ChunkBody[],
    options: CallOptions = {},
  ): Promise<Answer<"appendChunks">> {
    return this.transport.call("appendChunks", { path: { handoffId }, lines: chunks, ...options });
  }
  /** One page of the chunks of a handoff, from the number `from` on; `wait` holds an empty answer. */
  chunks(handoffId: string, query: Query_<"listChunks"> = {}): Promise<Answer<"listChunks">> {
    const { query: parameters, ...options } = split(query);
    return this.transport.call("listChunks", {
      path: { handoffId },
      query: parameters,
      waitSeconds: query.wait ?? 0,
      ...options,
    });
  }
  /** Chunks in order, as they come, until the stream ends; the last one has `close` or `abort`. */
  async *readChunks(
    handoffId: string,
    after = 0,
    options: CallOptions = {},
  ): AsyncGenerator<Answer<"listChunks">["items"][number], void> {
    for (let from = after + 1; ; ) {
      const page = await this.chunks(handoffId, { from, wait: 30, ...options });
      yield* page.items;
      from = page.next;
      if (page.items.length === 0 && !page.stream.open) return;
    }
  }
  /**
   * Asks the sender: the handoff is INPUT_REQUIRED until the answer, and no lease runs. One question is open at most; the same request
   * again changes nothing.
   */
  ask(
    handoffId: string,
    fencingToken: number,
    said: Omit<Body<"askHandoff">, "fencingToken">,
    options: DialogueOptions = {},
  ): Promise<Answer<"askHandoff">> {
    const { idempotencyKey, ...rest } = options;
    return this.transport.call("askHandoff", {
      path: { handoffId },
      body: { ...said, fencingToken },
      headers: { "idempotency-key": idempotencyKey },
      ...rest,
    });
  }
  /** Answers the open question, as the sender or a person: the receiver works on under a new lease. */
  answer(
    handoffId: string,
    body: Body<"answerHandoff">,
    options: DialogueOptions = {},
  ): Promise<Answer<"answerHandoff">> {
    const { idempotencyKey, ...rest } = options;
    const headers = { "idempotency-key": idempotencyKey };
    return this.transport.call("answerHandoff", { path: { handoffId }, body, headers, ...rest });
  }
  /** The receiver's last question, with its answer where there is one, as one guarded user turn, in text. */
  async questionPrompt(handoffId: string, options: CallOptions = {}): Promise<string> {
    const request = { path: { handoffId }, accept: "text/plain", ...options };
    return (await this.transport.send("getQuestionPrompt", request)).text();
  }
  /** The same as messages for a chat API. */
  questionPromptMessages(handoffId: string, options: CallOptions = {}): Promise<Answer<"getQuestionPrompt">> {
    return this.transport.call("getQuestionPrompt", {
      path: { handoffId },
      query: { format: "messages" },
      ...options,
    });
  }
  /** The handoff's result, or those of all receivers of a list, as one guarded user turn for the model of the agent that asked, in text. */
  async resultPrompt(handoffId: string, options: CallOptions = {}): Promise<string> {
    const request = { path: { handoffId }, accept: "text/plain", ...options };
    return (await this.transport.send("getResultPrompt", request)).text();
  }
  /** The same as messages for a chat API. */
  resultPromptMessages(handoffId: string, options: CallOptions = {}): Promise<Answer<"getResultPrompt">> {
    return this.transport.call("getResultPrompt", {
      path: { handoffId },
      query: { format: "messages" },
      ...options,
    });
  }
  /**
   * Waits until a handoff has ended, and the handoffs that stood in for it too. Returns the last of them, with its result
   * where it is COMPLETED. The broker holds each request, so that nothing is polled.
   *
   * @throws WaitTimeoutError after `withinMs`; the handoff goes on all the same.
   */
  async waitEnded(handoffId: string, options: WaitOptions = {}): Promise<Handoff> {
    const deadline = options.withinMs === undefined ? undefined : Date.now() + options.withinMs;
    const call: CallOptions = {
      signal: options.signal,
      timeoutMs: options.timeoutMs,
      retries: options.retries,
    };
    let id = handoffId;
    for (;;) {
      const left = deadline === undefined ? HELD_MS : Math.min(HELD_MS, deadline - Date.now());
      const wait = Math.max(0, Math.ceil(left / 1000));
      const handoff = await this.transport.call("getHandoff", {
        path: { handoffId: id },
        query: wait > 0 ? { wait, until: "ended" } : {},
        waitSeconds: wait,
        ...call,
      });
      if (handoff.successorId && handoff.successorId !== id) id = handoff.successorId;
      else if (handoff.endedAt) return handoff;
      else if (left <= 0) throw new WaitTimeoutError(id, handoff.status, options.withinMs ?? 0);
    }
  }
}

/** Milliseconds for which the broker holds one request of a wait. */
const HELD_MS = 30_000;

/** The members of a submission's answer, of a handoff that the broker has already. */
function submittedOf(known: Handoff): Submitted {
  const { handoffId, taskId, status, links, receipt, successorId, group, context, warnings, reason } = known;
  return {
    ...{ handoffId, taskId, status, links },
    ...(receipt ? { receipt } : {}),
    ...(successorId ? { successorId } : {}),
    ...(group ? { group } : {}),
    ...(context ? { context } : {}),
    ...(warnings ? { warnings } : {}),
    ...(reason ? { reason } : {}),
  };
}

/**
 * Refusals that a handoff which is committed already meets when it is sent again: its id is taken, its money is set aside.
 */
const SENT_BEFORE = [
  ConflictError,
  BudgetExhaustedError,
  BudgetMismatchError,
  LineageMismatchError,
  LoopDetectedError,
];
