import { create } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { DeliverySchema, DeliveryStateSchema } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService, PublishEventRequestSchema } from "../../gen/webhook/v1/event_pb.ts";
import { commentsOf } from "../../scripts/protoc-gen-comments.ts";
import { commentOf } from "../../src/contract/comments.ts";

test.each([
  ["a message", DeliverySchema, /^The delivery of one event to one webhook\.$/],
  ["a field", DeliverySchema.field.nextAttempt, /^The time of the next attempt, in the state retrying\.$/],
  ["a value", DeliveryStateSchema.value[6], /^The webhook was deleted or the payload was erased first\.$/],
  ["a service", ApiKeyService, /^Manages API keys and installed apps\. Every request must carry a key\.$/],
  [
    "a method",
    ApiKeyService.method.listApiKeys,
    /^Lists keys, including revoked ones, oldest first, in pages\.$/,
  ],
  ["a oneof", PublishEventRequestSchema.oneofs[0], /^What happened\. /],
  [
    "a method, of two paragraphs",
    EventService.method.publishEvents,
    /^Publishes up to .* the others\.\n\n.+$/,
  ],
])("the comment of the proto files at %s is found", (_what, at, comment) => {
  expect(at && commentOf(at)).toMatch(comment);
});

test("what has no comment has none", () => {
  expect(commentOf(DeliveryStateSchema.value[4] as (typeof DeliveryStateSchema)["value"][4])).toBeUndefined();
});

test("comments of nested declarations are found, after a line as well as above it, with their lists", () => {
  const file = create(FileDescriptorProtoSchema, {
    package: "p",
    messageType: [
      {
        name: "Outer",
        nestedType: [{ name: "Inner", field: [{ name: "a" }] }],
        enumType: [{ name: "Kind", value: [{ name: "NONE" }, { name: "SOME" }] }],
      },
    ],
    sourceCodeInfo: {
      location: [
        { path: [4, 0, 3, 0, 2, 0], trailingComments: " After the field.\n" },
        { path: [4, 0, 4, 0, 2, 1], leadingComments: " One of:\n - a, which\n is long\n - b\n" },
        { path: [4, 0, 3, 0], leadingComments: " \n" },
      ],
    },
  });
  expect([...commentsOf(file)]).toEqual([
    ["p.Outer.Kind.SOME", "One of:\n- a, which is long\n- b"],
    ["p.Outer.Inner.a", "After the field."],
  ]);
});
