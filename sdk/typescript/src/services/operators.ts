// The work of operators and auditors: agents, allowlist, log, caps, contracts, persons, decisions.

import type { Answer, Body, CallOptions } from "../transport.js";
import { pages, type Query_, Service, split } from "./service.js";

/** Agents: who hands off, and who takes. */
export class Agents extends Service {
  /** Registers an agent. The answer has `apiKey`, `signingSecret` and `webhookSecret`, this once. Operator. */
  create(spec: Body<"createAgent">, options?: CallOptions): Promise<Answer<"createAgent">> {
    return this.transport.call("createAgent", { body: spec, ...options });
  }
  /** All registered agents. */
  list(options?: CallOptions): Promise<Answer<"listAgents">> {
    return this.transport.call("listAgents", options);
  }
  /**
   * One agent, with its state and its delivery.
   *
   * .
   * @throws NotFoundError for an id that is not registered.
   */
  get(agentId: string, options?: CallOptions): Promise<Answer<"getAgent">> {
    return this.transport.call("getAgent", { path: { agentId }, ...options });
  }
  /** Each agent as brokers notice it: breakers, failures, latency, polls, what waits. Operator or auditor. */
  receivers(query: Query_<"listReceivers"> = {}): Promise<Answer<"listReceivers">> {
    return this.transport.call("listReceivers", split(query));
  }
  /** One agent as brokers notice it, in windows of five minutes. Operator or auditor. */
  receiver(agentId: string, options?: CallOptions): Promise<Answer<"getReceiver">> {
    return this.transport.call("getReceiver", { path: { agentId }, ...options });
  }
  /** Changes the named members; a list replaces, an absent member leaves alone. Operator. */
  update(agentId: string, spec: Body<"patchAgent">, options?: CallOptions): Promise<Answer<"patchAgent">> {
    return this.transport.call("patchAgent", { path: { agentId }, body: spec, ...options });
  }
  /** Removes an agent; its keys stop working. Operator. */
  async delete(agentId: string, options?: CallOptions): Promise<void> {
    await this.transport.call("deleteAgent", { path: { agentId }, ...options });
  }
  /** The transports that the broker serves, each with the fields of `delivery.config` and `delivery.credentials`. */
  transports(options?: CallOptions): Promise<Answer<"listTransports">> {
    return this.transport.call("listTransports", options);
  }
  /** Sends a marked test by the agent's own transport; `delivered` says whether it went out. Operator. */
  testDelivery(agentId: string, options?: CallOptions): Promise<Answer<"testDelivery">> {
    return this.transport.call("testDelivery", { path: { agentId }, ...options });
  }
  /** Finds receivers by capability or for a task. */
  match(query: Query_<"matchAgents">): Promise<Answer<"matchAgents">> {
    return this.transport.call("matchAgents", split(query));
  }
  /** Tool definitions by which a model hands off: `openai`, `anthropic` or `mcp`. */
  handoffTool(agentId: string, query: Query_<"getHandoffTool">): Promise<Answer<"getHandoffTool">> {
    return this.transport.call("getHandoffTool", { path: { agentId }, ...split(query) });
  }
  /** Makes a new `signing` or `webhook` secret; the old one stays valid for `overlapSeconds`. */
  rotateSecret(
    agentId: string,
    kind: "signing" | "webhook",
    body: Body<"rotateSecret"> = {},
    options?: CallOptions,
  ): Promise<Answer<"rotateSecret">> {
    return this.transport.call("rotateSecret", { path: { agentId, kind }, body, ...options });
  }
}

/** The allowlist: who may hand off to whom. */
export class Allowlist extends Service {
  /** The whole allowlist as a graph. */
  graph(options?: CallOptions): Promise<Answer<"getAllowlist">> {
    return this.transport.call("getAllowlist", options);
  }
  /** The ids and `type:…` entries to which an agent may hand off. */
  targets(agentId: string, options?: CallOptions): Promise<Answer<"getHandoffTargets">> {
    return this.transport.call("getHandoffTargets", { path: { agentId }, ...options });
  }
  /** Replaces an agent's list. The answer names targets that are not registered. Operator. */
  setTargets(
    agentId: string,
    handoffTargets: readonly string[],
    options?: CallOptions,
  ): Promise<Answer<"putHandoffTargets">> {
    const body: Body<"putHandoffTargets"> = { handoffTargets: [...handoffTargets] };
    return this.transport.call("putHandoffTargets", { path: { agentId }, body, ...options });
  }
  /** Adds one target, an id or `type:<agentType>`; one that is there stays. Operator. */
  addTarget(agentId: string, target: string, options?: CallOptions): Promise<Answer<"addHandoffTarget">> {
    return this.transport.call("addHandoffTarget", { path: { agentId, target }, ...options });
  }
  /**
   * Removes one target. Operator.
   *
   * .
   * @throws NotFoundError where the list does not have it.
   */
  removeTarget(
    agentId: string,
    target: string,
    options?: CallOptions,
  ): Promise<Answer<"removeHandoffTarget">> {
    return this.transport.call("removeHandoffTarget", { path: { agentId, target }, ...options });
  }
}

/** The audit log: records, tree heads, proofs. Auditor, operator, admin. */
export class Audit extends Service {
  /** The latest tree head: a signed statement of the log's size and root. */
  treeHead(options?: CallOptions): Promise<Answer<"getTreeHead">> {
    return this.transport.call("getTreeHead", options);
  }
  /** How far tree heads are outside the database, and the newest head that a witness cosigned. */
  heads(options?: CallOptions): Promise<Answer<"listPublishedHeads">> {
    return this.transport.call("listPublishedHeads", options);
  }
  /** The latest cosigned tree head as a signed note. */
  async checkpointNote(options?: CallOptions): Promise<string> {
    return (await this.transport.send("getCheckpointNote", { accept: "text/plain", ...options })).text();
  }
  /** Every key that signs or signed the log. */
  treeKeys(options?: CallOptions): Promise<Answer<"listTreeKeys">> {
    return this.transport.call("listTreeKeys", options);
  }
  /** Records as they were hashed, in log order, from `from` on. */
  records(query: Query_<"listRecords"> = {}): Promise<Answer<"listRecords">> {
    return this.transport.call("listRecords", split(query));
  }
  /** The hashes from a record up to the root of a tree, by `leafIndex`, `recordHash` or `handoffId`. */
  inclusionProof(query: Query_<"getInclusionProof">): Promise<Answer<"getInclusionProof">> {
    return this.transport.call("getInclusionProof", split(query));
  }
  /** The hashes that prove that the tree of size `from` is the beginning of the present one. */
  consistencyProof(query: Query_<"getConsistencyProof">): Promise<Answer<"getConsistencyProof">> {
    return this.transport.call("getConsistencyProof", split(query));
  }
  /** A tile of the caller's log, `<L>/<N>[.p/<W>]`, in its bytes. */
  async tile(path: string, options?: CallOptions): Promise<Uint8Array> {
    return (await this.transport.send("getTile", { path: { path }, accept: "*/*", ...options })).bytes;
  }
  /** The tree head of a log that is published without a key. */
  async logCheckpoint(logId: string, options?: CallOptions): Promise<string> {
    return (
      await this.transport.send("getLogCheckpoint", { path: { logId }, accept: "text/plain", ...options })
    ).text();
  }
  /** A tile of a log that is published without a key, in its bytes. */
  async logTile(logId: string, path: string, options?: CallOptions): Promise<Uint8Array> {
    const request = { path: { logId, path }, accept: "*/*", ...options };
    return (await this.transport.send("getLogTile", request)).bytes;
  }
}

/** Rolling caps: what the tenant and its agents may spend within a window, such as `P1D`. */
export class Caps extends Service {
  /** The caps, with what of each is used now. */
  list(query: Query_<"listCaps"> = {}): Promise<Answer<"listCaps">> {
    return this.transport.call("listCaps", split(query));
  }
  /** Sets a cap: `usd` as decimal text, `tokens` as a number, or both. */
  put(window: string, body: Body<"putCap">, query: Query_<"putCap"> = {}): Promise<Answer<"putCap">> {
    return this.transport.call("putCap", { path: { window }, body, ...split(query) });
  }
  /** Takes a cap away, or what it holds of one unit. One of the settings for that window counts again. Operator. */
  async delete(window: string, query: Query_<"deleteCap"> = {}): Promise<void> {
    await this.transport.call("deleteCap", { path: { window }, ...split(query) });
  }
}

/** Contracts: what rules an edge. */
export class Contracts extends Service {
  /** Contracts, each in its highest version; an agent sees those that speak of it. */
  list(query: Query_<"listContracts"> = {}): Promise<Answer<"listContracts">> {
    return this.transport.call("listContracts", split(query));
  }
  /** One contract, in its highest version or in the one that `version` names. */
  get(contractId: string, query: Query_<"getContract"> = {}): Promise<Answer<"getContract">> {
    return this.transport.call("getContract", { path: { contractId }, ...split(query) });
  }
  /**
   * Stores a version of a contract, which rules its edge from then on. Operator.
   *
   * .
   * @throws SchemaInvalidError where the linter refuses it.
   * .
   * @throws ConflictError where the version is there with other content.
   */
  put(contractId: string, body: Body<"putContract">, options?: CallOptions): Promise<Answer<"putContract">> {
    return this.transport.call("putContract", { path: { contractId }, body, ...options });
  }
  /** The linter's findings on contracts; nothing is stored. */
  lint(body: Body<"lintContracts">, options?: CallOptions): Promise<Answer<"lintContracts">> {
    return this.transport.call("lintContracts", { body, ...options });
  }
  /** Judges kept messages under changed rules. */
  whatIf(body: Body<"whatIf">, options?: CallOptions): Promise<Answer<"whatIf">> {
    return this.transport.call("whatIf", { body, ...options });
  }
}

/** Personal data: access reports and erasure. */
export class DataSubjects extends Service {
  /** The access report: what the broker holds of a person, and for which handoffs. Operator. */
  get(subjectId: string, options?: CallOptions): Promise<Answer<"getDataSubject">> {
    return this.transport.call("getDataSubject", { path: { subjectId }, ...options });
  }
  /** The reference to a user, by which tasks, handoffs and costs are listed. Operator. */
  search(body: Body<"searchUser">, options?: CallOptions): Promise<Answer<"searchUser">> {
    return this.transport.call("searchUser", { body, ...options });
  }
  /** Erases a person's data; the answer is the certificate, or says where it will be. */
  erase(
    subjectId: string,
    body: Body<"eraseDataSubject"> = {} as Body<"eraseDataSubject">,
    query: Query_<"eraseDataSubject"> = {},
  ): Promise<Answer<"eraseDataSubject">> {
    return this.transport.call("eraseDataSubject", { path: { subjectId }, body, ...split(query) });
  }
  /** One page of erasures without the persons, the newest first. */
  erasures(query: Query_<"listErasures"> = {}): Promise<Answer<"listErasures">> {
    return this.transport.call("listErasures", split(query));
  }
  /** One erasure: its state, and the certificate once it is complete. */
  erasure(subjectId: string, erasureId: string, options?: CallOptions): Promise<Answer<"getErasure">> {
    return this.transport.call("getErasure", { path: { subjectId, erasureId }, ...options });
  }
}

/** Legal holds: data that no erasure may touch. */
export class LegalHolds extends Service {
  /** Legal holds, released ones too. */
  list(query: Query_<"listLegalHolds"> = {}): Promise<Answer<"listLegalHolds">> {
    return this.transport.call("listLegalHolds", split(query));
  }
  /**
   * One hold.
   *
   * .
   * @throws NotFoundError where there is none of that id.
   */
  get(holdId: string, options?: CallOptions): Promise<Answer<"getLegalHold">> {
    return this.transport.call("getLegalHold", { path: { holdId }, ...options });
  }
  /** Places a hold: what it covers is neither erased nor forgotten until its release. The same again changes nothing. Operator. */
  place(
    holdId: string,
    body: Body<"placeLegalHold">,
    options?: CallOptions,
  ): Promise<Answer<"placeLegalHold">> {
    return this.transport.call("placeLegalHold", { path: { holdId }, body, ...options });
  }
  /** Ends a hold. Operator. */
  release(
    holdId: string,
    body: Body<"releaseLegalHold"> = {} as Body<"releaseLegalHold">,
    options?: CallOptions,
  ): Promise<Answer<"releaseLegalHold">> {
    return this.transport.call("releaseLegalHold", { path: { holdId }, body, ...options });
  }
}

/** Dead letters: handoffs that wait for a person. */
export class DeadLetters extends Service {
  /** One page of dead letters, the newest first. */
  list(query: Query_<"listDeadLetters"> = {}): Promise<Answer<"listDeadLetters">> {
    return this.transport.call("listDeadLetters", split(query));
  }
  /** All dead letters that fit, page by page. */
  iterate(
    query: Query_<"listDeadLetters"> = {},
  ): AsyncGenerator<Answer<"listDeadLetters">["items"][number], void> {
    return pages((cursor) => this.list({ ...query, ...(cursor === undefined ? {} : { cursor }) }));
  }
  /** One dead letter, with what the gate found. */
  /** `explain: true` adds why the safety rules refuse it; for operators. */
  get(handoffId: string, query: Query_<"getDeadLetter"> = {}): Promise<Answer<"getDeadLetter">> {
    return this.transport.call("getDeadLetter", { path: { handoffId }, ...split(query) });
  }
  /** Upholds an appeal: the gate runs afresh, with the findings in `waive` let pass. */
  release(
    handoffId: string,
    body: Body<"releaseDeadLetter">,
    options?: CallOptions,
  ): Promise<Answer<"releaseDeadLetter">> {
    return this.transport.call("releaseDeadLetter", { path: { handoffId }, body, ...options });
  }
  /** Never delivers a dead letter. Operator. */
  discard(
    handoffId: string,
    body: Body<"discardDeadLetter">,
    options?: CallOptions,
  ): Promise<Answer<"discardDeadLetter">> {
    return this.transport.call("discardDeadLetter", { path: { handoffId }, body, ...options });
  }
  /** Releases those that fit a filter, each judged afresh, at the given rate; with `dryRun` they are counted. Operator. */
  releaseMany(
    body: Body<"releaseDeadLetters">,
    options?: CallOptions,
  ): Promise<Answer<"releaseDeadLetters">> {
    return this.transport.call("releaseDeadLetters", { body, ...options });
  }
  /** Discards those that fit a filter; with `dryRun` they are counted. Operator. */
  discardMany(
    body: Body<"discardDeadLetters">,
    options?: CallOptions,
  ): Promise<Answer<"discardDeadLetters">> {
    return this.transport.call("discardDeadLetters", { body, ...options });
  }
}

/** Escalations: questions that wait for a person. */
export class Escalations extends Service {
  /** One page of escalations, the newest first. */
  list(query: Query_<"listEscalations"> = {}): Promise<Answer<"listEscalations">> {
    return this.transport.call("listEscalations", split(query));
  }
  /** All escalations that fit, page by page. */
  iterate(
    query: Query_<"listEscalations"> = {},
  ): AsyncGenerator<Answer<"listEscalations">["items"][number], void> {
    return pages((cursor) => this.list({ ...query, ...(cursor === undefined ? {} : { cursor }) }));
  }
  /** One escalation, with what led to it. */
  get(escalationId: string, options?: CallOptions): Promise<Answer<"getEscalation">> {
    return this.transport.call("getEscalation", { path: { escalationId }, ...options });
  }
  /** Decides: `action` decides the task's next step; the decider and the reason become a record. Operator. */
  resolve(
    escalationId: string,
    body: Body<"resolveEscalation">,
    options?: CallOptions,
  ): Promise<Answer<"resolveEscalation">> {
    return this.transport.call("resolveEscalation", { path: { escalationId }, body, ...options });
  }
  /** Decides those that fit a filter alike, at the given rate; with `dryRun` they are counted. Operator. */
  resolveMany(
    body: Body<"resolveEscalations">,
    options?: CallOptions,
  ): Promise<Answer<"resolveEscalations">> {
    return this.transport.call("resolveEscalations", { body, ...options });
  }
}
