import { Text } from "@mantine/core";
import { useSearchParams } from "react-router";
import {
  DeliveryService,
  DeliveryState,
  type FailureReason,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useLive } from "../../api/queries.ts";
import { listPage, PageLink } from "../../parts/inline.tsx";
import { withoutRemedy } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { incidentPage } from "../incidents/incident-list.tsx";
import type { DeliveryFilter } from "./filters.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
/** The number of reasons that are named; the others are counted. */
const MAX_NAMED = 3;
const FAILING: readonly DeliveryState[] = [DeliveryState.FAILED, DeliveryState.RETRYING];

interface FailureReasonsProps {
  filter: Partial<DeliveryFilter> & { eventId?: string };
}

/**
 * The reasons of the failed deliveries that a filter finds: `382 HTTP 500, 76 certificate has expired`. Nothing if
 * none did.
 */
export function FailureReasons({ filter }: FailureReasonsProps) {
  const { states = [], ...rest } = filter;
  const asked = states.length === 0 ? [...FAILING] : states.filter((state) => FAILING.includes(state));
  const { data } = useLive(
    DeliveryService.method.listFailureReasons,
    { ...rest, states: asked },
    REFRESH_MS,
    asked.length > 0,
  );
  if (asked.length === 0 || !data || data.reasons.length === 0) return null;
  const { reasons } = data;
  const others = reasons.slice(MAX_NAMED);
  return (
    <Text size="sm" role="group" aria-label="Failures by reason" title={reasons.map(inWords).join(", ")}>
      <Text span inherit c="dimmed">
        Failures:{" "}
      </Text>
      {reasons.slice(0, MAX_NAMED).map((each, index) => (
        <span key={each.reason}>
          {index > 0 && ", "}
          <Text span inherit fw={600}>
            {each.count.toLocaleString()}
          </Text>{" "}
          <Reason of={each} filter={filter} />
        </span>
      ))}
      {others.length > 0 &&
        `, ${others.reduce((sum, { count }) => sum + count, 0).toLocaleString()} for other reasons`}
      {!data.complete && (
        <Text span inherit c="dimmed">
          {" "}
          – of the newest {data.examined.toLocaleString()}
          {data.total !== undefined && ` of ${data.total.toLocaleString()}`}, created since{" "}
          <Time value={data.searchedBackTo} />
        </Text>
      )}
    </Text>
  );
}

/** The longest part of a reason that is searched for, in characters. */
const MAX_SEARCHED = 200;

/** A reason, leading to the incident of the webhooks that still fail for it, else to its deliveries. */
function Reason({
  of: { reason, incidentId },
  filter: { search = "", eventId = search },
}: FailureReasonsProps & { of: FailureReason }) {
  const [parameters] = useSearchParams();
  const state = parameters.get("state") || "failed,retrying";
  const found = `${eventId.replace(/(^|\s)error:.*/i, "")} error:${reason.slice(0, MAX_SEARCHED)}`.trim();
  const deliveries = { ...Object.fromEntries(parameters), state, search: found, page: "", open: "" };
  return (
    <PageLink
      to={incidentId === undefined ? listPage(PAGE_PATHS.deliveries, deliveries) : incidentPage(incidentId)}
      inherit
      underline="always"
      display="inline-block"
      maw={300}
      truncate
      style={{ verticalAlign: "bottom" }}
    >
      {withoutRemedy(reason)}
    </PageLink>
  );
}

const inWords = ({ count, reason }: FailureReason) => `${count.toLocaleString()} ${reason}`;
