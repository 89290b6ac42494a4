import { clone, create, type DescField, type MessageInitShape, setExtension } from "@bufbuild/protobuf";
import { FieldDescriptorProtoSchema, FieldOptionsSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { OrderDispatchedSchema } from "../../gen/webhook/v1/event_pb.ts";
import { searchable } from "../../gen/webhook/v1/options_pb.ts";
import { collectorOf, searchableValues } from "../../src/contract/searchable-values.ts";

/** The field as if it were marked `searchable`. */
function marked(field: DescField): DescField {
  const proto = clone(FieldDescriptorProtoSchema, field.proto);
  proto.options ??= create(FieldOptionsSchema);
  setExtension(proto.options, searchable, true);
  return { ...field, proto };
}

test.each(["lines", "dispatched_at"])("a field of messages cannot be searchable: %s", (name) => {
  const fields = OrderDispatchedSchema.fields.filter((field) => field.name === name).map(marked);
  expect(() => collectorOf({ ...OrderDispatchedSchema, fields })).toThrow(
    `webhook.v1.OrderDispatched.${name} cannot be searchable; allowed are texts, integers and lists of them`,
  );
});

test("an event is found by its searchable values that are set, each once", () => {
  const found = (order: MessageInitShape<typeof OrderDispatchedSchema>) =>
    searchableValues(OrderDispatchedSchema, create(OrderDispatchedSchema, order));
  expect(found({ orderId: 7n, orderNumber: "SO-1", trackingNumber: "T1" })).toEqual(["SO-1", "T1"]);
  expect(found({ orderNumber: "SO-1", trackingNumber: "SO-1" })).toEqual(["SO-1"]);
  expect(found({ orderNumber: "", trackingNumber: "" })).toEqual([]);
});
