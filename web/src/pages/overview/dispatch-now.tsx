import { useMutation } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlayerPlay } from "@tabler/icons-react";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { useMay, useOwnApp } from "../../api/session.tsx";
import { useReadAnew } from "../../api/use-read-anew.ts";
import { notifyFailure } from "../../parts/status/notify-failure.ts";

/** Starts a dispatch of what is pending, for who may. */
export function DispatchNow() {
  const may = useMay("Write_Administrative_Data");
  const isOfApp = useOwnApp() !== undefined;
  const readAnew = useReadAnew();
  const dispatch = useMutation(StatsService.method.dispatchNow, {
    onSuccess: () => {
      notifications.show({
        color: "green",
        title: "A dispatch has started",
        message: "Pending deliveries are sent now.",
      });
      return readAnew(StatsService.method.listDispatchRuns);
    },
    onError: (error) => notifyFailure("No dispatch was started", error),
  });
  if (!may || isOfApp) return null;
  return (
    <Button
      leftSection={<IconPlayerPlay size={16} />}
      loading={dispatch.isPending}
      onClick={() => dispatch.mutate({})}
    >
      Dispatch now
    </Button>
  );
}
