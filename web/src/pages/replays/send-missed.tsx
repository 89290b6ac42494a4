import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconHistory } from "@tabler/icons-react";
import dayjs from "dayjs";
import { useState } from "react";
import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { isNotice, processName } from "../../../../src/contract/catalogue.ts";
import { useMay } from "../../api/session.tsx";
import { ConfirmDialog } from "../../parts/dialogs/confirm-dialog.tsx";
import { type Since, SinceField, sinceMoment } from "../../parts/time/since-field.tsx";
import { useStartReplay } from "./use-start-replay.ts";

/** Delivers events to a webhook that were published before it was registered, once a time was chosen. */
export function SendMissed({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const [opened, { open, close }] = useDisclosure();
  const [since, setSince] = useState(() => dayBefore(webhook));
  const start = useStartReplay(opened);
  if (!mayWrite || isNotice(webhook.webhookProcess)) return null;

  function ask() {
    setSince(dayBefore(webhook));
    open();
  }

  return (
    <>
      <Button variant="default" size="xs" leftSection={<IconHistory size={14} />} onClick={ask}>
        Send missed events…
      </Button>
      <ConfirmDialog
        opened={opened}
        onClose={close}
        title="Send missed events?"
        confirm="Send missed events"
        onConfirm={() =>
          start({
            case: "backfill",
            value: { webhookId: webhook.id, ...(since.from ? { from: since.from } : {}) },
          })
        }
      >
        <Text size="sm">
          Each {processName(webhook.webhookProcess)} event since then that this webhook has no delivery of is
          delivered to it, oldest first. Test events, and events whose payload was erased, are left out.
        </Text>
        <SinceField label="Published" value={since} onChange={setSince} />
      </ConfirmDialog>
    </>
  );
}

function dayBefore({ created }: Webhook): Since {
  const day = dayjs(created ? timestampDate(created) : undefined).subtract(1, "day");
  return sinceMoment(day.startOf("minute").toDate());
}
