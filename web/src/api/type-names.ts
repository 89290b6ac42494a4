import type { Transport } from "@connectrpc/connect";
import { callUnaryMethod, createQueryOptions } from "@connectrpc/connect-query";
import type { QueryClient } from "@tanstack/react-query";
import { WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import {
  type EventType,
  type ListProcessesResponse,
  WebhookService,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { enumMemberName } from "../../../src/contract/json/names.ts";

/** What names an event type. */
type Named = Pick<EventType, "number" | "name"> & { alias?: string | undefined };

/** The event types that the page knows without the service. */
export const BUILT_IN: readonly Named[] = WebhookProcessSchema.values
  .filter(({ number }) => number !== 0)
  .map(({ number }) => ({ number, name: enumMemberName(WebhookProcessSchema, number) ?? "" }));

/** The request for all event types with names and descriptions. */
export const ALL_BRIEFLY = { brief: true };

/** By number: the built-in event types, and those of the latest list. */
let known = new Map(BUILT_IN.map((type) => [type.number, type]));

/** Names the event types of a list everywhere on the page, from the next rendering on. */
export function remember({ processes }: ListProcessesResponse): readonly EventType[] {
  known = new Map([...BUILT_IN, ...processes].map((type) => [type.number, type]));
  return processes;
}

/** Reads the event types before pages are shown. If that fails, pages show the names in other answers, without aliases. */
export async function readEventTypes(transport: Transport, queries: QueryClient): Promise<void> {
  const { queryKey } = createQueryOptions(WebhookService.method.listProcesses, ALL_BRIEFLY, { transport });
  try {
    const answer = await callUnaryMethod(transport, WebhookService.method.listProcesses, ALL_BRIEFLY);
    remember(answer);
    queries.setQueryData(queryKey, answer);
  } catch {
    // The list is read again by what needs it.
  }
}

/** An event type with its alias, if it has one. */
export const labelOf = ({ name, alias }: Named) => (alias ? `${name} (${alias})` : name);

/**
 * An event type for people: its name, and its alias if it has one.
 *
 * @param sent its name in an answer of the service, which may know it before the page does
 */
export function processName(process: number, sent = ""): string {
  const type = known.get(process);
  return type ? labelOf(type) : sent || String(process);
}

/** The event type of a webhook or delivery for people. */
export function typeName(of: { webhookProcess: number; webhookProcessName: string }): string {
  return processName(of.webhookProcess, of.webhookProcessName);
}

/** The event type of a name or alias, such as one in the page's URL. */
export function typeNamed(text: string): Named | undefined {
  return [...known.values()].find(({ name, alias }) => text !== "" && (name === text || alias === text));
}
