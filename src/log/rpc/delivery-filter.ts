import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { DeliveryState, DeliveryStateSchema } from "../../../gen/webhook/v1/delivery_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { assertText, isProcess, optionalUuid, readPageToken, unknownProcess } from "../../calls/index.ts";
import { nameOf, numbersOf } from "../../contract/enum-numbers.ts";
import { type DeliveryStateName, FINAL_STATES } from "../deliveries.ts";
import type { DeliveryFilter } from "../list.ts";
import { meaningsOf, type SearchText } from "../search-text.ts";

/** Proto numbers of states by their name in the database. */
export const STATE_NUMBERS: Record<DeliveryStateName, DeliveryState> = numbersOf(DeliveryStateSchema);

/** The filter fields that several requests share. */
interface FilterFields {
  webhookId?: bigint | undefined;
  process?: number | undefined;
  eventId?: string | undefined;
  states: readonly DeliveryState[];
  from?: Timestamp | undefined;
  to?: Timestamp | undefined;
  pageToken: string;
}

/** @throws DomainError INVALID_ARGUMENT that names the invalid field */
export function deliveryFilter(request: FilterFields): DeliveryFilter {
  if (request.process !== undefined && !isProcess(request.process)) {
    throw invalidField("process", unknownProcess(request.process));
  }
  return {
    webhookId: request.webhookId,
    process: request.process,
    eventId: optionalUuid("event_id", request.eventId),
    states: request.states.map(stateName),
    from: request.from && timestampDate(request.from),
    to: request.to && timestampDate(request.to),
    ...readPageToken(request.pageToken),
  };
}

/**
 * The filter of deliveries to send again: those in final states. Without states, failed ones.
 *
 * @param field the path of the field with the states
 * @throws DomainError INVALID_ARGUMENT that names the invalid field
 */
export function finalDeliveryFilter(request: FilterFields, field: string): DeliveryFilter {
  const states = request.states.length > 0 ? request.states : [DeliveryState.FAILED];
  const filter = deliveryFilter({ ...request, states });
  if (filter.states?.every((state) => FINAL_STATES.includes(state))) return filter;
  throw invalidField(
    field,
    `must be one or more of: ${FINAL_STATES.map(stateText).join(", ")}; deliveries in another state are under way`,
  );
}

/** The maximum length of a search text, in characters. */
const MAX_SEARCH_CHARACTERS = 300;
/**
 * The possible meanings of a search text. Undefined if it is empty.
 *
 * @throws DomainError INVALID_ARGUMENT if it is too long or PostgreSQL cannot store it
 */
export function searchText(search: string): SearchText | undefined {
  const text = search.trim();
  if (text === "") return undefined;
  assertText("search", text, MAX_SEARCH_CHARACTERS);
  return meaningsOf(text);
}

function stateName(state: number): DeliveryStateName {
  const name = nameOf(STATE_NUMBERS, state);
  if (!name) {
    const choices = (Object.keys(STATE_NUMBERS) as DeliveryStateName[]).map(stateText).join(", ");
    const description = `holds ${state}, which is not a state; send one or more of: ${choices}`;
    throw invalidField("states", description);
  }
  return name;
}

/** A state as callers send it in JSON. */
export function stateText(name: DeliveryStateName): string {
  return `DELIVERY_STATE_${name.toUpperCase()}`;
}
