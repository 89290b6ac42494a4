/** Rules for pods that clusters enforce, as far as a manifest can break them. */

// biome-ignore lint/suspicious/noExplicitAny: kubeconform checks the manifests
type Context = any;

/** A pod's spec, as a manifest has it. */
export interface PodSpec {
  securityContext?: Context;
  containers: { name: string; securityContext?: Context; ports?: { hostPort?: number }[] }[];
  initContainers?: PodSpec["containers"];
  volumes?: { name: string }[];
  [name: string]: unknown;
}

const VOLUMES = [
  "configMap",
  "csi",
  "downwardAPI",
  "emptyDir",
  "ephemeral",
  "persistentVolumeClaim",
  "projected",
  "secret",
];
/** The users that OpenShift gave an example namespace. */
const RANGE = [1_000_650_000, 1_000_659_999] as const;

const isInRange = (id: unknown) => id === undefined || (Number(id) >= RANGE[0] && Number(id) <= RANGE[1]);

/** What both policies forbid. */
function* common(pod: PodSpec): Iterable<string> {
  for (const name of ["hostNetwork", "hostPID", "hostIPC"]) if (pod[name]) yield `${name} is true`;
  for (const { name, ...source } of pod.volumes ?? [])
    for (const kind of Object.keys(source)) if (!VOLUMES.includes(kind)) yield `volume ${name} is a ${kind}`;
  if (pod.securityContext?.sysctls?.length) yield "the pod sets sysctls";
  for (const { name, securityContext: own = {}, ports = [] } of containersOf(pod)) {
    if (own.privileged) yield `${name} is privileged`;
    if (ports.some(({ hostPort }) => hostPort)) yield `${name} has a port of the host`;
    if ((own.procMount ?? "Default") !== "Default") yield `${name} sees all of /proc`;
    const added = (own.capabilities?.add ?? []).filter((each: string) => each !== "NET_BIND_SERVICE");
    if (added.length > 0) yield `${name} adds the capabilities ${added}`;
  }
}

const containersOf = ({ containers, initContainers = [] }: PodSpec) => [...containers, ...initContainers];

/** What a pod breaks of the Pod Security Standard "restricted". It must say what it does without. */
export function brokenByRestricted(pod: PodSpec): string[] {
  const broken = [...common(pod)];
  for (const { name, securityContext: own = {} } of containersOf(pod)) {
    const both = { ...pod.securityContext, ...own };
    if (own.allowPrivilegeEscalation !== false) broken.push(`${name} may gain privileges`);
    if (!own.capabilities?.drop?.includes("ALL")) broken.push(`${name} keeps capabilities`);
    if (both.runAsNonRoot !== true) broken.push(`${name} may run as root`);
    if (both.runAsUser === 0) broken.push(`${name} runs as root`);
    if (!["RuntimeDefault", "Localhost"].includes(both.seccompProfile?.type))
      broken.push(`${name} has no seccomp profile`);
    if (both.seLinuxOptions) broken.push(`${name} sets SELinux's options`);
  }
  return broken;
}

/** What a pod breaks of OpenShift's security context constraints "restricted-v2". They set what the pod leaves open. */
export function brokenByOpenShift(pod: PodSpec): string[] {
  const broken = [...common(pod)];
  if (!isInRange(pod.securityContext?.fsGroup))
    broken.push(`fsGroup ${pod.securityContext.fsGroup} is not in the range`);
  for (const { name, securityContext: own = {} } of containersOf(pod)) {
    const both = { ...pod.securityContext, ...own };
    if (!isInRange(both.runAsUser))
      broken.push(`${name} runs as the user ${both.runAsUser}, not one of the range`);
    if (own.allowPrivilegeEscalation) broken.push(`${name} may gain privileges`);
    if ((both.seccompProfile?.type ?? "RuntimeDefault") !== "RuntimeDefault")
      broken.push(`${name} has its own seccomp profile`);
    if (both.seLinuxOptions) broken.push(`${name} sets SELinux's options`);
  }
  return broken;
}
