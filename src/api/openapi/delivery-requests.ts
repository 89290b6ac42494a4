import type { CatalogueEntry } from "../../contract/catalogue.ts";
import { commentOf, firstSentence } from "../../contract/comments.ts";
import type { JsonSchema } from "../../contract/event-types/schema-scalars.ts";
import type { AnswerSchemas } from "./answer-schemas.ts";
import { exampleData } from "./examples.ts";

/**
 * The headers of a delivery, except Content-Type (contract, section 6.2; Standard Webhooks). A header without an
 * example has the name of the event type.
 */
const HEADERS: { name: string; required: boolean; description: string; example: string | undefined }[] = [
  {
    name: "X-Service-Webhook-Id",
    required: true,
    description: "The id of this delivery, the same with every attempt. Store it to detect repeats.",
    example: "01a1fcb1-a29f-764b-ae78-489c1b984865",
  },
  {
    name: "X-Service-Webhook-Process",
    required: true,
    description: "The name of the event type.",
    example: undefined,
  },
  {
    name: "X-Service-UserId",
    required: false,
    description: "The user (tenant) of the event. Only if an installed app registered the webhook.",
    example: "tenant-42",
  },
  {
    name: "X-Service-Webhook-Test",
    required: false,
    description: "`true` for a test delivery: the body is the sample, and no event has occurred.",
    example: "true",
  },
  {
    name: "webhook-id",
    required: true,
    description: "Equal to X-Service-Webhook-Id; part of the signed content.",
    example: "01a1fcb1-a29f-764b-ae78-489c1b984865",
  },
  {
    name: "webhook-timestamp",
    required: true,
    description: "The time of the signature, in seconds since 1970; part of the signed content.",
    example: "1795240920",
  },
  {
    name: "webhook-signature",
    required: true,
    description:
      "Signatures according to Standard Webhooks, separated by spaces, each with its version and base64: `v1,` for HMAC-SHA256 with a signing secret, and, if the webhook has a key pair, `v1a,` for ed25519. Ignore versions that you do not verify.",
    example: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
  },
];

/**
 * The POST that receivers get for an event type, as in the `webhooks` of an OpenAPI document.
 *
 * @param within the time in which they respond, in words
 */
export function describeDelivery(
  { name, alias, payload, deprecated }: CatalogueEntry,
  payloads: AnswerSchemas,
  within: string,
): JsonSchema {
  const comment = commentOf(payload) ?? name;
  const about = [
    comment,
    ...(alias === undefined ? [] : [`Also called \`${alias}\`.`]),
    `Sent to every webhook of this event type. Respond with any 2xx ${within}.`,
  ];
  return {
    post: {
      operationId: `receive${name}`,
      summary: firstSentence(comment),
      description: about.join("\n\n"),
      ...(deprecated ? { deprecated } : {}),
      // Receivers are not authenticated by an API key.
      security: [],
      parameters: HEADERS.map(({ example, ...header }) => ({
        ...header,
        in: "header",
        schema: { type: "string" },
        example: example ?? name,
      })),
      requestBody: {
        required: true,
        content: {
          "application/json": {
            schema: payloads.of(payload),
            example: exampleData(payload, "payload"),
          },
        },
      },
      responses: {
        "2XX": { description: `Delivered, if it arrives ${within}. The body is ignored.` },
        default: { description: "Any other response is a failed attempt, followed by up to 3 retries." },
      },
    },
  };
}
