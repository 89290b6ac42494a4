import type { MessageInitShape } from "@bufbuild/protobuf";
import { useMutation } from "@connectrpc/connect-query";
import { notifications } from "@mantine/notifications";
import { useEffect, useRef } from "react";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService, type StartReplayRequestSchema } from "../../../../gen/webhook/v1/replay_pb.ts";
import { useReadAnew } from "../../api/use-read-anew.ts";

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
    notifications.show({
      color: "green",
      title: "The replay has started",
      message: "Deliveries are queued in small steps, and sent with the next dispatch.",
    });
    await Promise.all([readAnew(ReplayService), readAnew(DeliveryService)]);
  };
}

// Not crypto.randomUUID, which browsers offer to pages over HTTPS only.
const newKey = () => `settings page ${Date.now()} ${Math.random()}`;
