/**
 * Links to executions of a workflow in the Temporal UI.
 *
 * @param uiUrl the URL of the UI; without it there are no links
 */
export function workflowLinks(
  uiUrl: string | undefined,
  namespace: string,
): ((workflowId: string, runId: string) => string) | undefined {
  if (uiUrl === undefined) return undefined;
  const base = `${uiUrl.replace(/\/+$/, "")}/namespaces/${encodeURIComponent(namespace)}/workflows`;
  return (workflowId, runId) => `${base}/${encodeURIComponent(workflowId)}/${encodeURIComponent(runId)}`;
}
