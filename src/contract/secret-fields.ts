import type { DescMessage, DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";

/** Whether a method's answer holds a secret: a field with the option `debug_redact`, however deep. */
export function returnsSecrets(method: DescMethod): boolean {
  return holdsSecrets(method.output, new Set());
}

/**
 * Whether a method can be called by HTTP GET. Not when its answer holds a secret: answers to GET are what browsers,
 * proxies and histories keep, and what a link or an image on another page can ask for.
 */
export function callableByGet(method: DescMethod): boolean {
  return method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS && !returnsSecrets(method);
}

function holdsSecrets(message: DescMessage, seen: Set<string>): boolean {
  if (seen.has(message.typeName)) return false;
  seen.add(message.typeName);
  return message.fields.some(
    ({ proto, message: inner }) =>
      proto.options?.debugRedact === true || (inner !== undefined && holdsSecrets(inner, seen)),
  );
}
