import { createConnectQueryKey, useMutation } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlayerPlay } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { failureInWords } from "../../api/failure.ts";
import { useMay } from "../../api/session.tsx";

/** Starts a dispatch of what is pending, for who may. */
export function DispatchNow() {
  const may = useMay("Write_Administrative_Data");
  const queries = useQueryClient();
  const dispatch = useMutation(StatsService.method.dispatchNow, {
    onSuccess: () => {
      notifications.show({
        color: "green",
        title: "A dispatch has started",
        message: "What is pending is sent now.",
      });
      const schema = StatsService.method.listDispatchRuns;
      return queries.invalidateQueries({
        queryKey: createConnectQueryKey({ schema, cardinality: "finite" }),
      });
    },
    onError: (error) => {
      const { title, text } = failureInWords(error);
      notifications.show({ color: "red", title: `No dispatch was started. ${title}`, message: text });
    },
  });
  if (!may) return null;
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
