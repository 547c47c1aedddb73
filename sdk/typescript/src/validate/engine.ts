import type { Json } from "../canonical.js";

/** The part of JSON Schema 2020-12 that the message schemas use; scripts/generate.mjs refuses any other keyword. */
export interface Schema {
  readonly type?: string | readonly string[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean;
  readonly pattern?: string;
  readonly format?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  /** Limits as the schema document spells them. */
  readonly "x-limit"?: Readonly<Record<string, string>>;
  readonly items?: Schema;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly enum?: readonly Json[];
  readonly anyOf?: readonly Schema[];
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
}

/** One error: where, which keyword of which schema, and the value. */
export interface SchemaError {
  readonly pointer: string;
  readonly keyword: keyof Schema;
  readonly schema: Schema;
  readonly value: Json;
  /** The missing or unknown member, for `required` and `additionalProperties`. */
  readonly name?: string;
}

/** The RFC 6901 reference token of a name. */
export function token(name: string | number): string {
  return `/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** The value at an RFC 6901 pointer; `undefined` where there is none. */
export function at(value: Json | undefined, pointer: string): Json | undefined {
  let found = value;
  for (const each of pointer.split("/").slice(1)) {
    const name = each.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(found)) found = /^(0|[1-9]\d*)$/.test(name) ? found[Number(name)] : undefined;
    else found = isObject(found) ? member(found, name) : undefined;
  }
  return found;
}

export function isObject(value: Json | undefined): value is { [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A member by its own name, never one of the prototype. */
export function member(value: { [name: string]: Json }, name: string): Json | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

/** All errors of a value against a schema, in document order; `root` resolves `$ref`. */
export function errors(value: Json, schema: Schema, root: Schema = schema): SchemaError[] {
  const found: SchemaError[] = [];
  walk(value, schema, root, "", found);
  return found;
}

function walk(value: Json, schema: Schema, root: Schema, pointer: string, found: SchemaError[]): void {
  const wrong = (keyword: keyof Schema, name?: string): void => {
    found.push({ pointer, keyword, schema, value, ...(name === undefined ? {} : { name }) });
  };
  if (schema.$ref) {
    const target = root.$defs?.[schema.$ref.replace("#/$defs/", "")];
    if (!target) throw new Error(`the schema has no ${schema.$ref}`);
    walk(value, target, root, pointer, found);
  }
  if (schema.type !== undefined && !hasType(value, schema.type)) wrong("type");
  if (schema.enum && !schema.enum.some((option) => option === value)) wrong("enum");
  if (schema.anyOf && !schema.anyOf.some((option) => errors(value, option, root).length === 0))
    wrong("anyOf");
  if (typeof value === "string") {
    const length = [...value].length;
    if (schema.minLength !== undefined && length < schema.minLength) wrong("minLength");
    if (schema.maxLength !== undefined && length > schema.maxLength) wrong("maxLength");
    if (schema.pattern !== undefined && !pattern(schema.pattern).test(value)) wrong("pattern");
    if (schema.format !== undefined && !hasFormat(value, schema.format)) wrong("format");
  } else if (typeof value === "number") {
    if (schema.minimum !== undefined && value < schema.minimum) wrong("minimum");
    if (schema.maximum !== undefined && value > schema.maximum) wrong("maximum");
  } else if (Array.isArray(value)) {
    if (schema.maxItems !== undefined && value.length > schema.maxItems) wrong("maxItems");
    if (schema.uniqueItems && repeats(value)) wrong("uniqueItems");
    const { items } = schema;
    if (items)
      value.forEach((item, index) => {
        walk(item, items, root, pointer + token(index), found);
      });
  } else if (isObject(value)) {
    if (schema.minProperties !== undefined && Object.keys(value).length < schema.minProperties)
      wrong("minProperties");
    for (const name of schema.required ?? []) if (!Object.hasOwn(value, name)) wrong("required", name);
    const properties = schema.properties ?? {};
    for (const [name, each] of Object.entries(value)) {
      const known = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (known) walk(each, known, root, pointer + token(name), found);
      else if (schema.additionalProperties === false) wrong("additionalProperties", name);
    }
  }
}

function hasType(value: Json, type: string | readonly string[]): boolean {
  if (typeof type !== "string") return type.some((each) => hasType(value, each));
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function repeats(items: readonly Json[]): boolean {
  return new Set(items.map((item) => JSON.stringify(item))).size < items.length;
}

const compiled = new Map<string, RegExp>();

function pattern(text: string): RegExp {
  const known = compiled.get(text) ?? new RegExp(text, "u");
  compiled.set(text, known);
  return known;
}

function hasFormat(text: string, format: string): boolean {
  if (format === "uuid") return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
  if (format === "date-time") return isDateTime(text);
  throw new Error(`the schema names the unknown format ${format}`);
}

const DATE_TIME =
  /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|([+-])(\d{2}):(\d{2}))$/;

/** RFC 3339 §5.6, calendar and leap seconds included. */
function isDateTime(text: string): boolean {
  const parts = DATE_TIME.exec(text);
  if (!parts) return false;
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const days = [
    31,
    year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28,
    31,
    30,
    31,
    30,
    31,
    31,
    30,
    31,
    30,
    31,
  ];
  if (day < 1 || day > (days[month - 1] ?? 0)) return false;
  if (hour > 23 || minute > 59 || second > 60) return false;
  const offset = parts[7] === undefined ? 0 : Number(parts[8]) * 60 + Number(parts[9]);
  if (parts[7] !== undefined && (Number(parts[8]) > 23 || Number(parts[9]) > 59)) return false;
  if (second < 60) return true;
  // A leap second is the last one of a day in UTC.
  const inUtc = hour * 60 + minute + (parts[7] === "-" ? offset : -offset);
  return (inUtc + 2 * 1440) % 1440 === 1439;
}
