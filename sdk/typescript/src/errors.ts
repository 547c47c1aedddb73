import type { components } from "./generated/openapi.js";
import { ERROR_CODES } from "./generated/operations.js";

/** The RFC 9457 problem of a refused request. */
export type Problem = components["schemas"]["ProblemDetails"];
/** One thing that the gate found: stage, code, RFC 6901 pointer into the message, sentence. */
export type Failure = components["schemas"]["FailureView"];
/** A code of docs/errors. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/** The base of all errors of this package. */
export class HandoffdError extends Error {
  override name = "HandoffdError";
}

/** The broker could not be reached, or the connection broke before an answer. `cause` has the reason. */
export class TransportError extends HandoffdError {
  override name = "TransportError";
  /** The handoff that was submitted or waited for: look it up, or submit the same message again. */
  handoffId?: string;
  /** The task of that handoff. */
  taskId?: string;
}

/** @deprecated The name until 0.3: {@link TransportError}. */
export const ConnectionError = TransportError;
/** @deprecated The name until 0.3: {@link TransportError}. */
export type ConnectionError = TransportError;

/**
 * An answer is not what the API's document says: a proxy gave it, or the broker is of another version. Whether the request had an
 * effect is unknown.
 */
export class AnswerError extends HandoffdError {
  override name = "AnswerError";
  /** The handoff that was submitted or waited for: look it up, or submit the same message again. */
  handoffId?: string;
  /** The task of that handoff. */
  taskId?: string;
}

/** A handoff did not end within the time that its caller waits. It goes on all the same. */
export class WaitTimeoutError extends HandoffdError {
  override name = "WaitTimeoutError";
  readonly handoffId: string;
  /** As of the last look. */
  readonly status: string;

  constructor(handoffId: string, status: string, withinMs: number) {
    super(`handoff ${handoffId} is ${status} after ${withinMs} ms`);
    this.handoffId = handoffId;
    this.status = status;
  }
}

/** A handoff ended without a completion: rejected, failed, expired, dead-lettered or cancelled. */
export class HandoffEndedBadlyError extends HandoffdError {
  override name = "HandoffEndedBadlyError";
  readonly handoffId: string;
  /** `REJECTED`, `FAILED`, `EXPIRED`, `DEAD_LETTERED` or `CANCELED`. */
  readonly status: string;
  /** A code. */
  readonly reason: string | undefined;
  /** The receiver's own words, where it said any. Data of another agent. */
  readonly words: string | undefined;

  constructor(handoffId: string, status: string, reason: string | undefined, words?: string) {
    const told = [reason, words === reason ? undefined : words].filter((part) => part).join(": ");
    super(`handoff ${handoffId} is ${status}${told ? `: ${told}` : ""}`);
    this.handoffId = handoffId;
    this.status = status;
    this.reason = reason;
    this.words = words;
  }
}

/** A signature, timestamp or proof does not hold. */
export class VerificationError extends HandoffdError {
  override name = "VerificationError";
}

/**
 * The broker refused a request. `code` is one of docs/errors; each code has a subclass, so that
 * `catch (error) { if (error instanceof StaleLeaseError) … }` reads as meant.
 */
export class ProblemError extends HandoffdError {
  override name = "ProblemError";
  /** HTTP status. */
  readonly status: number;
  /** The code of the problem; a later broker may have more codes than {@link ErrorCode}. */
  readonly code: string;
  /** All that the gate found; empty for errors of other origin. */
  readonly failures: readonly Failure[];
  /** The request's id in the broker's log; empty where a proxy answered. */
  readonly requestId: string;
  /** Milliseconds after which the broker asks to come back; absent without `Retry-After`. */
  readonly retryAfterMs: number | undefined;
  /** The whole problem document. */
  readonly problem: Problem;

  constructor(problem: Problem, retryAfterMs?: number) {
    const found = problem.failures.map(
      (failure) => `\n  ${failure.code} ${failure.pointer}: ${failure.message}`,
    );
    super(`${problem.status} ${problem.code}: ${problem.detail}${found.join("")}`);
    this.status = problem.status;
    this.code = problem.code;
    this.failures = problem.failures;
    this.requestId = problem.requestId;
    this.retryAfterMs = retryAfterMs;
    this.problem = problem;
  }
}

/** 401: no valid key. */
export class UnauthenticatedError extends ProblemError {}
/** 401: the message's HMAC is missing or wrong. */
export class SignatureInvalidError extends ProblemError {}
/** 422 or 400: the message does not fit the schema. */
export class SchemaInvalidError extends ProblemError {}
/** 403: role, identity or allowlist. */
export class ForbiddenError extends ProblemError {}
/** 422: a safety rule fired; the handoff is a dead letter. */
export class SafetyViolationError extends ProblemError {}
/** 422: a text holds a credential, and the settings refuse that. */
export class CredentialFoundError extends ProblemError {}
/** 422: nothing remains of the budget, or a cap has no room. */
export class BudgetExhaustedError extends ProblemError {}
/** 422: the budget relay does not add up. */
export class BudgetMismatchError extends ProblemError {}
/** 422: `parentHandoffId` is not the expected one. */
export class LineageMismatchError extends ProblemError {}
/** 422: the task goes in circles. */
export class LoopDetectedError extends ProblemError {}
/** 422: the message is larger than the receiver's context window. */
export class ContextTooLargeError extends ProblemError {}
/** 422: a completion states more rounds than the handoff allows. */
export class MaxIterationsError extends ProblemError {}
/** 422: the contract of the edge refuses. */
export class ContractViolationError extends ProblemError {}
/** 422: no live agent fits the target. */
export class NoCapableAgentError extends ProblemError {}
/** 422: the receiver would lack what it needs. */
export class IncompleteContextError extends ProblemError {}
/** 409: contradicts what is recorded. */
export class ConflictError extends ProblemError {}
/**
 * 409: another step of the same name was handed off before. The id is taken, and receiver, task, state, subtasks, constraints or history
 * differ; the same step again is not an error. Give the new step a name of its own.
 */
export class StepReusedError extends ConflictError {
  override name = "StepReusedError";
  /** The digest of the step that was refused. */
  readonly stepDigest: string;
  /** The digest of the step that has the id. */
  readonly storedDigest: string;

  constructor(problem: Problem, stepDigest: string, storedDigest: string) {
    super(problem);
    this.message += `\n  this step is ${stepDigest}, the one that was handed off is ${storedDigest}`;
    this.stepDigest = stepDigest;
    this.storedDigest = storedDigest;
  }
}
/** 409: the fencing token is not current. */
export class StaleLeaseError extends ProblemError {}
/** 404: no such thing within this tenant. */
export class NotFoundError extends ProblemError {}
/** 405. */
export class MethodNotAllowedError extends ProblemError {}
/** 415. */
export class UnsupportedMediaTypeError extends ProblemError {}
/** 413. */
export class PayloadTooLargeError extends ProblemError {}
/** 400: a malformed parameter, header or path. */
export class InvalidRequestError extends ProblemError {}
/** 429 or 503: come back after `retryAfterMs`; nothing was written. */
export class OverloadedError extends ProblemError {}
/** 503: the store is away; nothing was written. */
export class UnavailableError extends ProblemError {}
/** 500: a defect of the broker. */
export class InternalError extends ProblemError {}

/** The class for each code of the registry. */
export const ERROR_CLASSES: Readonly<
  Partial<Record<ErrorCode, new (problem: Problem, retryAfterMs?: number) => ProblemError>>
> = {
  UNAUTHENTICATED: UnauthenticatedError,
  SIGNATURE_INVALID: SignatureInvalidError,
  SCHEMA_INVALID: SchemaInvalidError,
  FORBIDDEN: ForbiddenError,
  SAFETY_VIOLATION: SafetyViolationError,
  CREDENTIAL_FOUND: CredentialFoundError,
  BUDGET_EXHAUSTED: BudgetExhaustedError,
  BUDGET_MISMATCH: BudgetMismatchError,
  LINEAGE_MISMATCH: LineageMismatchError,
  LOOP_DETECTED: LoopDetectedError,
  CONTEXT_TOO_LARGE: ContextTooLargeError,
  MAX_ITERATIONS: MaxIterationsError,
  CONTRACT_VIOLATION: ContractViolationError,
  NO_CAPABLE_AGENT: NoCapableAgentError,
  INCOMPLETE_CONTEXT: IncompleteContextError,
  CONFLICT: ConflictError,
  STALE_LEASE: StaleLeaseError,
  NOT_FOUND: NotFoundError,
  METHOD_NOT_ALLOWED: MethodNotAllowedError,
  UNSUPPORTED_MEDIA_TYPE: UnsupportedMediaTypeError,
  PAYLOAD_TOO_LARGE: PayloadTooLargeError,
  INVALID_REQUEST: InvalidRequestError,
  OVERLOADED: OverloadedError,
  UNAVAILABLE: UnavailableError,
  INTERNAL: InternalError,
};

/** Builds the typed error of a problem document. A code that this version does not know gives a plain {@link ProblemError}. */
export function toError(problem: Problem, retryAfterMs?: number): ProblemError {
  const known = ERROR_CODES.find((code) => code === problem.code);
  const Known = (known && ERROR_CLASSES[known]) ?? ProblemError;
  const error = new Known(problem, retryAfterMs);
  error.name = error.constructor.name;
  return error;
}
