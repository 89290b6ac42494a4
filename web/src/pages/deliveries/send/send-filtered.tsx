import { skipToken, useMutation, useQuery } from "@connectrpc/connect-query";
import { Alert, Skeleton, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconAlertTriangle } from "@tabler/icons-react";
import { useRef, useState } from "react";
import { DeliveryService } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { Facts } from "../../../parts/layout/facts.tsx";
import { DELIVERY_STATES } from "../../../parts/status/delivery-state.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { Time } from "../../../parts/text/time.tsx";
import type { DeliveryFilter } from "../filters/filters.ts";

/** As many are counted before the question is asked. */
const MOST_COUNTED = 1_000;
/** Sent again by one call. */
const STEP = 1_000;

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

/** Asks before all that a filter finds is sent again, says how many and which, and tells how far it is. */
export function SendFilteredDialog(props: {
  opened: boolean;
  onClose: () => void;
  filter: DeliveryFilter;
  onDone: () => void;
}) {
  const { opened, onClose, filter, onDone } = props;
  const { mutateAsync: sendMany } = useMutation(DeliveryService.method.sendAgainMany);
  const counted = useQuery(
    DeliveryService.method.listDeliveries,
    { ...filter, pageSize: MOST_COUNTED },
    { enabled: opened, staleTime: 0, gcTime: 0 },
  );
  const [sent, setSent] = useState(0);
  const [typed, setTyped] = useState("");
  const everyone = coversEveryone(filter);
  // What a call that failed left is gone on with when it is tried again.
  const progress = useRef({ token: "", sent: 0, skipped: 0 });
  const count = counted.data?.deliveries.length ?? 0;
  const howMany = counted.data?.nextPageToken
    ? `more than ${countOf(MOST_COUNTED, "delivery", "deliveries")}`
    : countOf(count, "delivery", "deliveries");

  async function run() {
    const now = progress.current;
    do {
      const answer = await sendMany({ ...filter, pageSize: STEP, pageToken: now.token });
      now.token = answer.nextPageToken;
      now.sent += answer.sentAgain;
      now.skipped += answer.skipped;
      setSent(now.sent);
    } while (now.token !== "");
    notifications.show({ color: "green", message: inWords(now) });
    close();
    onDone();
  }

  function close() {
    progress.current = { token: "", sent: 0, skipped: 0 };
    setSent(0);
    setTyped("");
    onClose();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title={counted.data ? `Send ${howMany} again?` : "Send them again?"}
      confirm="Send again"
      ready={count > 0 && (!everyone || typed.trim().toLowerCase() === CONFIRMATION)}
      onConfirm={run}
    >
      {counted.isError ? (
        <Failure
          error={counted.error}
          title="The deliveries could not be counted"
          onRetry={() => void counted.refetch()}
        />
      ) : counted.isPending ? (
        <Skeleton height={22} />
      ) : (
        <Text size="sm">
          {count === 0
            ? "No delivery matches this filter."
            : `Each of the ${howMany} starts a new round: up to four more attempts under the same id, with the next dispatch. Deliveries of deleted webhooks are skipped.`}
        </Text>
      )}
      <Which filter={filter} />
      {everyone && (counted.isPending || count > 0) && (
        <Alert
          color="orange"
          variant="light"
          icon={<IconAlertTriangle />}
          title="This covers every webhook and every user"
        >
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
      {sent > 0 && (
        <Text size="sm" role="status">
          {countOf(sent, "delivery is", "deliveries are")} queued again so far.
        </Text>
      )}
    </ConfirmDialog>
  );
}

function inWords({ sent, skipped }: { sent: number; skipped: number }): string {
  const done = `${countOf(sent, "delivery", "deliveries")} will be sent with the next dispatch`;
  return skipped === 0 ? done : `${done}; ${skipped.toLocaleString()} skipped, whose webhook was deleted`;
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
