import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { useTransport } from "@connectrpc/connect-query";
import { useEffect, useRef, useState } from "react";
import {
  type Delivery,
  DeliveryService,
  type ExportDeliveriesRequestSchema,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";

/** The number of deliveries that are kept to be shown. */
export const MAX_SHOWN = 50;

export type ExportRequest = MessageInitShape<typeof ExportDeliveriesRequestSchema>;

/** The progress of an export. */
export interface ExportProgress {
  /** Whether it looks for a text in payloads. */
  isSearch: boolean;
  exported: number;
  examined: number;
  /** All deliveries created since then were examined; undefined before the first, and once none is left. */
  backTo: Timestamp | undefined;
  /** The newest deliveries of an export of messages. */
  shown: readonly Delivery[];
  isRunning: boolean;
  /** Whether the user has stopped it. */
  isStopped: boolean;
  failure: unknown;
}

const NONE: ExportProgress = {
  isSearch: false,
  exported: 0,
  examined: 0,
  backTo: undefined,
  shown: [],
  isRunning: true,
  isStopped: false,
  failure: undefined,
};

/** An export in progress: of messages, or of lines, which are returned at the end. It ends with the component. */
export function useExport(): {
  progress: ExportProgress | undefined;
  /** Resolves to the lines of the file; undefined if it failed or was stopped. */
  start(request: ExportRequest): Promise<Blob | undefined>;
  stop(): void;
} {
  const transport = useTransport();
  const [progress, setProgress] = useState<ExportProgress>();
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);

  async function start(request: ExportRequest): Promise<Blob | undefined> {
    const end = new AbortController();
    running.current = end;
    let now: ExportProgress = { ...NONE, isSearch: Boolean(request.payloadText) };
    setProgress(now);
    // Blobs are outside the page's heap, on disk where they are large, and a blob of blobs needs no copy.
    const parts: Blob[] = [];
    const ended = (changes: Partial<ExportProgress>) => setProgress({ ...now, isRunning: false, ...changes });
    try {
      const client = createClient(DeliveryService, transport);
      for await (const each of client.exportDeliveries(request, { signal: end.signal })) {
        if (each.lines !== "") parts.push(new Blob([each.lines]));
        now = {
          ...now,
          exported: Number(each.exported),
          examined: Number(each.examined),
          backTo: each.examinedBackTo,
          shown: now.shown.concat(each.deliveries).slice(0, MAX_SHOWN),
        };
        setProgress(now);
      }
      ended({ backTo: undefined });
      return new Blob(parts, { type: "text/plain;charset=utf-8" });
    } catch (failure) {
      if (end.signal.aborted) ended({ isStopped: true });
      else ended({ failure });
      return undefined;
    }
  }

  return { progress, start, stop: () => running.current?.abort() };
}
