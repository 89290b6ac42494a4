import { useMutation } from "@connectrpc/connect-query";
import { List, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useRef } from "react";
import { type Delivery, DeliveryService } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { countOf } from "../../../parts/text/count-of.ts";

const MAX_NAMED = 5;

/** Asks before ticked deliveries are sent again, names them, and sends them. */
export function SendSelectedDialog(props: {
  opened: boolean;
  onClose: () => void;
  deliveries: readonly Delivery[];
  /** Called when all are sent. */
  onDone: () => void;
}) {
  const { opened, onClose, deliveries, onDone } = props;
  const { mutateAsync: sendAgain } = useMutation(DeliveryService.method.sendAgain);
  // One that fails does not have those before it sent twice when it is tried again.
  const sent = useRef(new Set<string>());
  const named = deliveries.slice(0, MAX_NAMED);
  const count = countOf(deliveries.length, "delivery", "deliveries");

  async function run() {
    for (const { id } of deliveries) {
      if (sent.current.has(id)) continue;
      await sendAgain({ deliveryId: id });
      sent.current.add(id);
    }
    notifications.show({ color: "green", message: `${count} will be sent with the next dispatch` });
    sent.current.clear();
    onDone();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Send ${count} again?`}
      confirm={`Send ${count} again`}
      onConfirm={run}
    >
      <Text size="sm">
        Each starts a new round: up to four more attempts under the same id, with the next dispatch.
      </Text>
      <List size="sm" spacing="xs">
        {named.map(({ id, url }) => (
          <List.Item key={id} style={{ overflowWrap: "anywhere" }}>
            <Text span size="xs" ff="monospace">
              {id}
            </Text>{" "}
            to {url}
          </List.Item>
        ))}
        {deliveries.length > MAX_NAMED && (
          <List.Item>and {countOf(deliveries.length - MAX_NAMED, "other", "others")}</List.Item>
        )}
      </List>
    </ConfirmDialog>
  );
}
