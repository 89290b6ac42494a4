import { Code, Stack, Tabs, Text } from "@mantine/core";
import { SignatureForm, type Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { secondsInWords } from "../../../../src/contract/time-in-words.ts";
import { useDeliveryTimeoutMs, useMay } from "../../api/session.tsx";
import { Section } from "../../parts/page.tsx";
import { CodeBlock } from "../../parts/text/copy.tsx";
import { SecondSignatureSection, signatureHeader } from "./second-signature.tsx";
import { secondSignatureCode } from "./second-signature-code.ts";
import { KeyPairs, SigningSecret } from "./signing.tsx";

/** A receiver's way to tell true deliveries from made-up ones, in one language. */
interface Snippet {
  language: string;
  install: string;
  code: string;
}

const SNIPPETS: readonly Snippet[] = [
  {
    language: "TypeScript",
    install: "npm install standardwebhooks",
    code: `import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");

// Pass the raw body, not parsed JSON. Throws if the signature is invalid
// or older than five minutes; answer 400 then.
export function verified(body: string, headers: Record<string, string>): unknown {
  return webhook.verify(body, headers);
}`,
  },
  {
    language: "Python",
    install: "pip install standardwebhooks",
    code: `import os
from standardwebhooks import Webhook

webhook = Webhook(os.environ["WEBHOOK_SECRET"])

# Pass the raw body, not parsed JSON. Raises if the signature is invalid
# or older than five minutes; answer 400 then.
def verified(body, headers):
    return webhook.verify(body, dict(headers))`,
  },
];

/** What a webhook's requests are signed with, and how its endpoint verifies them. */
export function Verify({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <Stack gap={0} className="joined">
      {mayWrite && <SigningSecret webhook={webhook} />}
      <VerifySnippets webhook={webhook} />
      <KeyPairs webhook={webhook} />
      <SecondSignatureSection webhook={webhook} />
    </Stack>
  );
}

/** Shows how a receiver verifies a delivery. */
function VerifySnippets({ webhook }: { webhook: Webhook }) {
  const serviceMs = useDeliveryTimeoutMs();
  const timeoutMs = serviceMs && Math.min(webhook.timeoutMs ?? serviceMs, serviceMs);
  const second = secondSignatureCode(webhook, signatureHeader(webhook));
  const install = webhook.signatureForm === SignatureForm.SVIX ? "npm install svix" : "Node.js";
  const snippets = second ? [...SNIPPETS, { language: "Second signature", install, code: second }] : SNIPPETS;
  const within = timeoutMs === undefined ? "" : ` within ${secondsInWords(timeoutMs)}`;
  return (
    <Section
      title="Verify at the endpoint"
      description={`A valid signature proves that the body comes from this service, unchanged. Answer with any 2xx status${within}. Skip repeats of an X-Service-Webhook-Id.`}
    >
      <Tabs defaultValue="TypeScript" keepMounted={false}>
        <Tabs.List mb="sm">
          {snippets.map(({ language }) => (
            <Tabs.Tab key={language} value={language}>
              {language}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {snippets.map(({ language, install: needed, code }) => (
          <Tabs.Panel key={language} value={language}>
            <Text size="sm" mb="xs">
              <Code>{needed}</Code>, and the secret in <Code>WEBHOOK_SECRET</Code>:
            </Text>
            <CodeBlock of={`Verifying in ${language}`}>{code}</CodeBlock>
          </Tabs.Panel>
        ))}
      </Tabs>
    </Section>
  );
}
