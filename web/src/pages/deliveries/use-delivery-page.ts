import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { createConnectQueryKey, skipToken, useQuery, useTransport } from "@connectrpc/connect-query";
import { keepPreviousData, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import {
  type Delivery,
  DeliveryService,
  type ListDeliveriesRequestSchema,
  ListDeliveriesResponseSchema,
} from "../../../../gen/webhook/v1/delivery_pb.ts";

/** Deliveries a page. */
export const PAGE_SIZE = 50;
/** The maximum number of new deliveries that are counted. */
const MAX_ARRIVED = 100;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 4_000;

const { listDeliveries } = DeliveryService.method;
/** Nothing is newer than a page that was just read. */
const NONE_ARRIVED = create(ListDeliveriesResponseSchema);

/** A page of the list, kept current. */
export interface DeliveryPage {
  /** Undefined while they are being read for the first time. */
  deliveries: readonly Delivery[] | undefined;
  /** Whether the deliveries are those of the previous page or filter, shown until the new ones are read. */
  isPrevious: boolean;
  /** Why the last read failed; `deliveries` are then those that were read before it, if any. */
  error: unknown;
  /** Whether the last reads of the page and of newer deliveries succeeded. */
  isCurrent: boolean;
  /** Repeats the reads that failed. */
  refetch: () => void;
  /** Tokens of the pages beside this one; empty where there is none. */
  older: string;
  newer: string;
  /** Set when the search stopped before the page was full: how far back it came. */
  searchedBackTo: Timestamp | undefined;
  /** The number of deliveries created since the first page was read, at most MAX_ARRIVED. */
  arrived: number;
  hasMoreArrived: boolean;
  showArrived: () => void;
}

/** The first page as it was read, so that nothing moves below somebody's pointer. */
interface View {
  of: string;
  /** Finds what is newer; empty while there is nothing at all. */
  anchor: string;
  /** Reads the same page again; empty until that is known. */
  pin: string;
}

/**
 * Reads a page and keeps its states current. What comes meanwhile is counted and not shown until somebody asks for it.
 *
 * @param filter of the list
 * @param token of the page; "" for the newest
 */
export function useDeliveryPage(
  filter: MessageInitShape<typeof ListDeliveriesRequestSchema>,
  token: string,
): DeliveryPage {
  const queries = useQueryClient();
  const transport = useTransport();
  const [view, setView] = useState<View>();
  const asked = (pageToken: string) => ({ ...filter, pageSize: PAGE_SIZE, pageToken });
  const keyOf = (pageToken: string) =>
    createConnectQueryKey({
      schema: listDeliveries,
      input: asked(pageToken),
      transport,
      cardinality: "finite",
    });
  const of = JSON.stringify(keyOf(""));
  const held = token === "" && view?.of === of ? view : undefined;

  const page = useQuery(listDeliveries, asked(token || (held?.pin ?? "")), {
    placeholderData: keepPreviousData,
    // The first page is read again only where that moves nothing.
    refetchInterval: token !== "" || held?.pin !== "" || held.anchor === "" ? REFRESH_MS : false,
  });
  const arrived = useQuery(
    listDeliveries,
    held && held.anchor !== "" ? { ...asked(held.anchor), pageSize: MAX_ARRIVED } : skipToken,
    // Without data, react-query would forget the error at the start of each read, and the alert would flicker.
    { refetchInterval: REFRESH_MS, initialData: NONE_ARRIVED, initialDataUpdatedAt: 0 },
  );

  const isRead = page.data !== undefined && !page.isPlaceholderData && !page.isFetching;
  if (token === "" && isRead && held?.anchor !== page.data.previousPageToken && !held?.anchor) {
    setView({ of, anchor: page.data.previousPageToken, pin: "" });
  }
  const pin = arrived.data?.nextPageToken;
  useEffect(() => {
    if (held?.pin !== "" || !pin) return;
    queries.setQueryData(keyOf(pin), page.data);
    setView({ ...held, pin });
  });

  const since = held ? (arrived.data?.deliveries.length ?? 0) : 0;
  return {
    deliveries: page.data?.deliveries,
    isPrevious: page.isPlaceholderData,
    error: page.error ?? arrived.error,
    isCurrent: !page.isError && (!held?.anchor || arrived.isSuccess),
    refetch() {
      if (page.isError) void page.refetch();
      if (arrived.isError) void arrived.refetch();
    },
    older: page.data?.nextPageToken ?? "",
    newer: token === "" ? "" : (page.data?.previousPageToken ?? ""),
    searchedBackTo: page.data?.searchedBackTo,
    arrived: since,
    hasMoreArrived: since === MAX_ARRIVED,
    showArrived() {
      queries.removeQueries({ queryKey: keyOf("") });
      setView(undefined);
    },
  };
}
