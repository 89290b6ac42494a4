import { Alert } from "@mantine/core";
import { IconHourglassHigh } from "@tabler/icons-react";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { BOTTLENECKS } from "../../../../src/contract/stats/bottlenecks.ts";

/** What deliveries wait for within the service, and what to change; nothing while they do not. */
export function Bottlenecks({ overview }: { overview: Overview }) {
  return Object.values(BOTTLENECKS)
    .filter(({ number }) => overview.bottlenecks.includes(number))
    .map(({ number, problem, remedy }) => (
      <Alert
        key={number}
        color="orange"
        variant="light"
        icon={<IconHourglassHigh />}
        title={problem}
        role="note"
      >
        {remedy}
      </Alert>
    ));
}
