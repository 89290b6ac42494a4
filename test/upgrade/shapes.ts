import type proto from "@temporalio/proto";

/** A history as `fetchHistory` returns it. */
export type History = proto.temporal.api.history.v1.IHistory;
type Event = proto.temporal.api.history.v1.IHistoryEvent;
type Failure = proto.temporal.api.failure.v1.IFailure;

/**
 * The shapes that a run's history can have, each with the steps that make it one, and how often it has them at least if that is
 * more than once. Shapes are added and never removed.
 */
export const SHAPES: Record<string, string[]> = {
  "nothing-to-do": ["scheduled deliverPending", "completed"],
  delivered: ["2 × scheduled deliverPending", "completed"],
  "retries-that-succeed": ["search attributes", "timer", "attempt 2 of retryDeliveries", "completed"],
  "retries-that-fail": ["attempt 3 of retryDeliveries", "failed retryDeliveries", "completed"],
  "many-groups": ["21 × scheduled retryDeliveries", "completed"],
  "without-search-attributes": ["failed retryDeliveries", "completed"],
  "more-than-three-passes": ["2 × failed retryDeliveries", "2 × scheduled retryDeliveries", "completed"],
  "waiting-for-a-retry": ["wait for a retry"],
  "lingering-superseded": [
    "pump ended superseded",
    "scheduled retryDeliveries",
    "3 × scheduled listUndelivered",
    "completed",
  ],
  "lingering-until-its-time": ["pump ended time", "completed"],
  "worker-that-joined": ["2 × scheduled deliverPending", "2 × pump ended superseded", "completed"],
  "worker-that-was-skipped": ["2 × deliverPending lost by schedule_to_start", "completed"],
  "pump-lost": ["deliverPending lost by heartbeat", "completed"],
  "all-pumps-lost-lingering": [
    "deliverPending lost by heartbeat",
    "2 × scheduled deliverPending",
    "3 × timer",
    "completed",
  ],
  "worker-that-was-replaced": [
    "pump ended stopped",
    "2 × scheduled deliverPending",
    "pump ended superseded",
    "completed",
  ],
  "retry-pass-lost": ["pass of retryDeliveries lost by heartbeat", "completed"],
  "three-retry-passes-lost": [
    "retryDeliveries lost by heartbeat",
    "2 × scheduled retryDeliveries",
    "completed",
  ],
  "continued-as-new-1": ["scheduled deliverPending", "continued as new"],
  "continued-as-new-2": ["scheduled retryDeliveries", "continued as new"],
  "continued-as-new-3": ["scheduled closeRun", "completed"],
  "cancelled-amid-a-pump": ["cancel requested", "scheduled closeRun", "cancelled"],
  "cancelled-amid-a-wait": ["cancel requested", "wait for a retry", "scheduled closeRun", "cancelled"],
  "asked-after-pumps": ["patch ask-after-pumps", "2 × scheduled retryDeliveries", "completed"],
  "late-failure": [
    "failed deliverPending",
    "patch ask-after-pumps",
    "patch ask-searchable",
    "patch describe-run",
    "2 × scheduled retryDeliveries",
    "completed",
  ],
  "woken-earlier": ["patch wake-earlier", "attempt 2 of retryDeliveries", "completed"],
  "used-activities": [
    "patch ask-after-activities",
    "5 × failed retryDeliveries",
    "7 × scheduled retryDeliveries",
    "completed",
  ],
  replay: ["scheduled replay", "completed"],
  "replay-cancelled": ["cancel requested", "scheduled pauseReplay", "cancelled"],
  retention: ["scheduled deleteExpired", "completed"],
};

/** Throws unless the history contains the steps of the shape. */
export function assertShape(name: string, history: History): void {
  const shape = SHAPES[name];
  if (!shape) throw new Error(`${name} is no shape of test/upgrade/shapes.ts`);
  const steps = stepsOf(history);
  for (const needed of shape) {
    const [, least = "1", step] = /^(?:(\d+) × )?(.*)$/.exec(needed) ?? [];
    const found = steps.filter((one) => one === step).length;
    if (found < Number(least))
      throw new Error(`${name}: "${step}" occurs ${found} times instead of ${least}:\n${steps.join("\n")}`);
  }
}

/** The type of the workflow that a history is of. */
export function workflowTypeOf({ events }: History): string {
  return events?.[0]?.workflowExecutionStartedEventAttributes?.workflowType?.name ?? "";
}

/** What happened in a run, in order. */
export function stepsOf(history: History): string[] {
  const events = history.events ?? [];
  const names = new Map(
    events.map(({ eventId, activityTaskScheduledEventAttributes: scheduled }) => [
      String(eventId),
      scheduled?.activityType?.name ?? "",
    ]),
  );
  return events.flatMap((event) => stepOf(event, (id) => names.get(String(id)) as string));
}

function stepOf(event: Event, activity: (scheduledId: unknown) => string): string[] {
  const {
    activityTaskScheduledEventAttributes: scheduled,
    activityTaskStartedEventAttributes: started,
    activityTaskCompletedEventAttributes: done,
    activityTaskFailedEventAttributes: failed,
    activityTaskTimedOutEventAttributes: lost,
  } = event;
  if (scheduled) return [`scheduled ${scheduled.activityType?.name}`];
  if (started) {
    const name = activity(started.scheduledEventId);
    const lostBy = timeoutOf(started.lastFailure);
    return [
      ...((started.attempt ?? 0) > 1 ? [`attempt ${started.attempt} of ${name}`] : []),
      ...(lostBy ? [`pass of ${name} lost by ${lostBy}`] : []),
    ];
  }
  if (done) {
    const result = Buffer.from(done.result?.payloads?.[0]?.data ?? "").toString();
    const isPump = activity(done.scheduledEventId) === "deliverPending";
    return isPump ? [`pump ended ${(JSON.parse(result) as { end: string }).end}`] : [];
  }
  if (failed) return [`failed ${activity(failed.scheduledEventId)}`];
  if (lost) return [`${activity(lost.scheduledEventId)} lost by ${timeoutOf(lost.failure)}`];
  if (event.timerStartedEventAttributes) return [event.userMetadata?.summary ? "wait for a retry" : "timer"];
  const { markerRecordedEventAttributes: marker } = event;
  if (marker) return [marker.markerName === "core_patch" ? `patch ${patchOf(marker)}` : "local activity"];
  if (event.upsertWorkflowSearchAttributesEventAttributes) return ["search attributes"];
  if (event.workflowPropertiesModifiedEventAttributes) return ["memo"];
  const { activityTaskCancelRequestedEventAttributes: unwanted } = event;
  if (unwanted) return [`cancel requested of ${activity(unwanted.scheduledEventId)}`];
  if (event.workflowTaskFailedEventAttributes) return ["workflow task failed"];
  if (event.workflowExecutionCancelRequestedEventAttributes) return ["cancel requested"];
  if (event.workflowExecutionCompletedEventAttributes) return ["completed"];
  if (event.workflowExecutionCanceledEventAttributes) return ["cancelled"];
  if (event.workflowExecutionContinuedAsNewEventAttributes) return ["continued as new"];
  return [];
}

/** The id of a patch, from its marker. */
function patchOf({ details }: proto.temporal.api.history.v1.IMarkerRecordedEventAttributes): string {
  const data = details?.["patch-data"]?.payloads?.[0]?.data ?? "{}";
  return (JSON.parse(Buffer.from(data).toString()) as { id: string }).id;
}

/** Why an activity was lost, as Temporal names it, in small letters; undefined when it failed otherwise. */
function timeoutOf(failure: Failure | null | undefined): string | undefined {
  const type = failure?.timeoutFailureInfo?.timeoutType;
  return type === undefined || type === null ? undefined : TIMEOUTS[type];
}

/** By the numbers of Temporal's TimeoutType. */
const TIMEOUTS = ["unspecified", "start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"];
