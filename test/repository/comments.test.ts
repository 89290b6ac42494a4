import { create } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { DeliverySchema, DeliveryStateSchema } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService, PublishEventRequestSchema } from "../../gen/webhook/v1/event_pb.ts";
import { commentsOf } from "../../scripts/protoc-gen-comments.ts";
import { commentOf } from "../../src/contract/comments.ts";

test("comments of the proto files are found by what they stand at", () => {
  expect(commentOf(DeliverySchema)).toBe("The delivery of one event to one webhook.");
  expect(commentOf(DeliverySchema.field.nextAttempt)).toBe(
    "The time of the next attempt, in the state retrying.",
  );
  expect(commentOf(DeliveryStateSchema.value[4])).toBeUndefined();
  expect(commentOf(DeliveryStateSchema.value[6])).toBe(
    "The webhook was deleted or the payload was erased first.",
  );
  expect(commentOf(ApiKeyService)).toBe(
    "Manages API keys and installed apps. Every request must carry a key.",
  );
  expect(commentOf(ApiKeyService.method.listApiKeys)).toBe(
    "Lists keys, including revoked ones, oldest first, in pages.",
  );
  const [data] = PublishEventRequestSchema.oneofs;
  expect(data && commentOf(data)).toMatch(/^What happened\. /);
});

test("a comment's paragraphs are one line each", () => {
  const paragraphs = commentOf(EventService.method.publishEvents)?.split("\n\n") ?? [];
  expect(paragraphs).toHaveLength(2);
  expect(paragraphs[0]).toMatch(/^Publishes up to .* does not affect the others\.$/);
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
