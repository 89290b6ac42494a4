/**
 * Where the Temporal UI shows a workflow's execution.
 *
 * @param uiUrl address of the UI; without one there are no links
 */
export function workflowLinks(
  uiUrl: string | undefined,
  namespace: string,
): ((workflowId: string, runId: string) => string) | undefined {
  if (uiUrl === undefined) return undefined;
  const base = `${uiUrl.replace(/\/+$/, "")}/namespaces/${encodeURIComponent(namespace)}/workflows`;
  return (workflowId, runId) => `${base}/${encodeURIComponent(workflowId)}/${encodeURIComponent(runId)}`;
}
