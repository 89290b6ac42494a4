import { Card, Group, SimpleGrid, Skeleton, Text, UnstyledButton } from "@mantine/core";
import { IconArrowDown, IconArrowUp } from "@tabler/icons-react";
import { Link } from "react-router";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { useCustomerFilter, useListedCustomer } from "../customers/filter.tsx";

/** The figures of the last 24 hours, with those of the 24 hours before and the filter of the list of deliveries. */
const DAY = [
  ["Failed deliveries", "failedLastDay", "failedPreviousDay", "failed"],
  ["Failed attempts", "failedAttemptsLastDay", "failedAttemptsPreviousDay", "retrying,failed"],
  ["Delivered", "deliveredLastDay", "deliveredPreviousDay", "delivered"],
] as const;

/** The figures of this moment, with the filter of the list of deliveries. */
const NOW = [
  ["Pending", "pending"],
  ["Delivering", "delivering"],
  ["Retrying", "retrying"],
  ["Failed, unresolved", "failed"],
] as const;

const PERCENT = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 });
/** The change above which it is shown as a factor. */
const MAX_PERCENTAGE = 10;

/** Failed and delivered deliveries of the last 24 hours, compared with the 24 hours before, and the open ones. */
export function Counts({ overview }: { overview: Overview | undefined }) {
  const customer = useCustomerFilter();
  return (
    <>
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="md">
        <Tile
          label="Failing webhooks"
          span="now"
          to={listPage(PAGE_PATHS.webhooks, { health: "failing", ...useListedCustomer() })}
          value={overview?.failingWebhooks}
          bad
        />
        {DAY.map(([label, of, before, state]) => (
          <Tile
            key={label}
            label={label}
            span="last 24 hours"
            to={listPage(PAGE_PATHS.deliveries, { state, last: "24h", ...customer })}
            value={overview?.[of]}
            before={overview?.[before]}
            bad={of !== "deliveredLastDay"}
          />
        ))}
      </SimpleGrid>
      <Open overview={overview} />
    </>
  );
}

/** The open deliveries by state, on one line. */
function Open({ overview }: { overview: Overview | undefined }) {
  const customer = useCustomerFilter();
  return (
    <Card withBorder padding="sm" component="section" aria-label="Deliveries now">
      <Group gap="xl" style={{ rowGap: 8 }}>
        {NOW.map(([label, state]) => (
          <PageLink
            key={label}
            to={listPage(PAGE_PATHS.deliveries, { state, ...customer })}
            size="md"
            underline="never"
            c="inherit"
          >
            <Group gap={8} align="baseline">
              <Dimmed>{label}</Dimmed>
              {overview ? (
                <Text className="figures" fw={600}>
                  {overview[state].toLocaleString()}
                </Text>
              ) : (
                <Skeleton height={14} width={24} />
              )}
            </Group>
          </PageLink>
        ))}
      </Group>
    </Card>
  );
}

interface TileProps {
  label: string;
  span: string;
  to: string;
  value: bigint | undefined;
  /** The figure of the period before; undefined for one of this moment. */
  before?: bigint | undefined;
  bad: boolean;
}

function Tile({ label, span, to, value, before, bad }: TileProps) {
  const loud = bad && value !== undefined && value > 0n;
  return (
    <UnstyledButton component={Link} to={to}>
      <Card withBorder padding="md" h="100%" className={loud ? "tile tile-loud" : "tile"}>
        <Dimmed>{label}</Dimmed>
        {value === undefined ? (
          <Skeleton height={30} width="60%" my={4} />
        ) : (
          <Text className="tile-figure figures" c={loud ? "var(--mantine-color-error)" : undefined}>
            {value.toLocaleString()}
          </Text>
        )}
        <Dimmed size="xs">{span}</Dimmed>
        {value !== undefined && before !== undefined && <Trend now={value} before={before} bad={bad} />}
      </Card>
    </UnstyledButton>
  );
}

/** The difference of a figure from the 24 hours before, in red or green if the change is bad or good. */
function Trend({ now, before, bad }: { now: bigint; before: bigint; bad: boolean }) {
  if (now === before)
    return <TrendText>{now === 0n ? "none the day before" : "as many as the day before"}</TrendText>;
  const more = now > before;
  const colour = more === bad ? "red" : "green";
  const Icon = more ? IconArrowUp : IconArrowDown;
  return (
    <TrendText colour={colour}>
      <Icon size={12} aria-hidden style={{ verticalAlign: "-1px" }} /> {changeInWords(now, before)}
    </TrendText>
  );
}

function TrendText({ colour, children }: { colour?: "red" | "green"; children: React.ReactNode }) {
  return (
    <Text size="xs" className="figures" c={colour ? `var(--mantine-color-${colour}-light-color)` : "dimmed"}>
      {children}
    </Text>
  );
}

/** `12% more than the day before (340)`, `none the day before`. */
function changeInWords(now: bigint, before: bigint): string {
  if (before === 0n) return "none the day before";
  const part = Math.abs(Number(now - before)) / Number(before);
  const change =
    part > MAX_PERCENTAGE
      ? `${Math.round(Number(now) / Number(before))} times as many as`
      : `${percentage(part)} ${now > before ? "more" : "fewer"} than`;
  return `${change} the day before (${before.toLocaleString()})`;
}

/** `12%`. A small change is not rounded to none, nor nearly everything to everything. */
function percentage(part: number): string {
  if (part < 0.005) return "less than 1%";
  return part >= 0.995 && part < 1 ? "more than 99%" : PERCENT.format(part);
}
