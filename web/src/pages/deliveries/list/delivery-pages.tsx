import { ActionBar, Box, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconDownload, IconRefresh, IconSend } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { useMay } from "../../../api/session.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { Empty } from "../../../parts/lists/empty.tsx";
import { NothingFound } from "../../../parts/lists/nothing-found.tsx";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { ExportDialog } from "../export/export-dialog.tsx";
import type { DeliveryFilter } from "../filters/filters.ts";
import { SendFilteredDialog } from "../send/send-filtered.tsx";
import { SendSelectedDialog } from "../send/send-selected.tsx";
import { DeliveryList } from "./delivery-list.tsx";
import { FailureReasons } from "./failure-reasons.tsx";
import { Pager } from "./pager.tsx";
import { SearchFurther } from "./search-further.tsx";
import { isFinal, useSelection } from "./selection.ts";
import { useDeliveryPage } from "./use-delivery-page.ts";

/** The filter and page of a list. */
export interface DeliveryPagesProps {
  filter: DeliveryFilter;
  /** The token of the page; "" for the first. */
  token: string;
  onGo: (token: string, options?: { replace?: boolean }) => void;
  /** Takes the filters away; undefined where there are none. */
  onClear: (() => void) | undefined;
}

/** A page of the deliveries that a filter finds, and what can be done with them. */
export function DeliveryPages({ filter, token, onGo, onClear }: DeliveryPagesProps) {
  const page = useDeliveryPage(filter, token);
  const { deliveries = [] } = page;
  const mayWrite = useMay("Write_Administrative_Data");
  const selection = useSelection(deliveries);
  const narrow = useBelow("sm");
  const isNewest = token !== "" && !page.isPrevious && page.deliveries !== undefined && page.newer === "";
  useEffect(() => {
    // Back on the first page, which has a URL without a token.
    if (isNewest) onGo("", { replace: true });
  }, [isNewest, onGo]);

  const failure = page.error ? <Failure error={page.error} onRetry={page.refetch} my="sm" /> : null;
  if (!page.deliveries) return failure ?? <Loading lines={10} height={44} />;
  return (
    <Box style={{ opacity: page.isPrevious ? 0.5 : 1 }} aria-busy={page.isPrevious}>
      {failure}
      <Group
        justify="space-between"
        mih={38}
        gap="xs"
        wrap={narrow ? "wrap" : "nowrap"}
        my={narrow ? "xs" : 0}
      >
        <Group gap="md">
          <Arrived
            count={page.arrived}
            hasMore={page.hasMoreArrived}
            isCurrent={page.isCurrent}
            onShow={page.showArrived}
          />
          <FailureReasons filter={filter} />
        </Group>
        <Group gap="xs" wrap="nowrap">
          <ExportFiltered filter={filter} />
          {mayWrite && deliveries.length > 0 && <SendFiltered filter={filter} />}
        </Group>
      </Group>
      {deliveries.length > 0 ? (
        <DeliveryList deliveries={deliveries} selection={mayWrite ? selection : undefined} />
      ) : page.searchedBackTo ? null : onClear ? (
        <NothingFound of="delivery" onClear={onClear}>
          {filter.search
            ? "A search compares whole values: order numbers and other searchable values of the payload, user ids, idempotency keys, hosts, and the ids of events, deliveries and webhooks. A URL also finds longer URLs that start with it. “Export…” searches inside payloads."
            : "None passes all of the filters. One that finished long ago may be deleted by now."}
        </NothingFound>
      ) : (
        <Empty title="No deliveries yet" icon={<IconSend />}>
          Register a webhook and publish an event of its type, or send the webhook a test event from its page.
        </Empty>
      )}
      {page.searchedBackTo && page.older !== "" && (
        <SearchFurther searchedBackTo={page.searchedBackTo} onGo={() => onGo(page.older)} />
      )}
      {(page.older !== "" || token !== "") && (
        <Pager isFirst={token === ""} newer={page.newer} older={page.older} onGo={onGo} />
      )}
      {mayWrite && (
        <SendSelected
          deliveries={deliveries.filter(({ id }) => selection.ids.has(id))}
          onClear={() => selection.set([])}
        />
      )}
    </Box>
  );
}

function Arrived({
  count,
  hasMore,
  isCurrent,
  onShow,
}: {
  count: number;
  hasMore: boolean;
  isCurrent: boolean;
  onShow: () => void;
}) {
  return (
    <div role="status">
      {count === 0 ? (
        isCurrent && (
          <Text size="sm" c="dimmed">
            Kept up to date
          </Text>
        )
      ) : (
        <Button variant="light" size="xs" leftSection={<IconRefresh size={14} />} onClick={onShow}>
          Show{" "}
          {hasMore ? `${count} or more new deliveries` : countOf(count, "new delivery", "new deliveries")}
        </Button>
      )}
    </div>
  );
}

function ExportFiltered({ filter }: { filter: DeliveryFilter }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <>
      <Button
        variant="default"
        size="xs"
        leftSection={<IconDownload size={14} />}
        onClick={open}
        style={{ flexShrink: 0 }}
      >
        Export…
      </Button>
      <ExportDialog opened={opened} onClose={close} filter={filter} />
    </>
  );
}

/** Sends again all deliveries that the filter finds; only failed ones if it names no state. */
function SendFiltered({ filter }: { filter: DeliveryFilter }) {
  const [opened, { open, close }] = useDisclosure();
  const states =
    filter.states.length === 0 ? [DeliveryState.FAILED] : filter.states.filter((state) => isFinal({ state }));
  if (states.length === 0) return null;
  return (
    <>
      <Button variant="default" size="xs" onClick={open} style={{ flexShrink: 0 }}>
        {filter.states.length === 0 ? "Send failed ones again…" : "Send all of these again…"}
      </Button>
      <SendFilteredDialog opened={opened} onClose={close} filter={{ ...filter, states }} />
    </>
  );
}

function SendSelected({
  deliveries,
  onClear,
}: {
  deliveries: Parameters<typeof SendSelectedDialog>[0]["deliveries"];
  onClear: () => void;
}) {
  const [opened, { open, close }] = useDisclosure();
  // The deliveries named in the question. Not the selection, which changes when they are sent.
  const [asked, setAsked] = useState(deliveries);
  // What was asked for takes the bar away.
  useFocusBack(opened);

  function ask() {
    setAsked(deliveries);
    open();
  }

  return (
    <>
      <ActionBar opened={deliveries.length > 0} onClose={onClear} aria-label="Selected deliveries" withBorder>
        <Text size="sm">{deliveries.length.toLocaleString()} selected</Text>
        <ActionBar.Divider />
        <Button size="xs" onClick={ask}>
          Send again…
        </Button>
        <ActionBar.CloseButton aria-label="Select none" />
      </ActionBar>
      <SendSelectedDialog opened={opened} onClose={close} deliveries={asked} onDone={onClear} />
    </>
  );
}
