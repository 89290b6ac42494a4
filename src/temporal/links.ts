/** The URL of a workflow's execution, or of an event of it, in the Temporal UI. */
export type WorkflowUrl = (workflowId: string, runId: string, eventId?: string) => string;

/**
 * Links to executions of a workflow, and to events of their histories, in the Temporal UI.
 *
 * @param uiUrl the URL of the UI; without it there are no links
 */
export function workflowLinks(uiUrl: string | undefined, namespace: string): WorkflowUrl | undefined {
  if (uiUrl === undefined) return undefined;
  const base = `${uiUrl.replace(/\/+$/, "")}/namespaces/${encodeURIComponent(namespace)}/workflows`;
  return (workflowId, runId, eventId) => {
    const run = `${base}/${encodeURIComponent(workflowId)}/${encodeURIComponent(runId)}`;
    return eventId === undefined ? run : `${run}/history/events/${encodeURIComponent(eventId)}`;
  };
}
