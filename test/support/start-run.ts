import type { TestService } from "./test-service.ts";

/**
 * Starts a dispatch run by itself, beside those of the schedule, so that its id is known.
 *
 * @param input over the input that the schedule gives
 */
export async function startRun(
  service: Pick<TestService, "temporal" | "scheduleId">,
  id: string,
  input: Record<string, unknown> = {},
) {
  const { action } = await service.temporal.schedule.getHandle(service.scheduleId).describe();
  const { workflowType, taskQueue, args } = action as {
    workflowType: string;
    taskQueue: string;
    args: object[];
  };
  return service.temporal.workflow.start(workflowType, {
    workflowId: `${service.scheduleId}-${id}`,
    taskQueue,
    args: [{ ...args[0], ...input }],
  });
}
