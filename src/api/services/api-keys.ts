import type { Duration } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type ApiKeyService,
  CreateApiKeyRequestSchema,
  CreateInstalledAppRequestSchema,
  type RevokeApiKeyRequest,
  RevokeApiKeyRequestSchema,
  RotateApiKeyRequestSchema,
} from "../../../gen/webhook/v1/api_key_pb.ts";
import { createApiKey, listApiKeys } from "../../db/api-keys.ts";
import { createInstalledApp, installedAppExists, listInstalledApps } from "../../db/installed-apps.ts";
import { revokeApiKey, type WebhooksFate } from "../../db/key-revocation.ts";
import { rotateApiKey } from "../../db/key-rotation.ts";
import { invisibleCharacter } from "../../invisible-characters.ts";
import { isPermission, permissionChoices } from "../../permissions.ts";
import type { ApiContext } from "../context.ts";
import { invalidFields } from "../errors.ts";
import {
  apiKeyMessage,
  assertFields,
  assertText,
  installedAppMessage,
  isProcess,
  isUuid,
  unknownProcess,
} from "./messages.ts";

const MAX_NAME_CHARACTERS = 100;
const MAX_GRACE_MS = 7 * 24 * 3_600_000;

/** Makes and ends the keys that every request carries (contract, section 5). */
export function apiKeyService({ db }: ApiContext): ServiceImpl<typeof ApiKeyService> {
  return {
    async createApiKey(request) {
      assertFields(CreateApiKeyRequestSchema, request);
      assertName(request.name);
      const permissions = [...new Set(request.permissions)];
      if (permissions.length === 0 || !permissions.every(isPermission)) {
        throw invalidFields([
          { field: "permissions", description: `must be one or more of ${permissionChoices()}` },
        ]);
      }
      const allowedProcesses = [...new Set(request.allowedProcesses)];
      const unknown = allowedProcesses.find((process) => !isProcess(process));
      if (unknown !== undefined) {
        throw invalidFields([
          { field: "allowed_processes", description: `names ${unknownProcess(unknown)}` },
        ]);
      }
      const installedAppId = request.installedApplicationId ?? null;
      if (
        installedAppId !== null &&
        !(isUuid(installedAppId) && (await installedAppExists(db, installedAppId)))
      ) {
        throw invalidFields([
          {
            field: "installed_application_id",
            description: "is not the id of an installed app; list them or create one",
          },
        ]);
      }
      const made = await createApiKey(db, {
        name: request.name,
        permissions,
        allowedProcesses,
        installedAppId,
      });
      return { apiKey: apiKeyMessage(made.key), secret: made.secret };
    },

    async listApiKeys() {
      return { apiKeys: (await listApiKeys(db)).map(apiKeyMessage) };
    },

    async revokeApiKey(request) {
      assertFields(RevokeApiKeyRequestSchema, request);
      assertKeyId("api_key_id", request.apiKeyId);
      const done = await revokeApiKey(db, request.apiKeyId.toLowerCase(), fateOf(request));
      return {
        apiKey: apiKeyMessage(done.key),
        webhooksTransferred: done.transferred,
        webhooksDeleted: done.deleted,
      };
    },

    async rotateApiKey(request) {
      assertFields(RotateApiKeyRequestSchema, request);
      assertKeyId("api_key_id", request.apiKeyId);
      const { key, secret } = await rotateApiKey(
        db,
        request.apiKeyId.toLowerCase(),
        graceOf(request.gracePeriod),
      );
      return { apiKey: apiKeyMessage(key), secret };
    },

    async createInstalledApp(request) {
      assertFields(CreateInstalledAppRequestSchema, request);
      assertName(request.name);
      return { installedApp: installedAppMessage(await createInstalledApp(db, request.name)) };
    },

    async listInstalledApps() {
      return { installedApps: (await listInstalledApps(db)).map(installedAppMessage) };
    },
  };
}

function assertName(name: string): void {
  assertText("name", name, MAX_NAME_CHARACTERS);
  if (name.trim() === "")
    throw invalidFields([{ field: "name", description: "must hold more than white space" }]);
  const invisible = invisibleCharacter(name);
  if (invisible)
    throw invalidFields([
      {
        field: "name",
        description: `must not hold ${invisible}: control and formatting characters are not shown; remove it`,
      },
    ]);
}

/** What becomes of the key's webhooks must be told, even when it has none: nobody loses any by leaving it out. */
function fateOf(request: RevokeApiKeyRequest): WebhooksFate {
  switch (request.webhooks.case) {
    case "deleteWebhooks":
      return "delete";
    case "transferToKeyId": {
      const transferTo = request.webhooks.value;
      assertKeyId("transfer_to_key_id", transferTo);
      if (transferTo.toLowerCase() === request.apiKeyId.toLowerCase()) {
        throw invalidFields([
          { field: "transfer_to_key_id", description: "must be another key than the revoked one" },
        ]);
      }
      return { transferTo: transferTo.toLowerCase() };
    }
    default:
      throw invalidFields([
        { field: "webhooks", description: "is required: set transfer_to_key_id or delete_webhooks" },
      ]);
  }
}

/** In milliseconds. */
function graceOf(period: Duration | undefined): number {
  const ms = period === undefined ? 0 : Number(period.seconds) * 1_000 + period.nanos / 1_000_000;
  if (ms >= 0 && ms <= MAX_GRACE_MS) return ms;
  throw invalidFields([
    { field: "grace_period", description: "must be 0 to 7 days, such as 86400s, or unset" },
  ]);
}

function assertKeyId(field: string, id: string): void {
  if (!isUuid(id)) throw invalidFields([{ field, description: "must be the id of an API key, a UUID" }]);
}
