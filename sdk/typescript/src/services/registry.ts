// Keys, schemas, subscriptions, and the broker itself.

import type { Answer, Body, CallOptions } from "../transport.js";
import { type Query_, Service, split } from "./service.js";

/** Keys: who may call. Admin. */
export class Keys extends Service {
  /** Makes a key; it is shown this once. */
  create(body: Body<"createKey">, options?: CallOptions): Promise<Answer<"createKey">> {
    return this.transport.call("createKey", { body, ...options });
  }
  /** All keys, without their secrets. */
  list(options?: CallOptions): Promise<Answer<"listKeys">> {
    return this.transport.call("listKeys", options);
  }
  /** Ends a key now. */
  revoke(keyId: string, options?: CallOptions): Promise<Answer<"revokeKey">> {
    return this.transport.call("revokeKey", { path: { keyId }, ...options });
  }
  /** The sessions of the console, the newest first. Operator. */
  sessions(query: Query_<"listSessions"> = {}): Promise<Answer<"listSessions">> {
    return this.transport.call("listSessions", split(query));
  }
  /** Ends a session of the console. Operator. */
  endSession(sessionId: string, options?: CallOptions): Promise<Answer<"endSession">> {
    return this.transport.call("endSession", { path: { sessionId }, ...options });
  }
}

/** Schemas of messages, events and contracts' payloads. */
export class Schemas extends Service {
  /** The schemas that the broker knows: of messages, and with a key the tenant's payload schemas. */
  list(options?: CallOptions): Promise<Answer<"listSchemas">> {
    return this.transport.call("listSchemas", options);
  }
  /** The JSON Schema of messages, by version such as `2.2`. */
  async handoff(version: string, options?: CallOptions): Promise<Record<string, unknown>> {
    return this.transport.call("getHandoffSchema", { path: { version }, accept: SCHEMA, ...options });
  }
  /** The types of events, with their schemas. */
  events(options?: CallOptions): Promise<Answer<"listEventSchemas">> {
    return this.transport.call("listEventSchemas", options);
  }
  /** The JSON Schema of one type of event. */
  async event(type: string, options?: CallOptions): Promise<Record<string, unknown>> {
    return this.transport.call("getEventSchema", { path: { type }, accept: SCHEMA, ...options });
  }
  /** SW4RM's JSON Schema (draft-07) of a handoff's context. */
  async sw4rmContext(options?: CallOptions): Promise<Record<string, unknown>> {
    return this.transport.call("getSw4rmContextSchema", { accept: SCHEMA, ...options });
  }
  /** The payload schemas, each with its highest version. */
  payloads(options?: CallOptions): Promise<Answer<"listPayloadSchemas">> {
    return this.transport.call("listPayloadSchemas", options);
  }
  /** The versions of one payload schema. */
  payloadVersions(schemaId: string, options?: CallOptions): Promise<Answer<"listPayloadSchemaVersions">> {
    return this.transport.call("listPayloadSchemaVersions", { path: { schemaId }, ...options });
  }
  /** One version of a payload schema. */
  payload(schemaId: string, version: string, options?: CallOptions): Promise<Answer<"getPayloadSchema">> {
    return this.transport.call("getPayloadSchema", { path: { schemaId, version }, ...options });
  }
  /**
   * Registers a version of a payload schema; the same again changes nothing. Operator.
   *
   * .
   * @throws ConflictError for other content under a version that is there.
   */
  putPayload(
    schemaId: string,
    version: string,
    body: Body<"putPayloadSchema">,
    options?: CallOptions,
  ): Promise<Answer<"putPayloadSchema">> {
    return this.transport.call("putPayloadSchema", { path: { schemaId, version }, body, ...options });
  }
  /** Says what a change of a payload schema breaks, and which version it needs. */
  comparePayload(
    schemaId: string,
    body: Body<"comparePayloadSchema">,
    options?: CallOptions,
  ): Promise<Answer<"comparePayloadSchema">> {
    return this.transport.call("comparePayloadSchema", { path: { schemaId }, body, ...options });
  }
}

const SCHEMA = "application/schema+json";

/** The broker itself. */
export class ServiceStatus extends Service {
  /** Whether the process answers. */
  async livez(options?: CallOptions): Promise<string> {
    return (await this.transport.send("livez", { accept: "text/plain", ...options })).text();
  }
  /** Whether the broker takes requests; a broker that does not is an {@link UnavailableError}. */
  async readyz(options?: CallOptions): Promise<string> {
    return (await this.transport.send("readyz", { accept: "text/plain", ...options })).text();
  }
  /** Prometheus metrics. */
  async metrics(options?: CallOptions): Promise<string> {
    return (await this.transport.send("metrics", { accept: "*/*", ...options })).text();
  }
}

/** Subscriptions: who is told of events. */
export class Subscriptions extends Service {
  /** The answer has the secret, this once. */
  create(body: Body<"createSubscription">, options?: CallOptions): Promise<Answer<"createSubscription">> {
    return this.transport.call("createSubscription", { body, ...options });
  }
  /** All subscriptions, without their secrets. */
  list(options?: CallOptions): Promise<Answer<"listSubscriptions">> {
    return this.transport.call("listSubscriptions", options);
  }
  /** One subscription. */
  get(subscriptionId: string, options?: CallOptions): Promise<Answer<"getSubscription">> {
    return this.transport.call("getSubscription", { path: { subscriptionId }, ...options });
  }
  /** Changes the named members; `enabled: true` switches it on again. */
  update(
    subscriptionId: string,
    body: Body<"changeSubscription">,
    options?: CallOptions,
  ): Promise<Answer<"changeSubscription">> {
    return this.transport.call("changeSubscription", { path: { subscriptionId }, body, ...options });
  }
  /** Ends a subscription: nothing more is sent to it. */
  async delete(subscriptionId: string, options?: CallOptions): Promise<void> {
    await this.transport.call("deleteSubscription", { path: { subscriptionId }, ...options });
  }
  /** The last attempts at telling a subscription, the newest first. */
  deliveries(
    subscriptionId: string,
    query: Query_<"listSubscriptionDeliveries"> = {},
  ): Promise<Answer<"listSubscriptionDeliveries">> {
    return this.transport.call("listSubscriptionDeliveries", { path: { subscriptionId }, ...split(query) });
  }
  /** Delivers all events again from a cursor or an RFC 3339 time on. */
  replay(
    subscriptionId: string,
    since: string,
    options?: CallOptions,
  ): Promise<Answer<"replaySubscription">> {
    return this.transport.call("replaySubscription", {
      path: { subscriptionId },
      body: { since },
      ...options,
    });
  }
  /** Makes a new secret; the old one stays valid for `overlapSeconds`. */
  rotateSecret(
    subscriptionId: string,
    body: Body<"rotateSubscriptionSecret"> = {},
    options?: CallOptions,
  ): Promise<Answer<"rotateSubscriptionSecret">> {
    return this.transport.call("rotateSubscriptionSecret", { path: { subscriptionId }, body, ...options });
  }
}
