import { Card, SimpleGrid, Skeleton, Text, UnstyledButton } from "@mantine/core";
import { Link } from "react-router";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";

/** One figure: what it counts, and where the deliveries behind it are listed. */
interface Count {
  label: string;
  span: string;
  of: (overview: Overview) => bigint;
  /** Filter of the list of deliveries. */
  state: string;
  /** Whether it counts the last 24 hours alone. */
  lastDay?: boolean;
  /** Nobody wants more than none. */
  bad?: boolean;
}

const COUNTS: readonly Count[] = [
  { label: "Pending", span: "now", of: ({ pending }) => pending, state: "pending" },
  { label: "Delivering", span: "now", of: ({ delivering }) => delivering, state: "delivering" },
  { label: "Retrying", span: "now", of: ({ retrying }) => retrying, state: "retrying" },
  { label: "Failed", span: "still in the log", of: ({ failed }) => failed, state: "failed", bad: true },
  {
    label: "Delivered",
    span: "last 24 hours",
    of: ({ deliveredLastDay }) => deliveredLastDay,
    state: "delivered",
    lastDay: true,
  },
  {
    label: "Failed attempts",
    span: "last 24 hours, retried or not",
    of: ({ failedAttemptsLastDay }) => failedAttemptsLastDay,
    state: "retrying,failed",
    lastDay: true,
    bad: true,
  },
  {
    label: "Failed",
    span: "last 24 hours",
    of: ({ failedLastDay }) => failedLastDay,
    state: "failed",
    lastDay: true,
    bad: true,
  },
];

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** Webhooks that are failing, and where they are listed. */
const FAILING = { label: "Failing webhooks", span: "now", to: `${PAGE_PATHS.webhooks}?health=failing` };

/** The filter of the list of deliveries; by whole minutes, so that links stay the same for a while. */
function filterOf({ state, lastDay = false }: Count): string {
  const filter = new URLSearchParams({ state });
  const from = new Date(Math.floor((Date.now() - DAY_MS) / MINUTE_MS) * MINUTE_MS);
  if (lastDay) filter.set("from", from.toISOString());
  return filter.toString();
}

/** How many deliveries stand where. */
export function Counts({ overview }: { overview: Overview | undefined }) {
  return (
    <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="md">
      {COUNTS.map((count) => (
        <CountCard
          key={`${count.label} ${count.span}`}
          label={count.label}
          span={count.span}
          to={`${PAGE_PATHS.deliveries}?${filterOf(count)}`}
          value={overview && count.of(overview)}
          bad={count.bad === true}
        />
      ))}
      <CountCard {...FAILING} value={overview?.failingWebhooks} bad />
    </SimpleGrid>
  );
}

interface CountCardProps {
  label: string;
  span: string;
  to: string;
  value: bigint | undefined;
  bad: boolean;
}

function CountCard({ label, span, to, value, bad }: CountCardProps) {
  const loud = bad && value !== undefined && value > 0n;
  return (
    <UnstyledButton component={Link} to={to}>
      <Card withBorder padding="md" h="100%">
        <Text size="sm" fw={500}>
          {label}
        </Text>
        {value === undefined ? (
          <Skeleton height={34} width="60%" my={4} />
        ) : (
          <Text fz={28} fw={650} lh={1.5} c={loud ? "var(--mantine-color-error)" : undefined}>
            {value.toLocaleString()}
          </Text>
        )}
        <Text size="xs" c="dimmed">
          {span}
        </Text>
      </Card>
    </UnstyledButton>
  );
}
