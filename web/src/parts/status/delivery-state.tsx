import { Badge } from "@mantine/core";
import { IconBan, IconCheck, IconClock, IconRefresh, IconSend, IconX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";

const ICON_SIZE = 12;

/** What is told of each state; the comments of the proto in short. */
export const DELIVERY_STATES: readonly {
  state: DeliveryState;
  /** As addresses spell it. */
  name: string;
  label: string;
  meaning: string;
  colour: string;
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
    meaning: "Its first attempt is under way or about to be.",
    colour: "blue",
    icon: <IconSend size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.RETRYING,
    name: "retrying",
    label: "Retrying",
    meaning: "An attempt failed and there are retries left.",
    colour: "orange",
    icon: <IconRefresh size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.DELIVERED,
    name: "delivered",
    label: "Delivered",
    meaning: "Its receiver took it.",
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
    meaning: "Its webhook went away first.",
    colour: "gray",
    icon: <IconBan size={ICON_SIZE} />,
  },
];

/** The state of a delivery, in a word, a sign and a colour; a pointer held on it shows what it means. */
export function DeliveryStateBadge({ state }: { state: DeliveryState }) {
  const told = DELIVERY_STATES.find((each) => each.state === state);
  return (
    <Badge
      variant="light"
      tt="none"
      color={told?.colour ?? "gray"}
      leftSection={told?.icon}
      title={told?.meaning}
      style={{ flexShrink: 0, minWidth: "max-content" }}
    >
      {told?.label ?? "Unknown"}
    </Badge>
  );
}
