import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { useTransport } from "@connectrpc/connect-query";
import {
  Button,
  Checkbox,
  Group,
  Modal,
  SegmentedControl,
  Select,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { IconDownload, IconPlayerStop, IconSearch } from "@tabler/icons-react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import {
  type Delivery,
  DeliveryService,
  type ExportDeliveriesRequestSchema,
  ExportFormat,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { DialogProps } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { saveFile } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { DeliveryList } from "./delivery-list.tsx";
import type { DeliveryFilter } from "./filters.ts";

/** The number of deliveries that are kept to be shown. */
const MAX_SHOWN = 50;

type ExportRequest = MessageInitShape<typeof ExportDeliveriesRequestSchema>;

/** The progress of an export. */
interface ExportProgress {
  /** Whether it looks for a text in payloads. */
  isSearch: boolean;
  exported: number;
  examined: number;
  /** All deliveries created since then were examined; undefined before the first, and once none is left. */
  backTo?: Timestamp | undefined;
  /** The newest deliveries of an export of messages. */
  shown: readonly Delivery[];
  isRunning: boolean;
  /** Whether the user has stopped it. */
  isStopped?: boolean;
  failure?: unknown;
}

const NONE: ExportProgress = {
  isSearch: false,
  exported: 0,
  examined: 0,
  shown: [],
  isRunning: true,
};

/** An export in progress: of messages, or of lines, which are returned at the end. It ends with the component. */
function useExport(): {
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

const DAY_MS = 86_400_000;
/** The minimum length of a text searched in payloads, in characters. */
const MIN_TEXT = 3;

const FORMATS = [
  { value: "show", label: "Show here", format: ExportFormat.UNSPECIFIED, extension: "" },
  { value: "csv", label: "CSV file", format: ExportFormat.CSV, extension: "csv" },
  { value: "jsonl", label: "JSON lines file", format: ExportFormat.JSON_LINES, extension: "jsonl" },
] as const;

/** The periods of a search in payloads that has no beginning, in days. */
const PERIODS = [
  { value: "1", label: "24 hours" },
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
];

/** Exports what a filter finds, as a file or as a list, and finds text in payloads. */
export function ExportDialog({ opened, onClose, filter }: DialogProps & { filter: DeliveryFilter }) {
  const [isRunning, setRunning] = useState(false);
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title="Export, or search payloads"
      size="xl"
      // Closing ends an export, and what it has read is lost.
      closeOnClickOutside={false}
      closeOnEscape={!isRunning}
    >
      <Form filter={filter} onClose={onClose} onRunning={setRunning} />
    </Modal>
  );
}

interface FormProps {
  filter: DeliveryFilter;
  onClose: () => void;
  /** Called when an export starts and when it ends. */
  onRunning: (isRunning: boolean) => void;
}

function Form({ filter, onClose, onRunning }: FormProps) {
  const { progress, start, stop } = useExport();
  const [chosen, setName] = useState<string>();
  const [text, setText] = useState("");
  // Who searches for a text wants to see what has it.
  const name = chosen ?? (text === "" ? "csv" : "show");
  const [days, setDays] = useState("1");
  const [withPayload, setWithPayload] = useState(false);
  const [saved, setSaved] = useState("");
  const { format, extension } = FORMATS.find(({ value }) => value === name) ?? FORMATS[0];
  const isFile = format !== ExportFormat.UNSPECIFIED;
  const isTooShort = text !== "" && [...text].length < MIN_TEXT;
  const needsPeriod = text !== "" && filter.from === undefined;
  const isRunning = progress?.isRunning === true;

  /** The end of the period, in milliseconds: now for a “To” in the future too. */
  function end(): number {
    return Math.min(Date.now(), filter.to ? timestampMs(filter.to) : Number.POSITIVE_INFINITY);
  }

  async function run(event: FormEvent) {
    event.preventDefault();
    if (isTooShort || isRunning) return;
    setSaved("");
    onRunning(true);
    const lines = await start({
      ...filter,
      ...(needsPeriod ? { from: timestampFromMs(end() - Number(days) * DAY_MS) } : {}),
      payloadText: text,
      format,
      withPayload: isFile && withPayload,
    });
    onRunning(false);
    if (lines && isFile) setSaved(saveFile(lines, "deliveries", extension));
  }

  return (
    <form onSubmit={run} noValidate>
      <Stack>
        <Text size="sm">The filters of the list apply.</Text>
        <TextInput
          label="Text in the payload"
          description="Any part of the JSON that receivers get, with the same case. Leave it empty for all deliveries."
          placeholder="JD0146 000"
          value={text}
          maxLength={300}
          error={isTooShort ? `Enter at least ${MIN_TEXT} characters.` : undefined}
          onChange={(event) => setText(event.currentTarget.value)}
          autoComplete="off"
          spellCheck={false}
          data-autofocus
        />
        {needsPeriod && (
          <Select
            label="Created"
            description="All payloads of this period are read."
            data={PERIODS.map(({ value, label }) => ({
              value,
              label: filter.to === undefined ? `The last ${label}` : `The ${label} before “To”`,
            }))}
            value={days}
            onChange={(value) => setDays(value ?? "1")}
            allowDeselect={false}
          />
        )}
        <SegmentedControl
          aria-label="Format"
          data={FORMATS.map(({ value, label }) => ({ value, label }))}
          value={name}
          onChange={setName}
        />
        {isFile && (
          <Checkbox
            label="With payloads"
            checked={withPayload}
            onChange={(event) => setWithPayload(event.currentTarget.checked)}
          />
        )}
        {progress && <Progress progress={progress} saved={saved} />}
        <Group justify="flex-end">
          {isRunning ? (
            <Button variant="default" leftSection={<IconPlayerStop size={16} />} onClick={stop}>
              Stop
            </Button>
          ) : (
            <Button variant="default" onClick={onClose}>
              Close
            </Button>
          )}
          <Button
            type="submit"
            loading={isRunning}
            leftSection={isFile ? <IconDownload size={16} /> : <IconSearch size={16} />}
          >
            {isFile ? "Export" : "Search"}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

function Progress({ progress, saved }: { progress: ExportProgress; saved: string }) {
  const { isSearch, exported, examined, backTo, shown, isRunning, isStopped, failure } = progress;
  const found = countOf(exported, "delivery", "deliveries");
  return (
    <>
      <Text size="sm" role="status">
        {isSearch ? `${found} found; ${examined.toLocaleString()} examined` : found}
        {backTo && (
          <>
            , back to <Time value={backTo} />
          </>
        )}
        {isRunning ? "…" : isStopped ? "; stopped." : "."}
        {saved !== "" && ` Saved as ${saved}.`}
      </Text>
      <Failure error={failure} title="The export has not ended" />
      {shown.length > 0 && <DeliveryList deliveries={shown} />}
      {exported > MAX_SHOWN && shown.length === MAX_SHOWN && (
        <Dimmed>The newest {MAX_SHOWN} are shown. Export a file for all.</Dimmed>
      )}
    </>
  );
}
