import { useState } from "react";
import { type Delivery, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";

const FINAL: ReadonlySet<DeliveryState> = new Set([
  DeliveryState.DELIVERED,
  DeliveryState.FAILED,
  DeliveryState.CANCELLED,
  DeliveryState.FILTERED,
]);

/** Whether nothing more happens to a delivery by itself, so that it can be sent again. */
export function isFinal({ state }: Pick<Delivery, "state">): boolean {
  return FINAL.has(state);
}

/** Deliveries that somebody ticked. */
export interface Selection {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
  set: (ids: Iterable<string>) => void;
}

/** The selected deliveries among the shown ones. Deliveries that are open or no longer shown are not selected. */
export function useSelection(shown: readonly Delivery[]): Selection {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const ids = new Set(shown.filter((each) => isFinal(each) && chosen.has(each.id)).map(({ id }) => id));
  return {
    ids,
    set: (wanted) => setChosen(new Set(wanted)),
    toggle(id) {
      const next = new Set(ids);
      if (!next.delete(id)) next.add(id);
      setChosen(next);
    },
  };
}
