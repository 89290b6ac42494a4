import { useQuery } from "@connectrpc/connect-query";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { type ListProcessesResponse, WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import type { Choice } from "../parts/filters.tsx";
import { useMay } from "./session.tsx";
import { ALL_BRIEFLY, BUILT_IN, labelOf, remember } from "./type-names.ts";

const { listProcesses } = WebhookService.method;

/** The event types with names and descriptions. Without the permission to read, none are read. */
export function useEventTypes() {
  const enabled = useMay("Read_Administrative_Data");
  return useQuery(listProcesses, ALL_BRIEFLY, { select: remember, enabled });
}

/** An event type with its sample and filter fields. */
export function useEventType(number: number) {
  const select = ({ processes }: ListProcessesResponse) => processes.find((type) => type.number === number);
  return useQuery(listProcesses, { processes: [number as WebhookProcess] }, { select });
}

/** The event types to choose from, by number or by name. */
export function useTypeChoices(by: "number" | "name"): Choice[] {
  const { data } = useEventTypes();
  return (data?.length ? data : BUILT_IN).map((type) => ({ value: String(type[by]), label: labelOf(type) }));
}
