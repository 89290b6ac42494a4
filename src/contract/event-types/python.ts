import type { DescEnum, DescMessage } from "@bufbuild/protobuf";
import type { CatalogueEntry } from "../catalogue.ts";
import { commentOf } from "../comments.ts";
import { propertyName } from "../json/names.ts";
import { memberNames } from "./schema.ts";
import { type NameOf, typesOf } from "./type-names.ts";
import { type Notation, propertyType } from "./type-words.ts";

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
  const { types, nameOf } = typesOf(entries, [...RESERVED, ...entries.map(({ name }) => `${name}Event`)]);
  const declared = types.map(({ desc, name }) =>
    desc.kind === "enum" ? enumType(desc, name) : model(desc, name, nameOf),
  );
  const events = entries.map(
    ({ name, payload }) =>
      `class ${name}Event(Delivery):\n    type: Literal["${name}"]\n    payload: ${nameOf(payload)}\n`,
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

function model(desc: DescMessage, name: string, nameOf: NameOf): string {
  const fields = desc.fields.map((field) => {
    const property = propertyName(field);
    const isUnusable = UNUSABLE.includes(property);
    const [attribute, alias] = isUnusable
      ? [`${property}_`, ` = Field(alias="${property}")`]
      : [property, ""];
    return `    ${attribute}: ${propertyType(field, NOTATION, nameOf)}${alias}\n${documentation(commentOf(field))}`;
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

const NOTATION: Notation = {
  ...{ string: "str", bytes: "str", boolean: "bool", number: "float" },
  ...{ integer: "int", integer64: "int", time: "datetime", object: "dict[str, Any]" },
  list: (item) => `list[${item}]`,
  map: (value) => `dict[str, ${value}]`,
  orNull: (value) => `${value} | None`,
};

/** A docstring, which no text of a proto file can end. */
function documentation(text: string | undefined): string {
  if (!text) return "";
  const safe = text.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
  return `    """${safe.replaceAll("\n", "\n    ")}"""\n`;
}
