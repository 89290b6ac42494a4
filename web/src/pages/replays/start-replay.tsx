import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useMutation } from "@connectrpc/connect-query";
import { Text } from "@mantine/core";
import { IconHistory } from "@tabler/icons-react";
import dayjs from "dayjs";
import { useEffect, useRef } from "react";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService, type StartReplayRequestSchema } from "../../../../gen/webhook/v1/replay_pb.ts";
import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { isNotice } from "../../../../src/contract/catalogue.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { ConfirmDialog, DialogButton, type DialogProps, useDialogState } from "../../parts/dialogs.tsx";
import { type Since, SinceField, sinceMoment } from "../../parts/pick-time.tsx";
import { notifyDone } from "../../parts/save.ts";

/** The deliveries or events to replay. */
type What = NonNullable<MessageInitShape<typeof StartReplayRequestSchema>["what"]>;

/**
 * Starts a replay, and shows that it has started. A call that is repeated in the open dialog because
 * its answer was lost starts no other one.
 *
 * @param opened whether the dialog that asks for the replay is open
 * @throws ConnectError if the replay cannot be started
 */
export function useStartReplay(opened: boolean): (what: What) => Promise<void> {
  const { mutateAsync: start } = useMutation(ReplayService.method.startReplay);
  const readAnew = useReadAnew();
  /** The last request, and its key. */
  const last = useRef({ asked: "", key: "" });
  useEffect(() => {
    // The same replay, asked for in a dialog that was opened again, is another one.
    if (!opened) last.current = { asked: "", key: "" };
  }, [opened]);
  return async (what) => {
    const asked = JSON.stringify(what, (_, value) => (typeof value === "bigint" ? String(value) : value));
    if (asked !== last.current.asked) last.current = { asked, key: newKey() };
    await start({ idempotencyKey: last.current.key, what });
    last.current = { asked: "", key: "" };
    notifyDone(
      "Deliveries are queued in small steps, and sent with the next dispatch.",
      "The replay has started",
    );
    await Promise.all([readAnew(ReplayService), readAnew(DeliveryService)]);
  };
}

// Not crypto.randomUUID, which browsers offer to pages over HTTPS only.
const newKey = () => `settings page ${Date.now()} ${Math.random()}`;

/** Delivers events to a webhook that were published before it was registered, once a time was chosen. */
export function SendMissed({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  if (!mayWrite || isNotice(webhook.webhookProcess)) return null;
  return (
    <DialogButton
      leftSection={<IconHistory size={14} />}
      dialog={(dialog) => <SendMissedDialog {...dialog} webhook={webhook} />}
    >
      Send missed events…
    </DialogButton>
  );
}

function SendMissedDialog({ webhook, ...dialog }: DialogProps & { webhook: Webhook }) {
  const [since, setSince] = useDialogState(dialog.opened, dayBefore(webhook));
  const start = useStartReplay(dialog.opened);
  const value = { webhookId: webhook.id, ...(since.from ? { from: since.from } : {}) };
  return (
    <ConfirmDialog
      {...dialog}
      title="Send missed events?"
      confirm="Send missed events"
      onConfirm={() => start({ case: "backfill", value })}
    >
      <Text size="sm">
        Each {typeName(webhook)} event since then that this webhook has no delivery of is delivered to it,
        oldest first. Test events, and events whose payload was erased, are left out.
      </Text>
      <SinceField label="Published" value={since} onChange={setSince} />
    </ConfirmDialog>
  );
}

function dayBefore({ created }: Webhook): Since {
  const day = dayjs(created ? timestampDate(created) : undefined).subtract(1, "day");
  return sinceMoment(day.startOf("minute").toDate());
}
