import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { readConfig, variableNames } from "../../src/config/config.ts";
import { ROOT } from "../support/program.ts";
import { brokenByOpenShift, brokenByRestricted, type PodSpec } from "./pod-security.ts";
import { describeWith } from "./programs.ts";

const chart = path.join(ROOT, "deploy/helm");
const valueSets = readdirSync(path.join(chart, "ci"));
/** A folder of Kubernetes' strict JSON schemas, of the Python package kubernetes-validate. */
const schemas = process.env.KUBERNETES_SCHEMAS;

// biome-ignore lint/suspicious/noExplicitAny: kubeconform checks the manifests
type Manifest = any;

const call = (program: string, ...args: string[]) => spawnSync(program, args, { encoding: "utf8" });
const template = (...args: string[]) =>
  call("helm", "template", "hooks", chart, "--kube-version=1.33.0", ...args);
function render(values: string): string {
  const { status, stdout, stderr } = template("--values", path.resolve(chart, "ci", values));
  expect(status, stderr).toBe(0);
  return stdout;
}
function manifests(values: string): Manifest[] {
  const found = parseAllDocuments(render(values)).map((document) => document.toJS() as Manifest | null);
  return found.filter((manifest) => manifest !== null);
}
const find = (values: string, kind: string, name = "") =>
  manifests(values).find((each) => each.kind === kind && each.metadata.name.endsWith(name))?.spec;

/** The pods of the API, the workers and, if enabled, the migration. */
function pods(values: string): (PodSpec & Manifest)[] {
  const found = manifests(values).flatMap(({ spec }) => spec?.template?.spec ?? []);
  expect(found.length).toBeGreaterThanOrEqual(2);
  return found;
}

/** A new folder with these files, which is removed after the test. */
function folderWith(files: Record<string, string>): string {
  const folder = mkdtempSync(path.join(tmpdir(), "webhook-test-helm-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
  return folder;
}

const ADDRESS = "--set=temporal.address=t:7233";

describeWith(["helm"], "the Helm chart", () => {
  test.each(valueSets)(
    "has no finding of helm lint --strict, and sets only variables that the service reads, and no secret as a value, with %s",
    (values) => {
      const { status, stdout } = call("helm", "lint", "--strict", chart, "--values", `${chart}/ci/${values}`);
      expect(status, stdout).toBe(0);
      for (const { containers } of pods(values)) {
        for (const { name, value } of containers.flatMap(({ env }: Manifest) => env)) {
          if (!/^(TEMPORAL|OTEL|NODE)_/.test(name)) expect(variableNames).toContain(name);
          if (/KEY|DATABASE/.test(name) && name !== "TLS_KEY") expect(value, name).toBeUndefined();
        }
      }
    },
  );

  test.each(["default-values.yaml", "small-values.yaml", "full-values.yaml"])(
    "runs pods that the Pod Security Standard restricted admits, read-only and without the token of the API server, with %s",
    (values) => {
      for (const pod of pods(values)) {
        expect(brokenByRestricted(pod)).toEqual([]);
        expect(pod.automountServiceAccountToken).toBe(false);
        expect(pod.enableServiceLinks).toBe(false);
        for (const { securityContext } of pod.containers)
          expect(securityContext.readOnlyRootFilesystem).toBe(true);
      }
    },
  );

  test.each(["default-values.yaml", "small-values.yaml", "openshift-values.yaml"])(
    "runs pods that OpenShift's restricted-v2 admits: no user, group or fsGroup is fixed, with %s",
    (values) => {
      for (const pod of pods(values)) {
        expect(brokenByOpenShift(pod)).toEqual([]);
        expect(JSON.stringify(pod)).not.toMatch(/"(runAsUser|runAsGroup|fsGroup)"/);
      }
    },
  );

  test("leaves security contexts and service links to the cluster if they are null", () => {
    for (const pod of pods("openshift-values.yaml")) {
      expect(JSON.stringify(pod)).not.toMatch(/securityContext|enableServiceLinks/);
      expect(brokenByRestricted(pod)).toContain(`${pod.containers[0]?.name} may run as root`);
    }
    const [fixed] = pods("full-values.yaml");
    expect(fixed && brokenByOpenShift(fixed)).toEqual([
      "fsGroup 12345 is not in the range",
      "api runs as the user 12345, not one of the range",
      "api has its own seccomp profile",
    ]);
  });

  test("gives pods and resources what the values say, and a component's value replaces that of all pods", () => {
    const [api, worker, migration] = ["hooks-api", "hooks-worker", "hooks-migrate"].map(
      (name) =>
        manifests("full-values.yaml").find(
          ({ kind, metadata }) => metadata.name === name && /^(Deployment|Job)$/.test(kind),
        )?.spec.template,
    );
    for (const { metadata, spec } of [api, worker, migration]) {
      expect(metadata.labels).toMatchObject({ team: "integration", "example.com/zone": "inner" });
      expect(metadata.annotations).toEqual({ "example.com/restart": "1" });
      expect(spec).toMatchObject({
        securityContext: { runAsUser: 12345, fsGroup: 12345, supplementalGroups: [23456] },
        imagePullSecrets: [{ name: "registry" }],
        affinity: { podAntiAffinity: expect.anything() },
        topologySpreadConstraints: [{ maxSkew: 1 }],
      });
      expect(spec.volumes).toContainEqual({ name: "authorities", configMap: { name: "authorities" } });
      const [container] = spec.containers;
      expect(container.volumeMounts).toContainEqual({
        name: "authorities",
        mountPath: "/etc/authorities",
        readOnly: true,
      });
      expect(container.env).toContainEqual({
        name: "NODE_OPTIONS",
        value: "--max-http-header-size=32768",
      });
      expect(container.envFrom).toEqual([{ configMapRef: { name: "webhook-more", optional: true } }]);
    }
    const TOLERATION = { key: "dedicated", operator: "Equal", value: "webhooks", effect: "NoSchedule" };
    expect(api.spec).toMatchObject({ priorityClassName: "high", tolerations: [TOLERATION] });
    expect(worker.spec).toMatchObject({ priorityClassName: "high", nodeSelector: expect.anything() });
    expect(worker.spec.tolerations).toBeUndefined();
    expect(migration.spec).toMatchObject({ priorityClassName: "low", tolerations: [TOLERATION] });
    expect(migration.spec.nodeSelector).toBeUndefined();
    expect(api.spec.terminationGracePeriodSeconds).toBe(90);
    const [{ livenessProbe, startupProbe }] = api.spec.containers;
    expect(livenessProbe).toMatchObject({
      httpGet: { path: "/healthz" },
      periodSeconds: 10,
      failureThreshold: 10,
    });
    expect(startupProbe).toMatchObject({ exec: expect.anything(), failureThreshold: 60 });
    expect(startupProbe.httpGet).toBeUndefined();
    expect(worker.spec.containers[0].startupProbe).toBeUndefined();
    for (const [kind, name, own] of [
      ["Service", "hooks-api", "exposed"],
      ["Ingress", "hooks-api", "exposed"],
      ["Service", "hooks-metrics", "scrape"],
      ["ServiceAccount", "hooks", "role"],
      ["NetworkPolicy", "hooks", "contact"],
      ["HorizontalPodAutoscaler", "hooks-worker", "contact"],
    ]) {
      const { metadata } = manifests("full-values.yaml").find(
        (each) => each.kind === kind && each.metadata.name === name,
      );
      expect(metadata.labels, kind).toMatchObject({ team: "integration" });
      expect(metadata.annotations, kind).toMatchObject({ "example.com/contact": "integration@example.com" });
      if (own !== "contact") expect(Object.keys(metadata.labels), kind).toContain(`example.com/${own}`);
    }
    expect(find("full-values.yaml", "Ingress")).toMatchObject({
      ingressClassName: "nginx",
      rules: [{ host: "webhooks.example" }],
      tls: [{ hosts: ["webhooks.example"], secretName: "webhooks-example" }],
    });
  });

  test("values.schema.json has every value of values.yaml, and README.md describes it", () => {
    const schema = JSON.parse(readFileSync(path.join(chart, "values.schema.json"), "utf8"));
    const defaults = parseAllDocuments(readFileSync(path.join(chart, "values.yaml"), "utf8"))[0]?.toJS();
    const readme = readFileSync(path.join(chart, "README.md"), "utf8");
    for (const [name, value] of Object.entries<Manifest>(defaults)) {
      expect(readme).toContain(`\`${name}`);
      const { properties } = schema.properties[name];
      if (properties && name !== "settings")
        expect(Object.keys(properties), name).toEqual(expect.arrayContaining(Object.keys(value)));
    }
  });

  test("passes settings on as they are: large numbers, fractions, booleans and texts", () => {
    const settings = {
      MAX_CONNECTIONS: 1_000_000,
      RETRY_BACKOFF_COEFFICIENT: 1.5,
      DISPATCH_ON_PUBLISH: true,
      TRUST_PROXY: "10.0.0.0/8",
      OTEL_SERVICE_NAME: "our-webhooks",
    };
    const values = JSON.stringify({ temporal: { address: "temporal.example:7233" }, settings });
    const file = path.join(folderWith({ "values.json": values }), "values.json");
    for (const role of ["api", "worker"]) {
      const env = find(file, "Deployment", role)?.template?.spec.containers[0]?.env;
      for (const [name, value] of Object.entries(settings))
        expect(env).toContainEqual({ name, value: String(value) });
    }
  });

  test("leaves the namespace to a profile of Temporal's, unless temporal.namespace is set", () => {
    const namespaces = (...args: string[]) => {
      const { stdout } = template("--set-string=settings.TEMPORAL_PROFILE=cloud", ...args);
      return [...new Set(stdout.match(/(?<=name: TEMPORAL_NAMESPACE\n *value: ).*/g))];
    };
    expect(namespaces()).toEqual([]);
    expect(namespaces("--set=temporal.namespace=hooks.account")).toEqual(['"hooks.account"']);
  });

  test("mounts the ConfigMap of event types in every pod that reads EVENT_TYPES, as a folder or as one file, and none by default", () => {
    const mounts = (...args: string[]) => {
      const { stdout } = template(ADDRESS, ...args);
      const all = parseAllDocuments(stdout).map((document) => document.toJS() as Manifest | null);
      return all.flatMap((each) => {
        const pod = each?.spec?.template?.spec;
        if (!pod) return [];
        const [{ env, volumeMounts }] = pod.containers;
        const { value } = env.find(({ name }: Manifest) => name === "EVENT_TYPES") ?? {};
        const volume = pod.volumes.find(({ name }: Manifest) => name === "event-types");
        const mount = volumeMounts.find(({ name }: Manifest) => name === "event-types");
        return [[each.metadata.name, value, volume?.configMap, mount?.mountPath, mount?.readOnly]];
      });
    };
    const pods = ["hooks-api", "hooks-worker", "hooks-migrate"];
    const configMap = { name: "billing" };
    for (const [args, value] of [
      [[], "/etc/webhooks/events"],
      [["--set=eventTypes.file=events.binpb"], "/etc/webhooks/events/events.binpb"],
    ] as const)
      expect(mounts("--set=eventTypes.configMap=billing", ...args)).toEqual(
        pods.map((name) => [name, value, configMap, "/etc/webhooks/events", true]),
      );
    expect(mounts()).toEqual(pods.map((name) => [name, undefined, undefined, undefined, undefined]));
  });

  // Helm has had another validator of schemas since 3.18, with other words.
  const notAllowed = (place: string, name: string) =>
    new RegExp(
      `/${place}': additional properties '${name}' not allowed|${place || "\\(root\\)"}: Additional property ${name} is not allowed`,
    );
  test.each([
    ["no address of Temporal", [], /temporal\.address is required/],
    ...["DISPATCH_INTERVALL", "ROLE", "DATABASE_URL", "METRICS_PORT"].map(
      (name) =>
        [
          `the setting ${name}, which is unknown or set by another value`,
          [ADDRESS, `--set-string=settings.${name}=1`],
          notAllowed("settings", name),
        ] as const,
    ),
    ["an unknown value", [ADDRESS, "--set=replicas=3"], notAllowed("", "replicas")],
    ["an unknown value of the API", [ADDRESS, "--set=api.replica=3"], notAllowed("api", "replica")],
    [
      "an unknown value of event types",
      [ADDRESS, "--set=eventTypes.folder=events"],
      notAllowed("eventTypes", "folder"),
    ],
    [
      "a volume without a name",
      [ADDRESS, "--set-json=volumes=[{}]"],
      /\/volumes\/0': missing property 'name'|volumes\.0: name is required/,
    ],
    [
      "tolerations that are no list",
      [ADDRESS, "--set=tolerations=x"],
      /\/tolerations': got string, want|tolerations: Invalid type\. Expected: \[array,null\], given: string/,
    ],
    [
      "an Ingress without hosts",
      [ADDRESS, "--set=api.ingress.enabled=true"],
      /api\.ingress\.hosts is required/,
    ],
  ] as const)("refuses %s", (_what, args, says) => {
    const { status, stderr } = template(...args);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(says);
  });

  test("routes the Ingress's host to the API at BASE_PATH, or at the root, and makes none unless it is enabled", () => {
    const pathOf = (...args: string[]) => {
      const { stdout } = template(ADDRESS, "--set=api.ingress.hosts={hooks.example}", ...args);
      const all = parseAllDocuments(stdout).map((document) => document.toJS() as Manifest | null);
      return all.find((manifest) => manifest?.kind === "Ingress")?.spec.rules[0].http.paths[0];
    };
    const backend = (port: string) => ({ service: { name: "hooks-api", port: { name: port } } });
    expect(pathOf()).toBeUndefined();
    expect(pathOf("--set=api.ingress.enabled=true")).toMatchObject({ path: "/", backend: backend("http") });
    const prefix = ["--set=settings.BASE_PATH=/webhooks", "--set=tls.secretName=tls"];
    const ingress = pathOf("--set=api.ingress.enabled=true", ...prefix);
    expect(ingress).toMatchObject({ path: "/webhooks", backend: backend("https") });
  });

  test("migrates before the pods are replaced, by a program that exists", () => {
    const job = manifests("default-values.yaml").find(({ kind }) => kind === "Job");
    expect(job?.metadata.annotations?.["helm.sh/hook"]).toBe("pre-install,pre-upgrade");
    const program = job?.spec.template?.spec.containers[0]?.args?.at(-1) as string;
    expect(existsSync(path.join(ROOT, program))).toBe(true);
  });

  test("gives workers longer to stop than an attempt takes, and leaves their number to the autoscaler, by the age for each worker", () => {
    const worker = find("full-values.yaml", "Deployment", "hooks-worker");
    // DELIVERY_TIMEOUT, 30 s until delivery processes are killed, and 20 s for the rest.
    expect(worker?.template?.spec.terminationGracePeriodSeconds).toBe(60 + 50);
    expect(worker?.replicas).toBeUndefined();
    const target = find("full-values.yaml", "HorizontalPodAutoscaler")?.metrics?.[0]?.external.target;
    expect(target?.type).toBe("AverageValue");
    // Not while events wait for the next dispatch.
    expect(Number(target?.averageValue)).toBeGreaterThan(readConfig({}).dispatch.intervalMs / 1_000);
  });

  test.each([
    ["default-values.yaml", { path: "/healthz", port: "metrics" }],
    ["full-values.yaml", { path: "/healthz", port: "metrics" }],
    ["small-values.yaml", { path: "/healthz", port: "http", scheme: "HTTP" }],
  ])("asks the API for its liveness on the port of metrics if there is one, with %s", (values, probe) => {
    const api = find(values, "Deployment", "hooks-api");
    expect(api?.template?.spec.containers[0]?.livenessProbe.httpGet).toEqual(probe);
  });
});

describeWith(["helm", "checkov"], "the chart's manifests by checkov", () => {
  test("have no finding but those that deploy/checkov.yaml answers, and a container that may gain privileges is one", () => {
    const check = (manifests: Record<string, string>) => {
      const config = path.join(ROOT, "deploy/checkov.yaml");
      return call("checkov", "--config-file", config, "--directory", folderWith(manifests));
    };
    // Without security contexts, OpenShift decides.
    const checked = valueSets.filter((values) => values !== "openshift-values.yaml");
    const { status, stdout } = check(Object.fromEntries(checked.map((values) => [values, render(values)])));
    expect(status, stdout).toBe(0);
    const wrong = render("small-values.yaml").replaceAll(/(?<=allowPrivilegeEscalation: )false/g, "true");
    expect(check({ "wrong.yaml": wrong }).stdout).toContain("CKV_K8S_20");
  });
});

/** Copies the schemas for kubeconform, which resolves references by file and not by the `$id` of a schema. */
function preparedSchemas(from: string): string {
  const prepared = readdirSync(from).map((name) => {
    const text = readFileSync(path.join(from, name), "utf8").replaceAll('"/api/_def', '"_def');
    return [name, JSON.stringify({ ...JSON.parse(text), $id: undefined })];
  });
  return folderWith(Object.fromEntries(prepared));
}

describe.runIf(schemas)("with KUBERNETES_SCHEMAS", () => {
  describeWith(["helm", "kubeconform"], "the chart's manifests", () => {
    test("are valid by Kubernetes' strict schemas, and an unknown field is an error", () => {
      const schema = `${preparedSchemas(schemas as string)}/{{ .ResourceKind }}{{ .KindSuffix }}.json`;
      // Of the Prometheus operator; Kubernetes has no schema for it.
      const args = ["-strict", "-summary", "-skip=ServiceMonitor", `-schema-location=${schema}`];
      const check = (input: string) => spawnSync("kubeconform", args, { input, encoding: "utf8" });
      for (const values of valueSets) {
        const { status, stdout } = check(render(values));
        expect([status, stdout], values).toEqual([0, expect.stringMatching(/Valid: [1-9]/)]);
      }
      const wrong = render("small-values.yaml").replace("  replicas: 1", "  replicas: 1\n  unknown: 2");
      expect(check(wrong).status).toBe(1);
    });
  });
});
