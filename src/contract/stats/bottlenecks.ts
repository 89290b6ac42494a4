import { Bottleneck } from "../../../gen/webhook/v1/stats_pb.ts";

/** The parts of the service for which deliveries may wait, by cause, with what an operator can do. */
export const BOTTLENECKS = {
  thread: {
    number: Bottleneck.THREAD,
    problem: "Deliveries wait for a busy thread",
    remedy:
      "If cores are free, raise DELIVERY_PROCESSES or start more workers. Otherwise use more or faster cores.",
  },
  database: {
    number: Bottleneck.DATABASE,
    problem: "Deliveries wait for PostgreSQL",
    remedy:
      "Check pg_stat_activity for locks and forgotten transactions, then PostgreSQL's disk and cores. If statements wait for a connection, raise DATABASE_POOL_SIZE.",
  },
  handshakes: {
    number: Bottleneck.HANDSHAKES,
    problem: "Deliveries wait for new TLS connections",
    remedy:
      "Make receivers keep connections open. Otherwise raise DELIVERY_PROCESSES or start more workers: each process opens a limited number of connections per second.",
  },
  limit: {
    number: Bottleneck.LIMIT,
    problem: "Deliveries wait because DELIVERY_MAX_IN_FLIGHT is reached",
    remedy:
      "Raise DELIVERY_MAX_IN_FLIGHT, together with the memory and the file limit that it needs, or start more workers.",
  },
} as const satisfies Record<string, { number: Bottleneck; problem: string; remedy: string }>;

export type BottleneckCause = keyof typeof BOTTLENECKS;

export const CAUSES = Object.keys(BOTTLENECKS) as BottleneckCause[];
