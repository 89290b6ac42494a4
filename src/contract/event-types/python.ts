import { type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import type { CatalogueEntry } from "../catalogue.ts";
import { commentOf } from "../comments.ts";
import { TIMESTAMP } from "../json/field-types.ts";
import { propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";
import { isNullable, memberNames } from "./schema.ts";
import { typesOf } from "./type-names.ts";

/** Names that the generated file uses for itself. */
const RESERVED = [
  "WebhookEvent",
  "WebhookVerificationError",
  "Webhook",
  "BaseModel",
  "Payload",
  "Delivery",
  "Annotated",
  "Any",
  "Literal",
  "Union",
  "Field",
  "ConfigDict",
  "TypeAdapter",
  "None",
  "True",
  "False",
  "Exception",
];
/** Names of properties that a class of pydantic cannot have as they are. */
const UNUSABLE = ["None", "True", "False", "Config"];

/**
 * The Python of receivers: a pydantic model for each event type, their union, and a function that verifies and parses a delivery.
 *
 * @returns one module, which needs the packages `pydantic` and `standardwebhooks`
 */
export function pythonOf(entries: readonly CatalogueEntry[]): string {
  const types = typesOf(entries, [...RESERVED, ...entries.map(({ name }) => `${name}Event`)]);
  const names = new Map(types.map(({ desc, name }) => [desc, name]));
  const declared = types.map(({ desc, name }) =>
    desc.kind === "enum" ? enumType(desc, name) : model(desc, name, names),
  );
  const events = entries.map(
    ({ name }) => `class ${name}Event(Delivery):\n    type: Literal["${name}"]\n    payload: ${name}\n`,
  );
  const union = entries.map(({ name }) => `${name}Event`).join(", ");
  return `${HEAD}\n\n${[...declared, DELIVERY, ...events].join("\n\n")}\n
WebhookEvent = Annotated[Union[${union}], Field(discriminator="type")]
_EVENT = TypeAdapter(WebhookEvent)
${TAIL}`;
}

const HEAD = `"""The event types of this service, which has generated this file. Get it again when event types are added or changed.

Needs: pip install pydantic standardwebhooks
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from standardwebhooks import Webhook, WebhookVerificationError


class Payload(BaseModel):
    """A part of a payload. Properties that later versions add are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())
`;

const DELIVERY = `class Delivery(BaseModel):
    """What all events have. Narrow an event by \`type\`."""

    id: str
    """X-Service-Webhook-Id, the same for each attempt. Deliveries arrive at least once: store the id in the transaction that
    handles the event, and skip a delivery whose id is stored."""
    user_id: str | None = None
    """The X-Service-UserId, of webhooks of installed apps."""
    is_test: bool = False
    """Whether it is a test event, whose payload can be any object."""
`;

const TAIL = `

def receive(secret: str, headers: Any, body: bytes) -> WebhookEvent:
    """Verifies and parses a delivery.

    secret: the webhook's signing secret, whsec_…
    headers: a mapping, with names in any case
    body: the raw body: parsed and serialized again, it can have other bytes

    Raises standardwebhooks.WebhookVerificationError if the signature is invalid or older than five minutes (answer 400), and
    pydantic.ValidationError if the payload is not of its event type, or if this file lacks the event type.
    """
    by_name = {str(name).lower(): str(value) for name, value in dict(headers).items()}
    Webhook(secret).verify(body, by_name)
    return _EVENT.validate_python(
        {
            "type": by_name.get("x-service-webhook-process"),
            "id": by_name.get("x-service-webhook-id"),
            "user_id": by_name.get("x-service-userid"),
            "is_test": by_name.get("x-service-webhook-test") == "true",
            "payload": json.loads(body),
        }
    )
`;

function model(desc: DescMessage, name: string, names: ReadonlyMap<unknown, string>): string {
  const fields = desc.fields.map((field) => {
    const property = propertyName(field);
    const isUnusable = UNUSABLE.includes(property);
    const [attribute, alias] = isUnusable
      ? [`${property}_`, ` = Field(alias="${property}")`]
      : [property, ""];
    return `    ${attribute}: ${fieldType(field, names)}${alias}\n${documentation(commentOf(field))}`;
  });
  const about = documentation(commentOf(desc));
  const body = [about && `${about}\n`, ...fields].join("");
  return `class ${name}(Payload):\n${body || "    pass\n"}`;
}

/** A type that later members of the enum fit, too. */
function enumType(desc: DescEnum, name: string): string {
  const members = memberNames(desc)
    .map((member) => `"${member}"`)
    .join(", ");
  return `${name} = Union[Literal[${members}], str]\n`;
}

function fieldType(field: DescField, names: ReadonlyMap<unknown, string>): string {
  const value = valueType(field, names);
  if (field.fieldKind === "list") return `list[${value}]`;
  if (field.fieldKind === "map") return `dict[str, ${value}]`;
  return isNullable(field) ? `${value} | None` : value;
}

function valueType(field: DescField, names: ReadonlyMap<unknown, string>): string {
  if (field.message)
    return field.message.typeName === TIMESTAMP ? "datetime" : (names.get(field.message) as string);
  if (field.enum) return names.get(field.enum) as string;
  if (isRawJson(field)) return "dict[str, Any]";
  switch (field.scalar) {
    case ScalarType.BOOL:
      return "bool";
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return "str";
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return "float";
    default:
      return "int";
  }
}

/** A docstring, which no text of a proto file can end. */
function documentation(text: string | undefined): string {
  if (!text) return "";
  const safe = text.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
  return `    """${safe.replaceAll("\n", "\n    ")}"""\n`;
}
