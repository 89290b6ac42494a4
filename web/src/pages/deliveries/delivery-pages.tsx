import { ActionBar, Box, Button, type ButtonProps, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import {
  IconChevronLeft,
  IconChevronRight,
  IconChevronsLeft,
  IconDownload,
  IconFileSearch,
  IconRefresh,
  IconSend,
} from "@tabler/icons-react";
import { type ReactNode, useEffect, useState } from "react";
import { type Delivery, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { DialogButton } from "../../parts/dialogs.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { Dimmed, PageLink } from "../../parts/inline.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { Empty, NothingFound } from "../../parts/lists.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { DeliveryDetails } from "./delivery.tsx";
import { DeliveryList, isFinal, type Opening, useSelection } from "./delivery-list.tsx";
import { ExportDialog } from "./export-dialog.tsx";
import { FailureReasons } from "./failure-reasons.tsx";
import { SEARCHED } from "./filter-bar.tsx";
import type { DeliveryFilter } from "./filters.ts";
import { SendFilteredDialog } from "./send-filtered.tsx";
import { SendSelectedDialog } from "./send-selected.tsx";
import { type DeliveryPage, useDeliveryPage } from "./use-delivery-page.ts";

/** The filter and page of a list. */
export interface DeliveryPagesProps {
  filter: DeliveryFilter;
  /** The token of the page; "" for the first. */
  token: string;
  onGo: (token: string, options?: { replace?: boolean }) => void;
  opening: Opening | undefined;
  /** Takes the filters away; undefined where there are none. */
  onClear: (() => void) | undefined;
}

/** A page of the deliveries that a filter finds, and what can be done with them. */
export function DeliveryPages({ filter, token, onGo, opening, onClear }: DeliveryPagesProps) {
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
        <Group gap="md" wrap={narrow ? "wrap" : "nowrap"}>
          <Arrived page={page} />
          <FailureReasons filter={filter} />
        </Group>
        <Group gap="xs" wrap={narrow ? "wrap" : "nowrap"}>
          <ExportButton filter={filter} icon={<IconFileSearch size={14} />}>
            Search payloads…
          </ExportButton>
          <ExportButton filter={filter} icon={<IconDownload size={14} />}>
            Export…
          </ExportButton>
          {mayWrite && deliveries.length > 0 && <SendFiltered filter={filter} />}
        </Group>
      </Group>
      {deliveries.length > 0 || opening?.id ? (
        <Beside opening={opening}>
          <DeliveryList
            deliveries={deliveries}
            selection={mayWrite ? selection : undefined}
            opening={opening}
          />
        </Beside>
      ) : page.searchedBackTo ? null : onClear ? (
        <NothingFound of="delivery" onClear={onClear}>
          {filter.search
            ? `${SEARCHED} “Search payloads…” finds any text in payloads.`
            : "None passes all of the filters. One that finished long ago may be deleted by now."}
        </NothingFound>
      ) : (
        <Empty
          title="No deliveries yet"
          icon={<IconSend />}
          action={mayWrite && <PageLink to={PAGE_PATHS.newWebhook}>New webhook</PageLink>}
        >
          Register a webhook and publish an event of its type, or send the webhook a test event from its page.
        </Empty>
      )}
      {page.searchedBackTo && page.older !== "" && (
        <Group role="status" justify="center" py="md" gap="sm">
          <Dimmed>
            Few deliveries match. Searched back to <Time value={page.searchedBackTo} />.
          </Dimmed>
          <Button variant="default" onClick={() => onGo(page.older)}>
            Search further back
          </Button>
        </Group>
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

/** A list, and the delivery that is open on its right. */
function Beside({ opening, children }: { opening: Opening | undefined; children: ReactNode }) {
  return (
    <Group align="flex-start" wrap="nowrap" gap="lg">
      <Box flex={opening?.id ? "0 0 48%" : "1"} miw={0}>
        {children}
      </Box>
      {opening?.id && (
        <Box component="section" className="beside" aria-label="Open delivery" tabIndex={0}>
          <DeliveryDetails id={opening.id} onClose={() => opening.onOpen("")} key={opening.id} />
        </Box>
      )}
    </Group>
  );
}

/** Opens the dialog that searches payloads and exports. */
function ExportButton(props: { filter: DeliveryFilter; icon: ReactNode; children: string }) {
  const { filter, icon, children } = props;
  return (
    <DialogButton
      leftSection={icon}
      style={{ flexShrink: 0 }}
      dialog={(dialog) => <ExportDialog {...dialog} filter={filter} />}
    >
      {children}
    </DialogButton>
  );
}

function Arrived({
  page: { arrived: count, hasMoreArrived, isCurrent, showArrived },
}: {
  page: DeliveryPage;
}) {
  return (
    <div role="status">
      {count === 0 ? (
        isCurrent && <Dimmed style={{ whiteSpace: "nowrap" }}>Kept up to date</Dimmed>
      ) : (
        <Button variant="light" leftSection={<IconRefresh size={14} />} onClick={showArrived}>
          Show{" "}
          {hasMoreArrived
            ? `${count} or more new deliveries`
            : countOf(count, "new delivery", "new deliveries")}
        </Button>
      )}
    </div>
  );
}

/** Sends again all deliveries that the filter finds; only failed ones if it names no state. */
function SendFiltered({ filter }: { filter: DeliveryFilter }) {
  const states =
    filter.states.length === 0 ? [DeliveryState.FAILED] : filter.states.filter((state) => isFinal({ state }));
  if (states.length === 0) return null;
  return (
    <DialogButton
      style={{ flexShrink: 0 }}
      dialog={(dialog) => <SendFilteredDialog {...dialog} filter={{ ...filter, states }} />}
    >
      {filter.states.length === 0 ? "Send failed ones again…" : "Send all of these again…"}
    </DialogButton>
  );
}

function SendSelected({ deliveries, onClear }: { deliveries: readonly Delivery[]; onClear: () => void }) {
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
        <Button onClick={ask}>Send again…</Button>
        <ActionBar.CloseButton aria-label="Select none" />
      </ActionBar>
      <SendSelectedDialog opened={opened} onClose={close} deliveries={asked} onDone={onClear} />
    </>
  );
}

/** Goes through a list that is newest first. @param onGo goes to a page by its token; "" is the first one */
function Pager(props: { isFirst: boolean; newer: string; older: string; onGo: (token: string) => void }) {
  const { isFirst, newer, older, onGo } = props;
  return (
    <Group component="nav" aria-label="Pages of the list" justify="center" gap="sm" py="md">
      <PageButton leftSection={<IconChevronsLeft size={16} />} leads={!isFirst} onClick={() => onGo("")}>
        Newest
      </PageButton>
      <PageButton
        leftSection={<IconChevronLeft size={16} />}
        leads={!isFirst && newer !== ""}
        onClick={() => onGo(newer)}
      >
        Newer
      </PageButton>
      <PageButton
        rightSection={<IconChevronRight size={16} />}
        leads={older !== ""}
        onClick={() => onGo(older)}
      >
        Older
      </PageButton>
    </Group>
  );
}

/** A button that keeps the focus where it leads no further; a disabled one would lose it. */
function PageButton({ leads, onClick, ...button }: ButtonProps & { leads: boolean; onClick: () => void }) {
  return (
    <Button
      {...button}
      variant="default"
      data-disabled={!leads}
      aria-disabled={!leads}
      onClick={leads ? onClick : undefined}
    />
  );
}
