/**
 * A thin client of the mesh daemon on this machine: Node 18 or later, no dependencies. Types are in `index.d.ts`.
 *
 * The daemon encrypts, stores and repeats messages. After an error that leaves open whether a message was accepted, send it
 * again with the same `clientMessageId`: it is accepted once.
 */

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";

export const VERSION = "0.9.0";

/** No daemon of the mesh can be reached. */
export class NotRunning extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "NotRunning";
  }
}

/** The daemon refused a request; `status` and `body` say why. */
export class ApiError extends Error {
  constructor(status, body) {
    const words = [body.error ?? "unknown", body.conflict, body.capability, body.reason];
    super(`${words.filter(Boolean).join(": ")} (status ${status})`);
    this.name = "ApiError";
    this.status = status;
    this.body = body;
  }
}

/** Readers disagree about a value, so it cannot be `meta`. */
export class NotCanonical extends TypeError {
  constructor(message) {
    super(message);
    this.name = "NotCanonical";
  }
}

/** The daemon of one mesh, found by its files: `sock`, or `http.port` and `local_token`. */
export class MeshDaemon {
  constructor({ mesh, directory, transport = "auto", timeoutMs = 30_000 } = {}) {
    if (!["auto", "unix", "tcp"].includes(transport)) {
      throw new TypeError("transport is auto, unix or tcp");
    }
    this.directory = directory ?? findDirectory(mesh);
    this.transport = transport;
    this.timeoutMs = timeoutMs;
    this.topic = {
      post: (topic, message, options = {}) => {
        const body = { topic, message };
        if (options.mentions?.length) {
          body.mentions = options.mentions;
        }
        return this.#send("/v1/topic/post", body, options);
      },
      subscribe: (topic) => this.#call("POST", "/v1/topic/subscribe", JSON.stringify({ topic })),
      unsubscribe: (topic) => this.#call("POST", "/v1/topic/unsubscribe", JSON.stringify({ topic })),
      list: async () => (await this.#call("GET", "/v1/topic/list")).topics,
    };
  }

  /** Sends a message to a key, a name, `#topic`, `@group`, `queue:NAME` or `*`. */
  send(to, message, options = {}) {
    return this.#send("/v1/send", { to, message }, options);
  }

  /** Publishes an intent at its server, through the outbox. */
  publish(goal, payload, options = {}) {
    const { clientMessageId, namespace, visibility, priority, delay } = options;
    const body = {
      goal,
      payload,
      namespace,
      visibility,
      priority,
      delay,
      max_attempts: options.maxAttempts,
      backoff_base: options.backoffBase,
      target_worker: options.targetWorker,
      required_capability: options.requiredCapability,
      client_message_id: clientMessageId,
    };
    // Members that are undefined are left out.
    return this.#call("POST", "/v1/intents", JSON.stringify(body));
  }

  /** Received messages, newest first. */
  async inbox({ since, topic, from, limit } = {}) {
    const given = Object.entries({ since, topic, from, limit }).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
    return (await this.#call("GET", query ? `/v1/inbox?${query}` : "/v1/inbox")).items;
  }

  /** The members of the mesh that are connected. */
  async peers() {
    return (await this.#call("GET", "/v1/peers")).peers;
  }

  health() {
    return this.#call("GET", "/v1/health");
  }

  version() {
    return this.#call("GET", "/v1/version");
  }

  /** Events as they happen: `id`, `event` and `data`. Ends when the daemon closes the stream, or by `signal`. */
  async *events({ signal } = {}) {
    const response = await this.#open("GET", "/v1/events", undefined, signal);
    if (response.statusCode !== 200) {
      await answer(response);
    }
    response.setEncoding("utf8");
    let buffer = "";
    for await (const chunk of response) {
      buffer += chunk;
      let end = buffer.indexOf("\n\n");
      while (end >= 0) {
        const event = parseEvent(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (event) {
          yield event;
        }
        end = buffer.indexOf("\n\n");
      }
    }
  }

  #send(path, body, { priority, meta, replyToId, clientMessageId }) {
    const whole = { ...body };
    if (priority !== undefined) whole.priority = priority;
    if (replyToId !== undefined) whole.reply_to_id = replyToId;
    if (clientMessageId !== undefined) whole.client_message_id = clientMessageId;
    const canonical = canonicalMeta(meta);
    const text = JSON.stringify(whole);
    // The canonical text itself travels, so that nothing is written in another way.
    return this.#call("POST", path, canonical ? `${text.slice(0, -1)},"meta":${canonical}}` : text);
  }

  async #call(method, path, body) {
    const signal = AbortSignal.timeout(this.timeoutMs);
    return answer(await this.#open(method, path, body, signal));
  }

  #open(method, path, body, signal) {
    const options = { method, path, signal, headers: { Host: "localhost" }, agent: false };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.headers["Content-Length"] = Buffer.byteLength(body);
    }
    this.#address(options);
    return new Promise((resolve, reject) => {
      const request = httpRequest(options, resolve);
      request.on("error", (error) => {
        const isAbsent = ["ENOENT", "ECONNREFUSED"].includes(error.code);
        const message = `no daemon is running in ${this.directory}: ${error.message}`;
        reject(isAbsent ? new NotRunning(message, { cause: error }) : error);
      });
      request.end(body);
    });
  }

  #address(options) {
    const sock = join(this.directory, "sock");
    const mayUseUnix = this.transport !== "tcp" && process.platform !== "win32";
    if (mayUseUnix && (this.transport === "unix" || existsSync(sock))) {
      options.socketPath = sock;
      return;
    }
    try {
      options.host = "127.0.0.1";
      options.port = Number(readFileSync(join(this.directory, "http.port"), "utf8").trim());
      const token = readFileSync(join(this.directory, "local_token"), "utf8").trim();
      options.headers.Authorization = `Bearer ${token}`;
    } catch (error) {
      throw new NotRunning(`no daemon is running in ${this.directory}: ${error.message}`, { cause: error });
    }
  }
}

/** The directory of a mesh's daemon. Without a name, the only mesh of `config.json`. */
export function findDirectory(mesh) {
  if (process.env.CLAUDEMESH_DAEMON_DIR) {
    return process.env.CLAUDEMESH_DAEMON_DIR;
  }
  const home = process.env.HOME || homedir();
  let slug = mesh;
  if (slug === undefined) {
    const config = process.env.CLAUDEMESH_CONFIG_DIR || join(home, ".claudemesh");
    let meshes;
    try {
      ({ meshes } = JSON.parse(readFileSync(join(config, "config.json"), "utf8")));
    } catch (error) {
      throw new NotRunning(`no mesh is joined: ${error.message}`, { cause: error });
    }
    if (meshes?.length !== 1) {
      throw new TypeError("several meshes are joined, or none: name one");
    }
    slug = meshes[0].slug;
  }
  return join(home, ".claudemesh", "daemon", slug);
}

/** The canonical JSON (RFC 8785) of `meta`; empty for none and for an empty object. */
export function canonicalMeta(meta) {
  if (meta === undefined || meta === null) {
    return "";
  }
  if (!isObject(meta)) {
    throw new NotCanonical("meta must be an object");
  }
  return Object.keys(meta).length === 0 ? "" : canonical(meta);
}

/** What the daemon compares requests with one id by, as hex. A conflict shows its first 16 digits. */
export function requestFingerprint({
  kind,
  ref,
  body,
  priority = "next",
  meta,
  replyToId,
  envelopeVersion = 1,
}) {
  const bodyHash = createHash("sha256").update(body).digest("hex");
  const parts = [String(envelopeVersion), kind, ref, replyToId ?? "", priority, canonicalMeta(meta), bodyHash];
  return createHash("sha256").update(parts.join("\0")).digest("hex");
}

function canonical(value) {
  switch (typeof value) {
    case "boolean":
      return String(value);
    case "string":
      return canonicalString(value);
    case "number":
      return canonicalNumber(value);
    case "object":
      break;
    default:
      throw new NotCanonical(`${typeof value} has no JSON form`);
  }
  if (value === null) {
    return "null";
  }
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (!isObject(value)) {
    throw new NotCanonical("only plain objects have a JSON form");
  }
  // Strings of JavaScript compare by UTF-16 code units, as the standard demands.
  const members = Object.keys(value)
    .sort()
    .map((key) => `${canonicalString(key)}:${canonical(value[key])}`);
  return `{${members.join(",")}}`;
}

function canonicalNumber(value) {
  if (!Number.isFinite(value)) {
    throw new NotCanonical("a number is not finite");
  }
  const text = JSON.stringify(value);
  // An integer that is written without an exponent must be exact.
  if (/^-?[0-9]+$/.test(text) && !Number.isSafeInteger(value)) {
    throw new NotCanonical(`${text} is beyond 2^53-1`);
  }
  return text;
}

function canonicalString(text) {
  if (/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)) {
    throw new NotCanonical("a string has a lone surrogate");
  }
  return JSON.stringify(text);
}

function isObject(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return false;
  }
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

async function answer(response) {
  const chunks = [];
  for await (const chunk of response) {
    chunks.push(chunk);
  }
  let body = {};
  try {
    body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    // The status alone says what happened.
  }
  if (response.statusCode >= 400) {
    throw new ApiError(response.statusCode, body);
  }
  return body;
}

function parseEvent(block) {
  const event = {};
  const lines = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const [name, rest] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
    const value = rest.startsWith(" ") ? rest.slice(1) : rest;
    if (name === "data") {
      lines.push(value);
    } else if (name === "id" || name === "event") {
      event[name] = value;
    }
  }
  if (lines.length === 0) {
    return undefined;
  }
  event.data = JSON.parse(lines.join("\n"));
  return event;
}
