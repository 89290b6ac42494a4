import { useQuery } from "@connectrpc/connect-query";
import { ActionIcon, Box, Checkbox, Group, Stack, Text } from "@mantine/core";
import { IconCheck, IconChevronDown, IconChevronRight, IconX } from "@tabler/icons-react";
import { type ComponentProps, type KeyboardEvent, useEffect, useRef, useState } from "react";
import {
  type Attempt,
  type Delivery,
  DeliveryService,
  DeliveryState,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { useOwnCustomer } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, deliveryPage, eventPage, PageLink } from "../../parts/inline.tsx";
import { Listing, useBelow } from "../../parts/listing.tsx";
import { NextRetry } from "../../parts/overdue.tsx";
import { DeliveryStateBadge, waitsInWords } from "../../parts/states.tsx";
import { AddressInOneLine } from "../../parts/text/breakable.tsx";
import { ShortId } from "../../parts/text/copy.tsx";
import { addressParts, durationInWords, withoutRemedy } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { CustomerLink } from "../customers/chosen.tsx";
import { arrived, latestInWords, resultInWords } from "./delivery/results.tsx";

/** The deliveries of a page. */
export interface DeliveryListProps {
  deliveries: readonly Delivery[];
  /** Undefined where nothing can be done with them. */
  selection?: Selection | undefined;
  /** The fact that all deliveries share, which is not repeated in each row. */
  ofOne?: "event" | "webhook";
  /** Opens deliveries beside the list. Without it, each has a page of its own. */
  opening?: Opening | undefined;
}

/** A delivery that is open beside a list. */
export interface Opening {
  /** Empty for none. */
  id: string;
  /** The address of the list with a delivery beside it. */
  to: (id: string) => string;
  onOpen: (id: string) => void;
}

/**
 * Deliveries as a table with one line each, or as cards where there is no room for one. Each unfolds to show its
 * attempts.
 */
export function DeliveryList({ deliveries, selection, ofOne, opening }: DeliveryListProps) {
  /** The deliveries whose attempts are shown. */
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set());
  const attempts = (delivery: Delivery) =>
    !opening?.id && unfolded.has(delivery.id) && <UnfoldedAttempts delivery={delivery} />;
  const box = (delivery: Delivery) => selection && <Tick delivery={delivery} selection={selection} />;
  const state = (delivery: Delivery) => <DeliveryStateBadge {...delivery} />;
  const subject = (delivery: Delivery) => <Subject delivery={delivery} />;
  const target = (delivery: Delivery) => <Target delivery={delivery} isShort={!!opening?.id} />;
  const own = useOwnCustomer();
  const customer = ({ customer: id }: Delivery) =>
    id !== undefined && (
      <Text size="sm" truncate title={id}>
        <CustomerLink id={id} />
      </Text>
    );
  const hasCustomers = deliveries.some(({ customer: id }) => id !== undefined && id !== own);
  const result = (delivery: Delivery) => <Result delivery={delivery} />;
  const keys = useOpening(deliveries, opening);
  const isBeside = !!opening?.id;
  const identity = ({ id }: Delivery) => (
    <Group gap={2} wrap="nowrap" w="max-content">
      {!isBeside && (
        <UnfoldButton
          id={id}
          unfolded={unfolded.has(id)}
          onToggle={() => setUnfolded(toggled(unfolded, id))}
        />
      )}
      <ShortId
        id={id}
        of="the delivery’s id"
        to={opening ? opening.to(id) : deliveryPage(id)}
        current={isBeside && id === opening.id}
        preventScrollReset={opening !== undefined}
      />
    </Group>
  );
  const all = (label?: string) =>
    selection && <AllBox deliveries={deliveries} selection={selection} label={label} />;
  const listing = (
    <Listing
      aria-label="Deliveries"
      items={deliveries}
      minWidth={isBeside ? 0 : 840}
      space={3}
      isFixed
      rowProps={({ id }) => {
        const isLit = isBeside ? id === opening.id : selection?.ids.has(id);
        return { "data-delivery": id, style: isLit ? { background: HIGHLIGHT } : {} } as ComponentProps<"tr">;
      }}
      below={attempts}
      columns={[
        selection && !isBeside && { name: "Selection", head: all(), w: 34, cell: box },
        { name: "Delivery", w: isBeside ? 104 : 112, cell: identity },
        !isBeside && {
          name: "Created",
          w: 88,
          cell: ({ created }) => <Time value={created} relative="short" />,
        },
        ofOne !== "event" && { name: "Event", w: isBeside ? "29%" : ofOne ? "24%" : "15%", cell: subject },
        ofOne !== "webhook" && { name: "Webhook", cell: target },
        hasCustomers && ofOne !== "webhook" && !isBeside && { name: "Customer", w: "9%", cell: customer },
        { name: "State", w: 94, cell: state },
        !isBeside && {
          name: "Last result",
          w: ofOne ? undefined : hasCustomers ? "19%" : "23%",
          cell: result,
        },
        !isBeside && {
          name: "Tries",
          w: 44,
          ta: "right",
          title: "The number of attempts",
          cell: ({ attemptCount }) => attemptCount,
        },
        !isBeside && {
          name: "Took",
          w: 64,
          ta: "right",
          visibleFrom: "xl",
          title: "The duration of the last attempt",
          cell: took,
        },
      ]}
      cardsBelow="lg"
      cardPadding="sm"
      cardGap={4}
      card={(delivery) => (
        <>
          <Group justify="space-between" align="flex-start" wrap="nowrap">
            {state(delivery)}
            {box(delivery)}
          </Group>
          {ofOne !== "event" && subject(delivery)}
          {ofOne !== "webhook" && target(delivery)}
          {hasCustomers && ofOne !== "webhook" && customer(delivery)}
          {result(delivery)}
          <Group justify="space-between">
            {identity(delivery)}
            <Dimmed>
              <Time value={delivery.created} relative /> ·{" "}
              {delivery.attemptCount === 1 ? "1 attempt" : `${delivery.attemptCount} attempts`}
            </Dimmed>
          </Group>
          {attempts(delivery)}
        </>
      )}
    />
  );
  const narrow = useBelow("lg");
  if (!narrow) return <Box {...keys}>{listing}</Box>;
  return (
    <Stack gap="sm">
      {all("All of this page that can be sent again")}
      {listing}
    </Stack>
  );
}

const HIGHLIGHT = "var(--mantine-color-default-hover)";

/**
 * Keeps the focus on the delivery that is open beside a list, whose next and previous one the arrow keys open, and returns it to the
 * list.
 */
function useOpening(deliveries: readonly Delivery[], opening: Opening | undefined) {
  const list = useRef<HTMLDivElement>(null);
  const last = useRef("");
  const open = opening?.id ?? "";
  useEffect(() => {
    const link = list.current?.querySelector<HTMLAnchorElement>(
      `[data-delivery="${open || last.current}"] a`,
    );
    last.current = open;
    // Not from a field in which somebody types.
    if (!link || document.activeElement?.matches("input, textarea")) return;
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: "nearest" });
  }, [open]);

  function onKeyDown(event: KeyboardEvent) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step === undefined || open === "") return;
    event.preventDefault();
    const next = deliveries[deliveries.findIndex(({ id }) => id === open) + step];
    if (next) opening?.onOpen(next.id);
  }
  return { ref: list, onKeyDown };
}

const took = ({ durationMs }: Delivery) =>
  durationMs !== undefined && <span style={{ whiteSpace: "nowrap" }}>{durationInWords(durationMs)}</span>;

/** @param label of the box; without one, its label is read out only */
function AllBox(props: { deliveries: readonly Delivery[]; selection: Selection; label: string | undefined }) {
  const { deliveries, selection, label } = props;
  const all = deliveries.filter(isFinal).map(({ id }) => id);
  const every = all.length > 0 && selection.ids.size === all.length;
  return (
    <Checkbox
      size="xs"
      label={label}
      aria-label={label ? undefined : "Select all of this page that can be sent again"}
      checked={every}
      indeterminate={selection.ids.size > 0 && !every}
      disabled={all.length === 0}
      onChange={() => selection.set(every ? [] : all)}
    />
  );
}

function Tick({ delivery, selection }: { delivery: Delivery; selection: Selection }) {
  const final = isFinal(delivery);
  return (
    <Checkbox
      size="xs"
      aria-label={`Select delivery ${delivery.id}`}
      title={final ? undefined : "In progress; it can be sent again after it has ended"}
      checked={selection.ids.has(delivery.id)}
      disabled={!final}
      onChange={() => selection.toggle(delivery.id)}
    />
  );
}

/** The event type, and what the event is about. */
function Subject({ delivery }: { delivery: Delivery }) {
  const { subject, eventId } = delivery;
  const type = typeName(delivery);
  return (
    <PageLink
      to={eventPage(eventId)}
      display="block"
      truncate
      title={subject === undefined ? type : `${type} ${subject}`}
      c="inherit"
    >
      {subject === undefined ? (
        type
      ) : (
        <>
          <Text span inherit fw={600}>
            {subject}
          </Text>{" "}
          <Text span inherit c="dimmed">
            {type}
          </Text>
        </>
      )}
    </PageLink>
  );
}

/** The name of the webhook, or the host and path of its URL; without the path in short. */
function Target({ delivery, isShort }: { delivery: Delivery; isShort: boolean }) {
  const { webhookId, webhookName, url } = delivery;
  return (
    <Text size="sm" truncate title={`#${webhookId} ${url}`}>
      {webhookName ?? (isShort ? addressParts(url)[0] : <AddressInOneLine url={url} />)}
    </Text>
  );
}

/** The outcome of the latest attempt, and the time of the next one, which is never cut off; or what the delivery waits for. */
function Result({ delivery }: { delivery: Delivery }) {
  const { state, nextAttempt, waitingFor } = delivery;
  const words = latestInWords(delivery) ?? waitsInWords(waitingFor);
  return (
    <Group gap={4} wrap="nowrap" className="figures">
      <Text size="sm" truncate c={state === DeliveryState.DELIVERED ? "dimmed" : undefined} title={words}>
        {words && withoutRemedy(words)}
      </Text>
      {state === DeliveryState.RETRYING && nextAttempt && (
        <Dimmed style={{ whiteSpace: "nowrap", flexShrink: 0 }}>
          {words && "· "}
          <NextRetry due={nextAttempt} />
        </Dimmed>
      )}
    </Group>
  );
}

/** The size of icons, in pixels. */
const ICON_SIZE = 12;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 4_000;

/** Shows or hides the attempts of a delivery below it. */
function UnfoldButton({ id, unfolded, onToggle }: { id: string; unfolded: boolean; onToggle: () => void }) {
  const Icon = unfolded ? IconChevronDown : IconChevronRight;
  return (
    <ActionIcon
      size={18}
      variant="subtle"
      color="gray"
      aria-label={`Attempts of delivery ${id}`}
      aria-expanded={unfolded}
      title={unfolded ? "Hide the attempts" : "Show the attempts"}
      onClick={onToggle}
    >
      <Icon size={ICON_SIZE} />
    </ActionIcon>
  );
}

/** The attempts of a delivery, newest first, with one line each. They are read when they are shown. */
function UnfoldedAttempts({ delivery }: { delivery: Delivery }) {
  const found = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: delivery.id },
    {
      // Until what was read is what the list shows as the end.
      refetchInterval: ({ state: { data } }) =>
        isFinal(delivery) &&
        data?.delivery?.state === delivery.state &&
        data.delivery.attemptCount === delivery.attemptCount
          ? false
          : REFRESH_MS,
    },
  );
  return (
    <Refreshed query={found} loading={<Loading lines={1} />}>
      {({ attempts }) =>
        attempts.length === 0 ? (
          <Dimmed>{isFinal(delivery) ? "No attempts were made." : "No attempts were made yet."}</Dimmed>
        ) : (
          <Stack
            component="ul"
            gap={2}
            p={0}
            m={0}
            style={{ listStyle: "none" }}
            aria-label={`Attempts of delivery ${delivery.id}, newest first`}
          >
            {attempts.toReversed().map((attempt) => (
              <Line key={attempt.number} attempt={attempt} />
            ))}
          </Stack>
        )
      }
    </Refreshed>
  );
}

function Line({ attempt }: { attempt: Attempt }) {
  const { number, started, durationMs } = attempt;
  const isGood = arrived(attempt);
  const Icon = isGood ? IconCheck : IconX;
  return (
    <Group component="li" gap="md" align="baseline" className="figures" style={{ rowGap: 0 }}>
      <Text span size="sm" miw={80}>
        <Text span inherit c={isGood ? "var(--rate-delivered)" : "var(--mantine-color-error)"} aria-hidden>
          <Icon size={ICON_SIZE} />
        </Text>{" "}
        Attempt {number}
      </Text>
      <Dimmed span>
        <Time value={started} />
      </Dimmed>
      <Text span size="sm" flex="1 1 12rem" style={{ overflowWrap: "anywhere" }}>
        {resultInWords(attempt)}
      </Text>
      <Dimmed span>took {durationInWords(durationMs)}</Dimmed>
    </Group>
  );
}

const FINAL: ReadonlySet<DeliveryState> = new Set([
  DeliveryState.DELIVERED,
  DeliveryState.FAILED,
  DeliveryState.CANCELLED,
  DeliveryState.FILTERED,
]);

/** Whether nothing more happens to a delivery by itself, so that it can be sent again. */
export function isFinal({ state }: Pick<Delivery, "state">): boolean {
  return FINAL.has(state);
}

/** Deliveries that somebody ticked. */
export interface Selection {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
  set: (ids: Iterable<string>) => void;
}

/** The selected deliveries among the shown ones. Deliveries that are open or no longer shown are not selected. */
export function useSelection(shown: readonly Delivery[]): Selection {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const ids = new Set(shown.filter((each) => isFinal(each) && chosen.has(each.id)).map(({ id }) => id));
  return {
    ids,
    set: (wanted) => setChosen(new Set(wanted)),
    toggle: (id) => setChosen(toggled(ids, id)),
  };
}

function toggled(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(ids);
  if (!next.delete(id)) next.add(id);
  return next;
}
