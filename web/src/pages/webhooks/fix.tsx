import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Button, Group, Stack, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { IconCheck, IconRefresh, IconSend } from "@tabler/icons-react";
import { useState } from "react";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { type Incident, IncidentService } from "../../../../gen/webhook/v1/incident_pb.ts";
import {
  type OverdueRetries,
  type Webhook,
  WebhookHealth,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange, useLive } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { overdueInWords, waitingFor } from "../../parts/overdue.tsx";
import { Section } from "../../parts/page.tsx";
import { notifyDone, notifyWarnings, useAct, useSave } from "../../parts/save.ts";
import { addressParts, capitalized, countOf, remedyInWords, webhookTitle } from "../../parts/text/words.ts";
import { fromNow, Time, useNow } from "../../parts/time.tsx";
import { isOpen, useCurrentReplays } from "../replays/replay-card.tsx";
import { useStartReplay } from "../replays/start-replay.tsx";
import { BREAKER_IN_WORDS } from "./breaker.tsx";
import { type LiveTest, LiveTestOutcome } from "./live-test.tsx";
import {
  MovedCredentials,
  movedChanges,
  movedErrors,
  movedField,
  NO_MOVED_VALUES,
  useMovedSettings,
} from "./request/moved-credentials.tsx";
import { UrlField } from "./webhook-form.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;

/** What is wrong with a webhook, and what mends it. */
export interface FixProps {
  webhook: Webhook;
  overdue: OverdueRetries | undefined;
  test: LiveTest;
}

/**
 * The way from the cause of failing attempts to the proof that it is gone: change the URL, test it, replay what failed. It stays until the
 * page is left; for a webhook that does not fail, it has the outcome of tests. Its times and counts change by themselves, so that screen
 * readers must not announce each change.
 */
export function Fix({ webhook, overdue, test }: FixProps) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { FAILING, DEGRADED } = WebhookHealth;
  const { health } = webhook;
  const [worst, setWorst] = useState(health);
  if (health > worst) setWorst(health);
  const wasBroken = worst >= DEGRADED;
  // What has failed before is counted for five minutes more: then it is degraded, and works.
  const isBroken = health === FAILING || (health === DEGRADED && worst < FAILING);
  /** The last error when the URL was changed here: until there is another, it is of the old one. */
  const [oldError, setOldError] = useState<string>();
  const late = overdue && capitalized(`${waitingFor(webhook)}; ${overdueInWords(overdue, Date.now())}.`);
  const isTested = test.busy || test.outcome !== undefined || test.failure !== undefined;
  if (!wasBroken && !isTested && !late) return null;
  const title = wasBroken ? "It works again" : isTested ? "Test" : "Retries are overdue";
  return (
    <Section title={isBroken ? "Fix it" : title}>
      {isBroken && (
        <Cause webhook={webhook} isOld={oldError !== undefined && oldError === webhook.lastError} />
      )}
      {late && <Text size="sm">{late}</Text>}
      {wasBroken && !isBroken && (
        <Group gap="xs">
          <IconCheck size={16} color="var(--rate-delivered)" aria-hidden />
          <Text size="sm">The latest attempts have succeeded.</Text>
        </Group>
      )}
      {mayWrite && wasBroken && (
        <UrlForm webhook={webhook} test={test} onMoved={() => setOldError(webhook.lastError ?? "")} />
      )}
      <LiveTestOutcome test={test} />
      {mayWrite && <ReplayAll webhook={webhook} isNext={test.outcome?.accepted ?? !isBroken} />}
      {mayWrite && isBroken && !webhook.circuitBreaker && <BreakerOffer webhook={webhook} />}
    </Section>
  );
}

/** Causes that do not lie in the host of the webhook. */
const OF_OTHERS = new Set(["token_endpoint", "proxy", "service"]);

/** The open incident of a webhook with its present host; null if it has only one of an earlier host. */
function useIncident({ id, url }: Webhook): Incident | null | undefined {
  const { data } = useLive(IncidentService.method.listIncidents, { webhookId: id, open: true }, REFRESH_MS);
  const [host] = addressParts(url);
  const inDomain = `.${host}`.replace(/:\d+$/, "");
  const found = data?.incidents.find(
    ({ cause, subject }) =>
      OF_OTHERS.has(cause?.code ?? "") ||
      subject === host ||
      (subject.startsWith("hosts of ") && inDomain.endsWith(subject.replace("hosts of ", "."))),
  );
  return found ?? (data?.incidents.length ? null : undefined);
}

/** @param isOld whether the last error is of an earlier URL */
function Cause({ webhook, isOld }: { webhook: Webhook; isOld: boolean }) {
  const { health, failingSince, lastError } = webhook;
  const incident = useIncident(webhook);
  if (isOld || incident === null) {
    return (
      <Text size="sm">
        The URL was changed. The failures so far are of the earlier one: test the new one, then replay what
        failed.
      </Text>
    );
  }
  const [summary = "", remedy] = incident?.cause
    ? [incident.cause.summary, incident.cause.remedy]
    : (lastError || "attempts fail").split("; ", 2);
  return (
    <Stack gap={4} style={{ overflowWrap: "anywhere" }}>
      <Text fw={500} c={health === WebhookHealth.FAILING ? "var(--mantine-color-error)" : undefined}>
        {capitalized(summary)}
      </Text>
      {remedy && <Text size="sm">{remedyInWords(remedy)}</Text>}
      <Dimmed component="div">
        {health === WebhookHealth.FAILING
          ? "No attempt has succeeded since the first failure, "
          : "At least a tenth of the recent attempts failed. This began "}
        <Time value={failingSince} relative />.{incident && <Affected incident={incident} />}
      </Dimmed>
    </Stack>
  );
}

/** ` 12 webhooks of 3 customers fail for the same. 2,007 deliveries wait. The next attempt is in 3 minutes.` */
function Affected({
  incident: { failingWebhooks, customers, waiting, nextAttempt },
}: {
  incident: Incident;
}) {
  const of = customers > 0n ? ` of ${countOf(Number(customers), "customer", "customers")}` : "";
  const now = useNow(REFRESH_MS);
  return [
    failingWebhooks > 1n && ` ${failingWebhooks.toLocaleString()} webhooks${of} fail for the same.`,
    waiting > 0n && ` ${countOf(Number(waiting), "delivery waits", "deliveries wait")}.`,
    nextAttempt && ` The next attempt is ${fromNow(Math.max(0, timestampMs(nextAttempt) - now))}.`,
  ].filter(Boolean);
}

interface UrlFormProps {
  webhook: Webhook;
  test: LiveTest;
  onMoved: () => void;
}

/** Changes the URL of a webhook, if it is another one, and tests it. */
function UrlForm({ webhook, test, onMoved }: UrlFormProps) {
  const update = useChange(WebhookService.method.updateWebhook);
  const movedSettings = useMovedSettings(webhook);
  const form = useForm({
    initialValues: { url: webhook.url, ...NO_MOVED_VALUES },
    validate: (values) => ({
      url: values.url.trim() === "" ? "Enter the URL of the endpoint." : null,
      ...movedErrors(movedSettings(values.url), values),
    }),
  });
  const { busy, failure, save } = useSave(form, movedField);
  const moves = form.values.url.trim() !== webhook.url;
  const moved = movedSettings(form.values.url);

  const submit = form.onSubmit(async (values) => {
    const url = values.url.trim();
    const change = async () => {
      const { warnings } = await update({ webhookId: webhook.id, url, ...movedChanges(moved, values) });
      onMoved();
      notifyWarnings(warnings);
    };
    if (!moves || (await save(change))) await test.run(url);
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="sm" maw={720}>
        <UrlField {...form.getInputProps("url")} description={undefined} />
        {moved && <MovedCredentials settings={moved} form={form} />}
        <Group>
          <Button
            type="submit"
            variant={test.outcome?.accepted && !moves ? "default" : "filled"}
            leftSection={<IconSend size={16} />}
            loading={busy || test.busy}
          >
            {moves ? "Save and test" : "Test now"}
          </Button>
        </Group>
        <Failure error={failure} title={`${webhookTitle(webhook)} was not changed`} />
      </Stack>
    </form>
  );
}

const FAILED = [DeliveryState.FAILED];

/** Replays all failed deliveries of a webhook. @param isNext whether that is what is to be done now */
function ReplayAll({ webhook, isNext }: { webhook: Webhook; isNext: boolean }) {
  const filter = { webhookId: webhook.id, states: FAILED };
  const { data } = useLive(DeliveryService.method.listFailureReasons, filter, REFRESH_MS);
  const isReplaying = useCurrentReplays(webhook.id).some(isOpen);
  const start = useStartReplay(true);
  const act = useAct(`The failed deliveries of ${webhookTitle(webhook)} are not replayed`, () =>
    start({ case: "resend", value: filter }),
  );
  const failed = Number(data?.total ?? data?.examined ?? 0);
  if (failed === 0 || isReplaying) return null;
  return (
    <Group gap="sm">
      <Button variant={isNext ? "filled" : "default"} leftSection={<IconRefresh size={16} />} {...act}>
        Replay {failed.toLocaleString()} failed
      </Button>
      <Dimmed>Each gets up to four more attempts, the oldest first.</Dimmed>
    </Group>
  );
}

function BreakerOffer({ webhook }: { webhook: Webhook }) {
  const update = useChange(WebhookService.method.updateWebhook);
  const act = useAct(`${webhookTitle(webhook)} got no circuit breaker`, async () => {
    await update({ webhookId: webhook.id, circuitBreaker: { enabled: true } });
    notifyDone("Its thresholds are in the settings.", "The circuit breaker is on");
  });
  return (
    <Group gap="sm" align="flex-start">
      <Dimmed flex="1 1 20rem" maw={720}>
        {BREAKER_IN_WORDS}
      </Dimmed>
      <Button variant="default" {...act}>
        Use a circuit breaker
      </Button>
    </Group>
  );
}
