import { Anchor, Button, Code, Stack, Table, Text } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { IconCheck, IconTerminal2 } from "@tabler/icons-react";
import { useMemo } from "react";
import { generatePath, Link } from "react-router";
import type { Delivery, DeliveryHeader, DeliveryRequest } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { CodeBlock } from "../../../parts/text/code-block.tsx";
import { layOutJson } from "../../../parts/text/json-text.ts";
import { curlCommand } from "./curl-command.ts";

/** The maximum height of the body, in pixels. */
const BODY_HEIGHT = 480;
/** The time for which the confirmation is shown, in milliseconds. */
const COPIED_SHOWN_MS = 2_000;

/** Headers that change with each attempt. */
const OF_EACH_ATTEMPT = [
  { name: "webhook-timestamp", value: "the attempt’s time, in seconds since 1970" },
  {
    name: "webhook-signature",
    value:
      "v1, the HMAC-SHA256 of id, timestamp and body; with public-key signatures also v1a, the ed25519 signature of the same",
  },
];

/** The POST that each attempt makes: its headers and its body, exactly as receivers get them. */
export function SentRequest({
  delivery,
  request,
  signature,
}: {
  delivery: Delivery;
  request: DeliveryRequest | undefined;
  /** The signature headers of the latest attempt, as far as they are known. */
  signature: readonly DeliveryHeader[];
}) {
  if (!request) {
    return (
      <Section title="Request">
        <Text size="sm" c="dimmed">
          The event is not kept any more.
        </Text>
      </Section>
    );
  }
  return (
    <>
      <Section
        title="Request headers"
        actions={
          !request.erased && (
            <CopyAsCurl
              command={curlCommand(delivery.url, [...request.headers, ...signature], request.body)}
            />
          )
        }
      >
        <Stack gap="sm">
          <Code block bd="1px solid var(--mantine-color-default-border)" style={{ whiteSpace: "pre-wrap" }}>
            POST {delivery.url}
          </Code>
          <Headers request={request} />
          <Text size="sm" c="dimmed">
            The signature is made with the webhook’s signing secret, and its key pair if it has one. Both are
            on{" "}
            <Anchor
              component={Link}
              inherit
              underline="always"
              to={generatePath(PAGE_PATHS.webhook, { id: String(delivery.webhookId) })}
            >
              the webhook’s page
            </Anchor>
            . Each attempt above shows its own. The cURL command has those of the latest attempt; endpoints
            that check the timestamp refuse it after five minutes.
          </Text>
        </Stack>
      </Section>
      {request.erased ? (
        <Section title="Request body">
          <Text size="sm" c="dimmed">
            The payload was erased.
          </Text>
        </Section>
      ) : (
        <Body body={request.body} />
      )}
    </>
  );
}

function CopyAsCurl({ command }: { command: string }) {
  const { copy, copied, error } = useClipboard({ timeout: COPIED_SHOWN_MS });
  return (
    <Button
      variant="default"
      size="xs"
      leftSection={copied ? <IconCheck size={14} /> : <IconTerminal2 size={14} />}
      onClick={() => copy(command)}
    >
      {error ? "Your browser does not allow copying" : copied ? "Copied" : "Copy as cURL"}
    </Button>
  );
}

function Headers({ request }: { request: DeliveryRequest }) {
  return (
    <Table aria-label="Headers" layout="fixed">
      <Table.Tbody>
        {request.headers.map(({ name, value }) => (
          <Table.Tr key={name}>
            <Name>{name}</Name>
            <Table.Td>
              <Text span size="sm" ff="monospace" style={{ overflowWrap: "anywhere" }}>
                {value}
              </Text>
            </Table.Td>
          </Table.Tr>
        ))}
        {OF_EACH_ATTEMPT.map(({ name, value }) => (
          <Table.Tr key={name}>
            <Name>{name}</Name>
            <Table.Td>
              <Text span size="sm" c="dimmed">
                Changes with each attempt: {value}
              </Text>
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Name({ children }: { children: string }) {
  return (
    <Table.Th scope="row" w={{ base: 150, sm: 260 }} style={{ verticalAlign: "top" }}>
      <Text span size="sm" ff="monospace" style={{ overflowWrap: "anywhere" }}>
        {children}
      </Text>
    </Table.Th>
  );
}

function Body({ body }: { body: string }) {
  const laidOut = useMemo(() => layOutJson(body), [body]);
  return (
    <Section
      title="Request body"
      actions={
        <Text size="sm" c="dimmed">
          {new TextEncoder().encode(body).length.toLocaleString()} bytes
        </Text>
      }
    >
      <CodeBlock of="the body as it is sent" copied={body} maxHeight={BODY_HEIGHT}>
        {laidOut}
      </CodeBlock>
    </Section>
  );
}
