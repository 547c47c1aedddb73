// A class a resource, a method an operation. Each method returns the broker's answer as it is; `Client` has
// what takes several calls.

export * from "./services/handoffs.js";
export * from "./services/operators.js";
export * from "./services/registry.js";
export type { Query_ } from "./services/service.js";
export * from "./services/tasks.js";
