import { Badge } from "@mantine/core";
import { IconCheck, IconPlayerPause } from "@tabler/icons-react";

const ICON_SIZE = 12;

/** Whether a webhook's deliveries are sent, in a word, a sign and a colour. */
export function WebhookStateBadge({ paused }: { paused: boolean }) {
  return (
    <Badge
      variant="light"
      tt="none"
      color={paused ? "orange" : "green"}
      leftSection={paused ? <IconPlayerPause size={ICON_SIZE} /> : <IconCheck size={ICON_SIZE} />}
      title={paused ? "Its deliveries are held back." : "Its deliveries are sent."}
      style={{ flexShrink: 0, minWidth: "max-content" }}
    >
      {paused ? "Paused" : "Active"}
    </Badge>
  );
}
