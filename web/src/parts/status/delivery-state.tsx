import { IconBan, IconCheck, IconClock, IconFilter, IconRefresh, IconSend, IconX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { StatusMark, type StatusMarkProps } from "./status-mark.tsx";

/** The size of icons, in pixels. */
const ICON_SIZE = 12;

/** The label and meaning of each state; short forms of the proto's comments. */
export const DELIVERY_STATES: readonly {
  state: DeliveryState;
  /** The name in URLs. */
  name: string;
  label: string;
  meaning: string;
  colour: StatusMarkProps["colour"];
  icon: ReactNode;
}[] = [
  {
    state: DeliveryState.PENDING,
    name: "pending",
    label: "Pending",
    meaning: "Waits for the next dispatch.",
    colour: "gray",
    icon: <IconClock size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.DELIVERING,
    name: "delivering",
    label: "Delivering",
    meaning: "The first attempt is in flight or about to be sent.",
    colour: "blue",
    icon: <IconSend size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.RETRYING,
    name: "retrying",
    label: "Retrying",
    meaning: "An attempt failed; retries remain.",
    colour: "orange",
    icon: <IconRefresh size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.DELIVERED,
    name: "delivered",
    label: "Delivered",
    meaning: "The endpoint accepted it.",
    colour: "green",
    icon: <IconCheck size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.FAILED,
    name: "failed",
    label: "Failed",
    meaning: "The first attempt and three retries failed.",
    colour: "red",
    icon: <IconX size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.CANCELLED,
    name: "cancelled",
    label: "Cancelled",
    meaning: "The webhook was deleted or the payload was erased first.",
    colour: "gray",
    icon: <IconBan size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.FILTERED,
    name: "filtered",
    label: "Filtered",
    meaning: "The webhook's filter does not match the event.",
    colour: "gray",
    icon: <IconFilter size={ICON_SIZE} />,
  },
];

/** The state of a delivery, in a word, a sign and a colour; a pointer held on it shows what it means. */
export function DeliveryStateBadge({ state }: { state: DeliveryState }) {
  const told = DELIVERY_STATES.find((each) => each.state === state);
  return (
    <StatusMark
      label={told?.label ?? "Unknown"}
      colour={told?.colour ?? "gray"}
      icon={told?.icon}
      meaning={told?.meaning}
    />
  );
}
