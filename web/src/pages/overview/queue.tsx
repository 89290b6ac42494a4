import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Box, Group, Skeleton, Text } from "@mantine/core";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { Time } from "../../parts/time.tsx";
import { useCustomerFilter } from "../customers/chosen.tsx";

/** The states of open deliveries, with the colours of the bar. */
const STATES = [
  { state: "pending", label: "Pending", colour: "var(--mantine-color-dimmed)" },
  { state: "delivering", label: "Delivering", colour: "var(--chart-succeeded)" },
  { state: "retrying", label: "Retrying", colour: "var(--chart-p95)" },
] as const;

/** The open deliveries: a bar of their states, and the age of the oldest. */
export function Queue({ overview }: { overview: Overview | undefined }) {
  const customer = useCustomerFilter();
  const linkTo = (state: string) => listPage(PAGE_PATHS.deliveries, { state, ...customer });
  if (!overview) return <Skeleton height={110} />;
  const open = overview.pending + overview.delivering + overview.retrying;
  const oldest: Partial<Record<string, Timestamp | undefined>> = {
    pending: overview.oldestPending,
    retrying: overview.oldestRetrying,
  };
  return (
    <Section
      title="Queue"
      actions={
        overview.failed > 0n && (
          <PageLink to={linkTo("failed")} className="figures">
            {overview.failed.toLocaleString()} failed, unresolved
          </PageLink>
        )
      }
    >
      <Box
        role="img"
        aria-label={STATES.map(
          ({ state, label }) => `${overview[state].toLocaleString()} ${label.toLowerCase()}`,
        ).join(", ")}
        style={{ display: "flex", gap: 2, height: 10, background: "var(--line)" }}
      >
        {STATES.filter(({ state }) => overview[state] > 0n).map(({ state, colour }) => (
          <Box
            key={state}
            miw={3}
            style={{ flex: `${Number(overview[state]) / Number(open)} 0 0`, background: colour }}
          />
        ))}
      </Box>
      <Group gap="xl" style={{ rowGap: 8 }}>
        {STATES.map(({ state, label, colour }) => (
          <Group key={state} gap={6} align="baseline">
            <Box w={8} h={8} style={{ background: colour }} />
            <PageLink to={linkTo(state)} c="inherit">
              {label}{" "}
              <Text span inherit className="figures" fw={500}>
                {overview[state].toLocaleString()}
              </Text>
            </PageLink>
            {oldest[state] && overview[state] > 0n && (
              <Dimmed size="xs">
                oldest <Time value={oldest[state]} relative="short" />
              </Dimmed>
            )}
          </Group>
        ))}
      </Group>
    </Section>
  );
}
