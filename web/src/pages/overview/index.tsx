import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { useTransport } from "@connectrpc/connect-query";
import { Alert, Button, Stack } from "@mantine/core";
import { useDisclosure, useDocumentVisibility } from "@mantine/hooks";
import { IconHourglassHigh, IconPlayerPlay, IconPlugConnectedX } from "@tabler/icons-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { type Overview, StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { BOTTLENECKS } from "../../../../src/contract/stats/bottlenecks.ts";
import { useAwaySince } from "../../api/away.ts";
import { failureInWords, wasAnswered } from "../../api/failure.ts";
import { useChange } from "../../api/queries.ts";
import { useIsLimited, useMay, useOwnCustomer } from "../../api/session.tsx";
import { Loading } from "../../parts/failure.tsx";
import { PageTitle, Section } from "../../parts/page.tsx";
import { notifyDone, useAct } from "../../parts/save.ts";
import { useCustomerFilter, useHasCustomers } from "../customers/chosen.tsx";
import { Incidents } from "./incidents.tsx";
import { Queue } from "./queue.tsx";
import { Runs } from "./runs.tsx";

// Loaded when they are shown.
const History = lazy(async () => ({ default: (await import("./history.tsx")).History }));
const FirstSteps = lazy(async () => ({ default: (await import("./first-steps.tsx")).FirstSteps }));
const CustomerFilter = lazy(async () => ({
  default: (await import("../customers/filter.tsx")).CustomerFilter,
}));

/** The overview: live figures, and those of the last day. */
export default function OverviewPage() {
  const { customer } = useCustomerFilter();
  // The figures of another customer are another page.
  return <Figures key={customer} customer={customer} />;
}

function Figures({ customer }: { customer: string | undefined }) {
  const { overview, failure } = useLiveOverview(customer);
  const isLimited = useIsLimited();
  const own = useOwnCustomer();
  const hasCustomers = useHasCustomers();
  // Plumbing: of use when something is wrong with the service itself.
  const [runsShown, runs] = useDisclosure();
  return (
    <>
      <PageTitle
        title="Overview"
        description={
          customer !== undefined || own !== undefined
            ? "Live delivery status of the customer’s webhooks"
            : isLimited
              ? "Live delivery status of your app’s webhooks"
              : "Live delivery status across all webhooks"
        }
        actions={
          <>
            {(hasCustomers || customer !== undefined) && (
              <Suspense>
                <CustomerFilter />
              </Suspense>
            )}
            <DispatchNow />
          </>
        }
      />
      <Stack gap="lg">
        {failure !== undefined && wasAnswered(failure) && <NotLive failure={failure} />}
        {overview && customer === undefined && isIdle(overview) && (
          <Suspense>
            <FirstSteps />
          </Suspense>
        )}
        {overview && <Bottlenecks overview={overview} />}
        <Incidents overview={overview} />
        <Queue overview={overview} />
        <Suspense fallback={<Loading lines={6} height={28} />}>
          <History overview={overview} />
        </Suspense>
        {!isLimited && (
          <Section
            title="Last dispatch runs"
            actions={
              <Button variant="subtle" size="compact-sm" onClick={runs.toggle} aria-expanded={runsShown}>
                {runsShown ? "Hide" : "Show"}
              </Button>
            }
          >
            {runsShown && <Runs />}
          </Section>
        )}
      </Stack>
    </>
  );
}

/** Whether nothing is open or failed, and nothing was delivered in the last 24 hours. */
function isIdle({ pending, delivering, retrying, failed, deliveredLastDay }: Overview): boolean {
  return pending + delivering + retrying + failed + deliveredLastDay === 0n;
}

function NotLive({ failure }: { failure: unknown }) {
  const { title, text } = failureInWords(failure);
  return (
    <Alert
      color="yellow"
      icon={<IconPlugConnectedX />}
      title="The figures are not live at the moment"
      role="status"
    >
      {title}. {text} The page tries again by itself.
    </Alert>
  );
}

/** What deliveries wait for within the service, and what to change; nothing while they do not. */
function Bottlenecks({ overview }: { overview: Overview }) {
  return Object.values(BOTTLENECKS)
    .filter(({ number }) => overview.bottlenecks.includes(number))
    .map(({ number, problem, remedy }) => (
      <Alert key={number} color="orange" icon={<IconHourglassHigh />} title={problem} role="note">
        {remedy}
      </Alert>
    ));
}

/** Starts a dispatch of what is pending, for who may. */
function DispatchNow() {
  const may = useMay("Write_Administrative_Data");
  const isLimited = useIsLimited();
  const { dispatchNow, listDispatchRuns } = StatsService.method;
  const dispatch = useChange(dispatchNow, listDispatchRuns);
  const act = useAct("No dispatch was started", async () => {
    await dispatch({});
    notifyDone("Pending deliveries are sent now.", "A dispatch has started");
  });
  if (!may || isLimited) return null;
  return (
    <Button variant="default" leftSection={<IconPlayerPlay size={16} />} {...act}>
      Dispatch now
    </Button>
  );
}

/** The delay before the stream is opened again, in milliseconds: doubled each time, up to MAX_WAIT_MS. */
const MIN_WAIT_MS = 1_000;
/** The maximum of that delay, in milliseconds. */
const MAX_WAIT_MS = 30_000;
/**
 * The time without a message after which the stream counts as broken, in milliseconds. The service sends an unchanged
 * overview every 20 s, so a longer silence means that the connection was lost without being closed.
 */
const MAX_SILENCE_MS = 60_000;

const SILENT = new ConnectError(`No figures arrived for ${MAX_SILENCE_MS / 1_000} s.`, Code.DeadlineExceeded);

/** The overview as last told, and whether it is still being told. */
interface LiveOverview {
  overview: Overview | undefined;
  /** The error of the stream, which is opened again automatically. */
  failure: unknown;
}

/**
 * Follows the overview. Asks again when the service ends the stream or cannot be reached, each time after a longer
 * wait. A page that nobody looks at does not follow: over HTTP/1.1 a browser has six connections to a service, and
 * each stream keeps one.
 */
function useLiveOverview(customer: string | undefined): LiveOverview {
  const transport = useTransport();
  const visible = useDocumentVisibility() === "visible";
  // Its stream is opened as soon as the service answers again.
  const isAway = useAwaySince() !== undefined;
  const [live, setLive] = useState<LiveOverview>({ overview: undefined, failure: undefined });

  useEffect(() => {
    if (!visible || isAway) return;
    const client = createClient(StatsService, transport);
    const end = new AbortController();
    async function follow() {
      let wait = MIN_WAIT_MS;
      while (!end.signal.aborted) {
        const broken = new AbortController();
        const giveUp = () => broken.abort(SILENT);
        let silence = setTimeout(giveUp, MAX_SILENCE_MS);
        const signal = AbortSignal.any([end.signal, broken.signal]);
        try {
          for await (const { overview } of client.watchOverview(customer === undefined ? {} : { customer }, {
            signal,
          })) {
            clearTimeout(silence);
            silence = setTimeout(giveUp, MAX_SILENCE_MS);
            wait = MIN_WAIT_MS;
            setLive({ overview, failure: undefined });
          }
        } catch (error) {
          if (end.signal.aborted) return;
          const failure: unknown = broken.signal.aborted ? SILENT : error;
          setLive(({ overview }) => ({ overview, failure }));
        } finally {
          clearTimeout(silence);
        }
        await elapsed(wait, end.signal);
        wait = Math.min(wait * 2, MAX_WAIT_MS);
      }
    }
    void follow();
    return () => end.abort();
  }, [transport, visible, customer, isAway]);
  return live;
}

/** Resolves after so long, or at once when told to end. */
function elapsed(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
