import { useQuery } from "@connectrpc/connect-query";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason } from "../../api/failure.ts";
import { useAllPages } from "../../api/queries.ts";
import { typeName } from "../../api/type-names.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, PageLink, webhookPage } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { AddressInOneLine } from "../../parts/text/breakable.tsx";
import { addressInFull, durationInWords } from "../../parts/text/words.ts";
import { useCustomerFilter } from "../customers/filter.tsx";

/** The number of webhooks that are named. */
const SHOWN = 5;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
/** The age up to which webhooks are not read again, in milliseconds. */
const WEBHOOK_FRESH_MS = 60_000;

/** The webhooks of the last 24 hours whose receivers took longest. */
export function SlowestWebhooks() {
  const stats = useAllPages(StatsService.method.listWebhookStats, useCustomerFilter(), {
    refreshMs: REFRESH_MS,
  });
  return (
    <Refreshed query={stats} loading={<Loading lines={SHOWN} />}>
      {({ webhooks }) => {
        const slowest = webhooks
          .filter(({ attempts }) => attempts > 0n)
          .sort((a, b) => b.averageMs - a.averageMs)
          .slice(0, SHOWN);
        if (slowest.length === 0) return <Dimmed>None was sent anything in the last 24 hours.</Dimmed>;
        return (
          <DataTable
            items={slowest}
            keyOf={({ webhookId }) => String(webhookId)}
            minWidth={290}
            layout="fixed"
            columns={[
              { name: "Webhook", cell: ({ webhookId }) => <WebhookLink id={webhookId} /> },
              { name: "Average", w: 82, cell: ({ averageMs }) => durationInWords(averageMs) },
              { name: "Longest", w: 82, cell: ({ longestMs }) => durationInWords(longestMs) },
            ]}
          />
        );
      }}
    </Refreshed>
  );
}

/** A webhook by its address and event type; by its number once it is deleted. */
function WebhookLink({ id }: { id: bigint }) {
  const { data, error } = useQuery(
    WebhookService.method.getWebhook,
    { webhookId: id },
    { staleTime: WEBHOOK_FRESH_MS },
  );
  if (failureReason(error) === "WEBHOOK_NOT_FOUND") {
    return <Dimmed>Webhook {String(id)}, deleted</Dimmed>;
  }
  const webhook = data?.webhook;
  return (
    <>
      <PageLink
        to={webhookPage(id)}
        display="block"
        truncate
        title={webhook?.url}
        // Read without a gap where the address is cut.
        aria-label={webhook ? (webhook.name ?? addressInFull(webhook.url)) : undefined}
      >
        {webhook ? (webhook.name ?? <AddressInOneLine url={webhook.url} />) : `Webhook ${id}`}
      </PageLink>
      <Dimmed size="xs">{webhook ? typeName(webhook) : "\u00a0"}</Dimmed>
    </>
  );
}
