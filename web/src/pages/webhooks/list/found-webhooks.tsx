import { Group, Pagination, Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import type { Period } from "../../../parts/charts/periods.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { Failure } from "../../../parts/status/failure.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { useLastDay } from "./last-day.ts";
import { useHistories } from "./use-histories.ts";
import { WebhookCards } from "./webhook-cards.tsx";
import { WebhookTable } from "./webhook-table.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;

/** Keeps the focus on a button that leads no further; a disabled one would lose it. */
const LEADS_NO_FURTHER = {
  disabled: false,
  "data-disabled": true,
  "aria-disabled": true,
  onClick: undefined,
};

/** The found webhooks, and the page that is shown. */
export interface FoundWebhooksProps {
  /** At least one. */
  webhooks: readonly Webhook[];
  /** The other event types of their endpoints. */
  others: ReadonlyMap<bigint, readonly Webhook[]>;
  /** The period of the charts. */
  period: Period;
  /** Page number, starting at 1; values outside the range are clamped. */
  page: number;
  onPage: (page: number) => void;
}

/** A page of webhooks, with links to the others. */
export function FoundWebhooks({ webhooks, others, period, page, onPage }: FoundWebhooksProps) {
  const List = useBelow("md") ? WebhookCards : WebhookTable;
  const pages = Math.ceil(webhooks.length / PAGE_SIZE);
  const shown = Math.min(Math.max(1, Math.trunc(page)), pages);
  const from = (shown - 1) * PAGE_SIZE;
  const to = Math.min(from + PAGE_SIZE, webhooks.length);
  const onPageNow = webhooks.slice(from, to);
  const lastDay = useLastDay(onPageNow.map(({ id }) => id));
  const total = countOf(webhooks.length, "webhook", "webhooks");

  const histories = useHistories(onPageNow, period);

  return (
    <>
      {lastDay.error !== null && (
        <Failure
          error={lastDay.error}
          title="Could not load the statistics"
          onRetry={lastDay.retry}
          my="sm"
        />
      )}
      <List webhooks={onPageNow} others={others} lastDay={lastDay} histories={histories} period={period} />
      <Group justify="space-between" gap="md" py="md">
        <Text size="sm" c="dimmed" role="status">
          {pages === 1 ? total : `${(from + 1).toLocaleString()}–${to.toLocaleString()} of ${total}`}
        </Text>
        {pages > 1 && (
          <Pagination
            total={pages}
            value={shown}
            onChange={onPage}
            size="sm"
            getControlProps={(control) => ({
              "aria-label": `Go to the ${control} page`,
              ...(shown === (control === "next" || control === "last" ? pages : 1) ? LEADS_NO_FURTHER : {}),
            })}
            getItemProps={(item) => ({ "aria-label": `Page ${item}` })}
          />
        )}
      </Group>
    </>
  );
}
