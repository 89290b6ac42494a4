import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { ReplayService, StartReplayRequest } from "../../../gen/webhook/v1/replay_pb.ts";
import { type AuditRecord, auditedCall } from "../../audit/index.ts";
import { hideSecrets, stateNotFit } from "../../calls/errors/index.ts";
import {
  assertText,
  BY_UUID,
  callerOf,
  callerScope,
  noWebhook,
  optionalUuid,
  readPage,
  type Scope,
} from "../../calls/index.ts";
import { isNotice, processName } from "../../contract/catalogue.ts";
import { DomainError } from "../../contract/errors.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import { getWebhook, lockWebhook } from "../../webhooks/index.ts";
import { replayEntry } from "../replay-entry.ts";
import {
  changeReplay,
  countOpenReplays,
  getReplay,
  hasOpenBackfill,
  insertReplay,
  listReplays,
  type NewReplay,
  type ReplayChange,
  type ReplayRow,
} from "../replays.ts";
import { replayMessage } from "./replay-messages.ts";
import { requestedReplay } from "./requested-replay.ts";

/** The maximum number of replays per page, and the number if a request names none. */
const PAGE_SIZES = { most: 1_000, usual: 100 };
/** The maximum length of an idempotency key, in characters. */
const MAX_KEY_CHARACTERS = 200;
/** The maximum numbers of replays that are running or paused. A running one takes an activity of a worker. */
const MAX_OPEN = { withoutOwner: 20, perOwner: 5, all: 60 };

/** Starts and controls replays. The workers run them. */
export function replayService({
  db,
  retentionDays,
  workflowUrl,
}: {
  db: Db;
  retentionDays: number;
  workflowUrl?: WorkflowUrl | undefined;
}): ServiceImpl<typeof ReplayService> {
  const message = (replay: ReplayRow, scope: Scope) => replayMessage(replay, scope, workflowUrl);

  async function change(handler: HandlerContext, replayId: string, what: ReplayChange) {
    const id = optionalUuid("replay_id", replayId) as string;
    const scope = callerScope(handler);
    return auditedCall(db, handler, async (trx, record) => {
      const changed = await changeReplay(trx, scope, id, what);
      const replay = await getReplay(trx, scope, id);
      if (!replay) throw noReplay(id);
      if (changed) await record(await entryOf(trx, ACTIONS[what], replay));
      else if (replay.ended !== null && !(what === "cancel" && replay.state === "cancelled"))
        throw hasEnded(replay);
      return { replay: message(replay, scope) };
    });
  }

  return {
    async startReplay(request, handler) {
      const scope = callerScope(
        handler,
        request.what.case === "resend" ? request.what.value.customer : undefined,
      );
      const wanted: NewReplay = {
        apiKeyId: callerOf(handler).id,
        idempotencyKey: checkedKey(request),
        ...requestedReplay(request),
      };
      return auditedCall(db, handler, async (trx, record) => {
        const { id, duplicate, same } = await insertReplay(trx, scope, wanted, retentionDays);
        if (!same) throw keyReused(id);
        const replay = (await getReplay(trx, scope, id)) as ReplayRow;
        if (duplicate) return { replay: message(replay, scope), duplicate };
        await assertWebhook(trx, scope, wanted);
        await assertRoom(trx, scope, wanted, id);
        await record(await entryOf(trx, "replay_started", replay));
        return { replay: message(replay, scope), duplicate };
      });
    },

    async getReplay(request, handler) {
      const id = optionalUuid("replay_id", request.replayId) as string;
      const scope = callerScope(handler);
      const replay = await getReplay(db, scope, id);
      if (!replay) throw noReplay(id);
      return { replay: message(replay, scope) };
    },

    async listReplays(request, handler) {
      const scope = callerScope(handler, request.customer);
      const { webhookId, open } = request;
      const { rows, nextPageToken } = await readPage(
        request,
        BY_UUID,
        ({ after, limit }) => listReplays(db, scope, { webhookId, open, before: after }, limit),
        PAGE_SIZES,
      );
      return { replays: rows.map((replay) => message(replay, scope)), nextPageToken };
    },

    pauseReplay: ({ replayId }, handler) => change(handler, replayId, "pause"),
    resumeReplay: ({ replayId }, handler) => change(handler, replayId, "resume"),
    cancelReplay: ({ replayId }, handler) => change(handler, replayId, "cancel"),
  };
}

const ACTIONS = {
  pause: "replay_paused",
  resume: "replay_resumed",
  cancel: "replay_cancelled",
} as const;

/** Stands in the audit log for all event types: only keys that may subscribe to every type see such an entry. */
const ALL_TYPES = 0;

async function entryOf(
  trx: Db,
  action: Parameters<typeof replayEntry>[0],
  { filter, ...replay }: ReplayRow,
): Promise<AuditRecord> {
  const { search, webhookId, process = await processOf(trx, webhookId), ...rest } = filter;
  const searched = search && hideSecrets(search.text);
  return replayEntry(action, replay, { ...rest, webhookId, process, search: searched });
}

async function processOf(trx: Db, webhookId: bigint | undefined): Promise<number> {
  const webhook = webhookId === undefined ? null : await getWebhook(trx, "everything", webhookId);
  return webhook?.process ?? ALL_TYPES;
}

/** @throws DomainError INVALID_ARGUMENT if the key is too long or PostgreSQL cannot store it */
function checkedKey({ idempotencyKey }: StartReplayRequest): string | null {
  if (idempotencyKey === "") return null;
  assertText("idempotency_key", idempotencyKey, MAX_KEY_CHARACTERS);
  return idempotencyKey;
}

/** @throws DomainError if the caller's scope has no such webhook, or a backfill is for one of notices */
async function assertWebhook(trx: Db, scope: Scope, { kind, filter }: NewReplay): Promise<void> {
  const { webhookId } = filter;
  if (webhookId === undefined) return;
  const webhook = await lockWebhook(trx, scope, webhookId);
  if (!webhook) throw noWebhook(webhookId);
  if (kind === "resend" || !isNotice(webhook.process)) return;
  throw stateNotFit(
    `webhook ${webhookId} receives ${processName(webhook.process)}, a notice of this service, and notices are not delivered later; list the webhooks or the deliveries for the current state`,
  );
}

/** @throws DomainError if too many replays are open, or another backfill of the webhook is */
async function assertRoom(trx: Db, scope: Scope, { kind, filter }: NewReplay, id: string): Promise<void> {
  if (kind === "backfill" && (await hasOpenBackfill(trx, filter.webhookId as bigint, id))) {
    throw stateNotFit(
      `another backfill of webhook ${filter.webhookId} is running or paused; wait until it has ended, or cancel it with CancelReplay if your key may see it`,
    );
  }
  const open = await countOpenReplays(trx, scope);
  const [most, whose] = limitOf(scope);
  if (open.own > most) {
    throw stateNotFit(
      `${most} replays of ${whose} are running or paused, the maximum; wait until one has ended, or cancel one with CancelReplay`,
    );
  }
  if (open.all <= MAX_OPEN.all || (scope !== "everything" && scope.customer !== null)) return;
  throw stateNotFit(
    `${MAX_OPEN.all} replays are running or paused, the maximum; try again when one has ended`,
  );
}

/** The maximum number of open replays of keys with a scope, and whose they are. */
function limitOf(scope: Scope): [most: number, whose: string] {
  if (scope === "everything") return [MAX_OPEN.withoutOwner, "keys without an app"];
  return [MAX_OPEN.perOwner, scope.customer === null ? "your app" : "your API keys"];
}

function noReplay(id: string): DomainError {
  return new DomainError("REPLAY_NOT_FOUND", `there is no replay ${id}; list the replays to find its id`);
}

function hasEnded({ id, state }: ReplayRow): DomainError {
  return stateNotFit(`replay ${id} is ${state}; start another one`);
}

function keyReused(id: string): DomainError {
  return new DomainError(
    "IDEMPOTENCY_KEY_REUSED",
    `idempotency_key was already used for a different replay, ${id}; use a new key for a new replay`,
    { metadata: { replay_id: id } },
  );
}
