/** A thin client of the mesh daemon on this machine. */

export declare const VERSION: string;

export type Priority = "now" | "next" | "low";

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

export interface JsonObject {
  [key: string]: JsonValue;
}

export interface SendOptions {
  priority?: Priority;
  meta?: JsonObject;
  /** The message that is answered, by its id at the broker. */
  replyToId?: string;
  /** The same id is accepted once, also after a failure. */
  clientMessageId?: string;
}

export interface PostOptions extends SendOptions {
  mentions?: string[];
}

/** The options of the Intent Protocol; times are seconds. */
export interface PublishOptions {
  namespace?: string;
  visibility?: "private" | "public";
  priority?: number;
  delay?: number;
  maxAttempts?: number;
  backoffBase?: number;
  targetWorker?: string;
  requiredCapability?: string;
  /** The same id is accepted once, also after a failure. */
  clientMessageId?: string;
}

export interface SendAnswer {
  client_message_id: string;
  status?: "queued" | "inflight";
  broker_message_id?: string;
  history_id?: string;
  duplicate?: boolean;
}

export interface InboxItem {
  id: string;
  client_message_id: string;
  broker_message_id: string | null;
  mesh: string;
  topic: string | null;
  sender_pubkey: string;
  sender_name: string;
  body: string | null;
  meta: string | null;
  received_at: string;
  reply_to_id: string | null;
}

export interface InboxFilter {
  since?: string;
  topic?: string;
  from?: string;
  limit?: number;
}

export interface Peer {
  pubkey: string;
  memberPubkey: string;
  displayName: string;
  status: string;
  summary: string | null;
  mesh: string;
  [key: string]: unknown;
}

export interface TopicInfo {
  id: string;
  name: string;
  description: string | null;
  visibility: "public" | "private" | "dm";
  memberCount: number;
  createdAt: string;
  subscribed: boolean;
}

export interface MeshEvent {
  id: string;
  event: string;
  data: Record<string, unknown>;
}

export interface Topics {
  post(topic: string, message: string, options?: PostOptions): Promise<SendAnswer>;
  subscribe(topic: string): Promise<{ ok: true; topic: string; subscribed: true }>;
  unsubscribe(topic: string): Promise<{ ok: true; topic: string; subscribed: false }>;
  list(): Promise<TopicInfo[]>;
}

export interface DaemonOptions {
  mesh?: string;
  directory?: string;
  transport?: "auto" | "unix" | "tcp";
  timeoutMs?: number;
}

export declare class NotRunning extends Error {}

export declare class ApiError extends Error {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

export declare class NotCanonical extends TypeError {}

export declare class MeshDaemon {
  readonly directory: string;
  readonly topic: Topics;
  constructor(options?: DaemonOptions);
  send(to: string, message: string, options?: SendOptions): Promise<SendAnswer>;
  publish(goal: string, payload: JsonValue, options?: PublishOptions): Promise<SendAnswer>;
  inbox(filter?: InboxFilter): Promise<InboxItem[]>;
  peers(): Promise<Peer[]>;
  health(): Promise<Record<string, unknown>>;
  version(): Promise<Record<string, unknown>>;
  events(options?: { signal?: AbortSignal }): AsyncGenerator<MeshEvent, void, void>;
}

export declare function findDirectory(mesh?: string): string;

export declare function canonicalMeta(meta: JsonObject | null | undefined): string;

export declare function requestFingerprint(parts: {
  kind: "topic" | "dm" | "queue";
  ref: string;
  body: string | Uint8Array;
  priority?: Priority;
  meta?: JsonObject | null;
  replyToId?: string | null;
  envelopeVersion?: number;
}): string;
