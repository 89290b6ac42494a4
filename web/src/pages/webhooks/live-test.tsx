import { timestampMs } from "@bufbuild/protobuf/wkt";
import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Alert, Code, ColorSwatch, Group, Progress, Stack, Text } from "@mantine/core";
import { useState } from "react";
import type {
  RequestTiming,
  ServerCertificate,
  TryWebhookRequestResponse,
} from "../../../../gen/webhook/v1/request_settings_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { Failure, Loading } from "../../parts/failure.tsx";
import { Facts } from "../../parts/page.tsx";
import { type Saving, useSave } from "../../parts/save.ts";
import { capitalized, durationInWords, remedyInWords } from "../../parts/text/words.ts";
import { fromNow, Time, useNow } from "../../parts/time.tsx";
import { keptSettings } from "./request/fields.tsx";

/** A test request to a webhook's URL with the stored settings. */
export interface LiveTest extends Pick<Saving, "busy" | "failure"> {
  /** Of the last request to the webhook's current URL. */
  outcome: TryWebhookRequestResponse | undefined;
  /** Sends one. @param url the URL of the webhook by now, if it was changed just before */
  run: (url?: string) => Promise<unknown>;
}

/** The test requests to a webhook that are sent from a page. */
export function useLiveTest({ id: webhookId, url: current }: Webhook): LiveTest {
  const transport = useTransport();
  const { getWebhookRequestSettings, tryWebhookRequest } = WebhookService.method;
  const { busy, failure, save } = useSave();
  const [tested, setTested] = useState<{ url: string; outcome: TryWebhookRequestResponse }>();
  function run(url = current) {
    setTested(undefined);
    return save(async () => {
      // Read anew: they may have changed with the URL.
      const { settings } = await callUnaryMethod(transport, getWebhookRequestSettings, { webhookId });
      const request = { webhookId, ...(settings ? { settings: keptSettings(settings) } : {}) };
      setTested({ url, outcome: await callUnaryMethod(transport, tryWebhookRequest, request) });
    });
  }
  return { busy, failure, run, outcome: tested?.url === current ? tested.outcome : undefined };
}

/** The progress and the outcome of a test request. */
export function LiveTestOutcome({ test: { busy, failure, outcome, run } }: { test: LiveTest }) {
  return (
    <>
      {busy && <Loading lines={2} />}
      <div role="status" hidden={!outcome}>
        {outcome && <TestOutcome outcome={outcome} />}
      </div>
      {!busy && <Failure error={failure} title="Nothing was sent" onRetry={() => run()} />}
    </>
  );
}

/** The endpoint's response to a test request, why it was no success, and where the time went. */
export function TestOutcome({ outcome }: { outcome: TryWebhookRequestResponse }) {
  const { accepted, status, error, cause, responseStart, durationMs, warnings } = outcome;
  const { timing, addresses, certificates } = outcome;
  return (
    <Alert
      variant="transparent"
      color={accepted ? "green" : "red"}
      title={
        status === undefined
          ? `No response: ${cause?.summary || error || "unknown error"}`
          : `The endpoint answered ${status} after ${durationMs.toLocaleString()} ms`
      }
    >
      <Stack gap="xs">
        {/* Beside a status, it explains that: `Retry-After: 120 s`. */}
        {status !== undefined && error !== undefined && <Text size="sm">{capitalized(error)}.</Text>}
        {cause?.remedy && <Text size="sm">{remedyInWords(cause.remedy)}</Text>}
        {warnings.map((warning) => (
          <Text key={warning} size="sm">
            {warning}
          </Text>
        ))}
        <Facts
          facts={[
            timing && ["Time", <TimingBar key="time" timing={timing} durationMs={durationMs} />],
            addresses.length > 0 && ["Addresses", addresses.join(", ")],
            certificates.length > 0 && [
              certificates.length === 1 ? "Certificate" : "Certificates",
              <Stack key="certificates" gap={2}>
                {certificates.map((each, place) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: a chain has an order, and may repeat a certificate
                  <Certificate key={place} of={each} isFirst={place === 0} />
                ))}
              </Stack>,
            ],
            status !== undefined && [
              "Response",
              responseStart ? (
                <Code key="response" block mah={160} style={{ overflow: "auto" }} tabIndex={0}>
                  {responseStart}
                </Code>
              ) : (
                "The response has no body."
              ),
            ],
          ]}
        />
      </Stack>
    </Alert>
  );
}

/** The parts of a request, and their colours in the bar. */
const PARTS = [
  { name: "DNS", of: "dnsMs", color: "ink.2" },
  { name: "Connect", of: "connectMs", color: "ink.3" },
  { name: "TLS", of: "tlsMs", color: "ink.5" },
  { name: "First byte", of: "firstByteMs", color: "ink.7" },
  { name: "Body", of: "bodyMs", color: "ink.9" },
] as const;

/** Where the time of a request went, as a bar and in words. What is in none of its parts was spent waiting. */
export function TimingBar({ timing, durationMs }: { timing: RequestTiming; durationMs: number }) {
  const reached = PARTS.flatMap(({ of, ...part }) => {
    const ms = timing[of];
    return ms === undefined ? [] : [{ ...part, ms }];
  });
  const total = Math.max(
    1,
    durationMs,
    reached.reduce((sum, { ms }) => sum + ms, 0),
  );
  const wait = total - reached.reduce((sum, { ms }) => sum + ms, 0);
  const parts = [{ name: "Wait", color: "gray.5", ms: wait }, ...reached];
  return (
    <Stack gap={4} maw={560}>
      <Progress.Root
        size="md"
        role="img"
        aria-label={parts.map(({ name, ms }) => `${name} ${durationInWords(ms)}`).join(", ")}
      >
        {parts.map(({ name, ms, color }) => (
          <Progress.Section key={name} withAria={false} value={(ms / total) * 100} color={color} />
        ))}
      </Progress.Root>
      <Group gap="md" style={{ rowGap: 0 }} className="figures" aria-hidden>
        {parts.map(({ name, ms, color }) => (
          <Group key={name} gap={4} wrap="nowrap">
            <ColorSwatch
              size={8}
              withShadow={false}
              color={`var(--mantine-color-${color.replace(".", "-")})`}
            />
            <Text size="xs">
              {name} {durationInWords(ms)}
            </Text>
          </Group>
        ))}
      </Group>
    </Stack>
  );
}

/** The time before its end at which a certificate is a warning, in milliseconds. */
const ENDS_SOON_MS = 14 * 86_400_000;
/** The interval between looks at the clock, in milliseconds. */
const CHECK_MS = 60_000;

function Certificate({ of, isFirst }: { of: ServerCertificate; isFirst: boolean }) {
  const { subject, issuer, notBefore, notAfter, names } = of;
  const left = (notAfter ? timestampMs(notAfter) : Number.POSITIVE_INFINITY) - useNow(CHECK_MS);
  return (
    <Text size="sm">
      {subject}, issued by {issuer}, valid from <Time value={notBefore} /> until <Time value={notAfter} />
      {left < ENDS_SOON_MS && (
        <Text span inherit fw={500} c={left < 0 ? "var(--mantine-color-error)" : undefined}>
          {left < 0 ? `: expired ${fromNow(left)}` : `: ends ${fromNow(left)}`}
        </Text>
      )}
      {isFirst && names.length > 0 && `. For ${names.slice(0, 5).join(", ")}`}
      {isFirst && names.length > 5 && ` and ${names.length - 5} more`}
    </Text>
  );
}
