import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  IncidentSchema,
  IncidentService,
  IncidentWebhookSchema,
} from "../../../gen/webhook/v1/incident_pb.ts";
import { assertText, BY_ID, callerScope, isUuid, optionalUuid, readPage } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { DomainError } from "../../contract/errors.ts";
import { present, timestampOf } from "../../contract/present.ts";
import type { Db } from "../../lib/pg/index.ts";
import { causeOfLatest } from "../causes.ts";
import { causeIn } from "../dns-zones.ts";
import {
  getIncident,
  type IncidentPosition,
  type IncidentRow,
  type IncidentTimes,
  type IncidentWebhookRow,
  listIncidents,
  listIncidentWebhooks,
} from "../incidents.ts";

/** The maximum number of incidents per page, and the number if a request names none. */
const PAGE_SIZES = { most: 100, usual: 20 };
/** The same for the webhooks of an incident. */
const WEBHOOK_PAGE_SIZES = { most: 1_000, usual: 100 };
/** The maximum length of a subject in a filter, in characters. */
const MAX_HOST = 300;

const BY_END = {
  of: ({ endedUs, id }: IncidentPosition) => Buffer.from(`${endedUs ?? "open"} ${id}`),
  parse(token: Buffer): IncidentPosition | undefined {
    const [, us, id] = /^(open|\d{1,16}) (\S+)$/.exec(String(token)) ?? [];
    if (us === undefined || id === undefined || !isUuid(id)) return undefined;
    return { endedUs: us === "open" ? null : BigInt(us), id };
  },
};

/** Lists and returns incidents. */
export function incidentService({ db }: { db: Db }): ServiceImpl<typeof IncidentService> {
  return {
    async listIncidents(request, handler) {
      const { open, webhookId, host, customer } = request;
      const scope = callerScope(handler, customer);
      assertText("host", host, MAX_HOST);
      const filter = { open, webhookId, subject: host === "" ? undefined : host };
      const { rows, nextPageToken } = await readPage(
        request,
        BY_END,
        (page) => listIncidents(db, scope, filter, page),
        PAGE_SIZES,
      );
      return { incidents: rows.map(incidentMessage), nextPageToken };
    },

    async getIncident(request, handler) {
      const scope = callerScope(handler);
      const incidentId = optionalUuid("incident_id", request.incidentId);
      const incident = await getIncident(db, scope, incidentId);
      if (!incident) {
        throw new DomainError(
          "INCIDENT_NOT_FOUND",
          `there is no incident ${incidentId}; list the incidents to find its id`,
        );
      }
      const { rows, nextPageToken } = await readPage(
        request,
        BY_ID,
        (page) => listIncidentWebhooks(db, scope, incident.id, page),
        WEBHOOK_PAGE_SIZES,
      );
      return { incident: incidentMessage(incident), webhooks: rows.map(webhookMessage), nextPageToken };
    },
  };
}

function incidentMessage({ endedUs: _, ...row }: IncidentRow): MessageInitShape<typeof IncidentSchema> {
  return present({
    ...row,
    ...timesOf(row),
    cause: causeIn(row.subject, { ...causeOfLatest(row.lastError), code: row.cause }),
  });
}

function webhookMessage({
  id,
  process,
  ...row
}: IncidentWebhookRow): MessageInitShape<typeof IncidentWebhookSchema> {
  return present({ ...row, ...timesOf(row), webhookId: id, webhookProcess: processName(process) });
}

const timesOf = ({ since, ended, nextAttempt }: IncidentTimes) => ({
  since: timestampFromDate(since),
  ended: timestampOf(ended),
  nextAttempt: timestampOf(nextAttempt),
});
