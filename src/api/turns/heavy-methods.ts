import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";

/** Methods of a service of which their types do not tell how much they read. */
export interface Load<Name extends string = string> {
  /** Methods that read much, and return no list. */
  heavy?: readonly Name[];
  /** Methods that return a list, and read little. */
  light?: readonly Name[];
}

/**
 * Whether the calls of a method read much, so that their statements take turns. A method that only reads and returns a list or
 * a stream does, unless its service says otherwise.
 */
export function readsMuch(
  services: readonly (Load & { service: DescService })[],
): (method: DescMethod) => boolean {
  const loads = new Map(services.map((each) => [each.service, each]));
  return (method) => {
    const { heavy, light } = loads.get(method.parent) ?? {};
    if (light?.includes(method.localName)) return false;
    if (heavy?.includes(method.localName) || method.methodKind === "server_streaming") return true;
    const isRead = method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
    return isRead && method.output.fields.some((field) => field.fieldKind === "list");
  };
}
