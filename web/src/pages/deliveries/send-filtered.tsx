import { skipToken, useQuery } from "@connectrpc/connect-query";
import { Alert, Skeleton, Text, TextInput } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../api/type-names.ts";
import { ConfirmDialog, type DialogProps, useDialogState } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Facts } from "../../parts/page.tsx";
import { DELIVERY_STATES } from "../../parts/states.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { useStartReplay } from "../replays/start-replay.tsx";
import type { DeliveryFilter } from "./filters.ts";

/** The maximum number of deliveries that are counted for the question. */
const MAX_COUNTED = 1_000;
/** Typed to confirm a replay of every webhook's deliveries. */
const CONFIRMATION = "replay";
/** Filters that leave out no webhook and no user. */
const WIDE: ReadonlySet<string> = new Set(["states", "from", "to"]);

/** Whether a filter restricts neither webhooks nor events nor users. */
function coversEveryone(filter: DeliveryFilter): boolean {
  return Object.entries(filter).every(
    ([name, value]) => WIDE.has(name) || value === undefined || value === "",
  );
}

/** The deliveries to replay. */
export interface SendFilteredDialogProps extends DialogProps {
  filter: DeliveryFilter;
  /** Fields that change the filter. */
  children?: ReactNode;
}

/** Asks before all that a filter finds is replayed, and says how many deliveries and which. */
export function SendFilteredDialog({ opened, onClose, filter, children }: SendFilteredDialogProps) {
  const start = useStartReplay(opened);
  const counted = useQuery(
    DeliveryService.method.listDeliveries,
    { ...filter, pageSize: MAX_COUNTED },
    { enabled: opened, staleTime: 0, gcTime: 0 },
  );
  const [typed, setTyped] = useDialogState(opened, "");
  const everyone = coversEveryone(filter);
  const count = counted.data?.deliveries.length ?? 0;
  // The filter lets so few deliveries through that counting stopped early. A replay has no such limit.
  const countedBackTo = counted.data?.searchedBackTo;
  const someMatch = count > 0 || countedBackTo !== undefined;
  const howMany = countedBackTo
    ? `at least ${countOf(count, "delivery", "deliveries")}`
    : counted.data?.nextPageToken
      ? `more than ${countOf(MAX_COUNTED, "delivery", "deliveries")}`
      : countOf(count, "delivery", "deliveries");

  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={counted.data && (count > 0 || !countedBackTo) ? `Send ${howMany} again?` : "Send them again?"}
      confirm="Send again"
      ready={someMatch && (!everyone || typed.trim().toLowerCase() === CONFIRMATION)}
      onConfirm={() => start({ case: "resend", value: filter })}
    >
      {children}
      {counted.isError ? (
        <Failure
          error={counted.error}
          title="The deliveries could not be counted"
          onRetry={counted.refetch}
        />
      ) : counted.isPending ? (
        <Skeleton height={22} />
      ) : (
        <Text size="sm">
          {countedBackTo && (
            <>
              {count === 0 ? "No delivery found" : "Counted"} back to <Time value={countedBackTo} />. Older
              deliveries that match are sent again{count === 0 ? "" : " too"}.{" "}
            </>
          )}
          {someMatch
            ? `Each ${countedBackTo ? "" : `of the ${howMany} `}starts a new round: up to four more attempts under the same id, from the next dispatch on, oldest first. Deliveries of paused webhooks wait; deliveries of deleted webhooks are skipped.`
            : "No delivery matches this filter."}
        </Text>
      )}
      <Which filter={filter} />
      {everyone && (counted.isPending || someMatch) && (
        <Alert color="orange" icon={<IconAlertTriangle />} title="This covers every webhook and every user">
          <Text size="sm">
            No webhook, event type or event is chosen, so deliveries of all endpoints are sent again.
          </Text>
          <TextInput
            mt="sm"
            label={`Type “${CONFIRMATION}” to confirm`}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            autoComplete="off"
            spellCheck={false}
            data-autofocus
          />
        </Alert>
      )}
    </ConfirmDialog>
  );
}

/** The filter in words. */
function Which({ filter }: { filter: DeliveryFilter }) {
  const { data } = useQuery(
    WebhookService.method.getWebhook,
    filter.webhookId === undefined ? skipToken : { webhookId: filter.webhookId },
  );
  const states = DELIVERY_STATES.filter(({ state }) => filter.states.includes(state));
  return (
    <Facts
      facts={[
        ["State", states.map(({ label }) => label).join(", ")],
        filter.process !== undefined && ["Event type", processName(filter.process)],
        filter.webhookId !== undefined && ["Webhook", `#${filter.webhookId} ${data?.webhook?.url ?? ""}`],
        filter.customer !== undefined && ["Customer", filter.customer],
        filter.search !== undefined && ["Search", filter.search],
        (filter.from !== undefined || filter.to !== undefined) && [
          "Created",
          <Span key="created" {...filter} />,
        ],
      ]}
    />
  );
}

function Span({ from, to }: Pick<DeliveryFilter, "from" | "to">) {
  return (
    <>
      {from && (
        <>
          from <Time value={from} />{" "}
        </>
      )}
      {to && (
        <>
          to <Time value={to} />
        </>
      )}
    </>
  );
}
