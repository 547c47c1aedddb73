/**
 * The SDK of handoffd: build, check and send handoff messages, work on them, verify what the broker says.
 *
 * Functions that need the file system or the broker's binary are in `handoffd/local`.
 *
 * @packageDocumentation
 */

export {
  type AgentState,
  type BuildOptions,
  buildHandoffMessage,
  type Constraints,
  DEFAULT_BUDGET_USD,
  type Free,
  KEEP_TURNS,
  type Loose,
  type LooseToolCall,
  MAX_BYTES,
  MAX_TURNS,
  type Target,
  WindowExceededError,
} from "./build.js";
export { canonicalize, type Json } from "./canonical.js";
export {
  Client,
  type ClientOptions,
  DEFAULT_URL,
  type Given,
  type HandOffOptions,
  HandoffStream,
  type ManyOptions,
} from "./client.js";
export * from "./errors.js";
export type { components, operations } from "./generated/openapi.js";
export { ERROR_CODES, OPERATIONS } from "./generated/operations.js";
export { VERSION } from "./generated/version.js";
export { currentTraceparent, derivedExecutionId, derivedId, nameId, randomId, traceparent } from "./ids.js";
export { type VerifiedReceipt, verifyReceipt } from "./receipt.js";
export type * from "./services.js";
export { signHandoffMessage, signMessage } from "./sign.js";
export { stepDigest } from "./step.js";
export {
  COMPRESS_AT,
  estimateTokens,
  type Measured,
  type Measurement,
  measureHandoffMessage,
  measureMessage,
} from "./tokens.js";
export type {
  Answer,
  Answers,
  Body,
  CallOptions,
  JsonOf,
  OperationId,
  Params,
  Part,
  Path,
  Query,
} from "./transport.js";
export type * from "./types.js";
export {
  type CheckedStage,
  INITIAL,
  type UncheckedStage,
  type ValidationOptions,
  type ValidationResult,
  validateHandoffMessage,
  validateSignedHandoffMessage,
} from "./validate/index.js";
export {
  accepted,
  type DeliveryContent,
  rejected,
  type VerifiedWebhook,
  verifyWebhook,
  type WebhookDelivery,
  type WebhookHeaders,
  type WebhookOptions,
} from "./webhook.js";
export {
  Completed,
  Fail,
  HEARTBEAT_MS,
  Job,
  type JobHandler,
  type JobParts,
  LeaseLostError,
  type PromptExtent,
  Reject,
  Worker,
  type WorkerEvent,
  type WorkerOptions,
  WorkerStoppedError,
} from "./worker.js";
