import type proto from "@temporalio/proto";

/** A history as `fetchHistory` returns it. */
export type History = proto.temporal.api.history.v1.IHistory;
type Event = proto.temporal.api.history.v1.IHistoryEvent;
type Failure = proto.temporal.api.failure.v1.IFailure;

/** Steps that a history must contain, each with how often it does so at least. */
type Shape = Record<string, number>;

/** The shapes that a run's history can have, each with the steps that make it one. Shapes are added and never removed. */
export const SHAPES: Record<string, Shape> = {
  "nothing-to-do": { "scheduled deliverPending": 1, completed: 1 },
  delivered: { "scheduled deliverPending": 2, completed: 1 },
  "retries-that-succeed": {
    "search attributes": 1,
    timer: 1,
    "attempt 2 of retryDeliveries": 1,
    completed: 1,
  },
  "retries-that-fail": { "attempt 3 of retryDeliveries": 1, "failed retryDeliveries": 1, completed: 1 },
  "many-groups": { "scheduled retryDeliveries": 30, completed: 1 },
  "without-search-attributes": { "failed retryDeliveries": 1, completed: 1 },
  "more-than-three-passes": { "failed retryDeliveries": 2, "scheduled retryDeliveries": 2, completed: 1 },
  "waiting-for-a-retry": { "wait for a retry": 1 },
  "lingering-superseded": {
    "pump ended superseded": 1,
    "scheduled retryDeliveries": 1,
    "scheduled listUndelivered": 3,
    completed: 1,
  },
  "lingering-until-its-time": { "pump ended time": 1, completed: 1 },
  "worker-that-joined": { "scheduled deliverPending": 2, "pump ended superseded": 2, completed: 1 },
  "worker-that-was-skipped": { "deliverPending lost by schedule_to_start": 2, completed: 1 },
  "pump-lost": { "deliverPending lost by heartbeat": 1, completed: 1 },
  "all-pumps-lost-lingering": {
    "deliverPending lost by heartbeat": 1,
    "scheduled deliverPending": 2,
    timer: 3,
    completed: 1,
  },
  "worker-that-was-replaced": {
    "pump ended stopped": 1,
    "scheduled deliverPending": 2,
    "pump ended superseded": 1,
    completed: 1,
  },
  "retry-pass-lost": { "pass of retryDeliveries lost by heartbeat": 1, completed: 1 },
  "three-retry-passes-lost": {
    "retryDeliveries lost by heartbeat": 1,
    "scheduled retryDeliveries": 2,
    completed: 1,
  },
  "continued-as-new-1": { "scheduled deliverPending": 1, "continued as new": 1 },
  "continued-as-new-2": { "scheduled retryDeliveries": 1, "continued as new": 1 },
  "continued-as-new-3": { "scheduled closeRun": 1, completed: 1 },
  "cancelled-amid-a-pump": { "cancel requested": 1, "scheduled closeRun": 1, cancelled: 1 },
  "cancelled-amid-a-wait": {
    "cancel requested": 1,
    "wait for a retry": 1,
    "scheduled closeRun": 1,
    cancelled: 1,
  },
  "asked-after-pumps": { "patch ask-after-pumps": 1, "scheduled retryDeliveries": 2, completed: 1 },
  "late-failure": {
    "failed deliverPending": 1,
    "patch ask-after-pumps": 1,
    "patch ask-searchable": 1,
    "patch describe-run": 1,
    "scheduled retryDeliveries": 2,
    completed: 1,
  },
  "woken-earlier": { "patch wake-earlier": 1, "attempt 2 of retryDeliveries": 1, completed: 1 },
  "used-activities": {
    "patch ask-after-activities": 1,
    "failed retryDeliveries": 5,
    "scheduled retryDeliveries": 7,
    completed: 1,
  },
  replay: { "scheduled replay": 1, completed: 1 },
  "replay-cancelled": { "cancel requested": 1, "scheduled pauseReplay": 1, cancelled: 1 },
  retention: { "scheduled deleteExpired": 1, completed: 1 },
};

/** Throws unless the history contains the steps of the shape. */
export function assertShape(name: string, history: History): void {
  const shape = SHAPES[name];
  if (!shape) throw new Error(`${name} is no shape of test/upgrade/shapes.ts`);
  const steps = stepsOf(history);
  for (const [step, least] of Object.entries(shape)) {
    const found = steps.filter((one) => one === step).length;
    if (found < least)
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
