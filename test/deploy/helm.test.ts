import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { readConfig, variableNames } from "../../src/config/config.ts";
import { ROOT } from "../support/program.ts";
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
    "has no finding of helm lint --strict, sets only variables that the service reads, no secret as a value, and runs containers read-only and not as root, with %s",
    (values) => {
      const { status, stdout } = call("helm", "lint", "--strict", chart, "--values", `${chart}/ci/${values}`);
      expect(status, stdout).toBe(0);
      const pods = manifests(values).flatMap(({ spec }) => spec?.template?.spec ?? []);
      expect(pods.length).toBeGreaterThanOrEqual(2);
      for (const { securityContext, containers } of pods) {
        expect(securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 });
        for (const container of containers)
          expect(container.securityContext).toEqual({
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          });
        for (const { name, value } of containers.flatMap(({ env }: Manifest) => env)) {
          if (!/^(TEMPORAL|OTEL)_/.test(name)) expect(variableNames).toContain(name);
          if (/KEY|DATABASE/.test(name) && name !== "TLS_KEY") expect(value, name).toBeUndefined();
        }
      }
    },
  );

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

  test.each([
    ["no address of Temporal", [], "temporal.address is required"],
    ["an Ingress without a host", [ADDRESS, "--set=ingress.enabled=true"], "ingress.host is required"],
    ...["DISPATCH_INTERVALL", "ROLE", "DATABASE_URL", "METRICS_PORT"].map(
      (name) =>
        [
          `the setting ${name}, which is unknown or set by another value`,
          [ADDRESS, `--set-string=settings.${name}=1`],
          `/settings': additional properties '${name}' not allowed`,
        ] as const,
    ),
  ] as const)("refuses %s", (_what, args, says) => {
    const { status, stderr } = template(...args);
    expect(status).not.toBe(0);
    expect(stderr).toContain(says);
  });

  test("routes the Ingress's host to the API at BASE_PATH, or at the root, and makes none unless it is enabled", () => {
    const pathOf = (...args: string[]) => {
      const { stdout } = template(ADDRESS, "--set=ingress.host=hooks.example", ...args);
      const all = parseAllDocuments(stdout).map((document) => document.toJS() as Manifest | null);
      return all.find((manifest) => manifest?.kind === "Ingress")?.spec.rules[0].http.paths[0];
    };
    const backend = (port: string) => ({ service: { name: "hooks-api", port: { name: port } } });
    expect(pathOf()).toBeUndefined();
    expect(pathOf("--set=ingress.enabled=true")).toMatchObject({ path: "/", backend: backend("http") });
    const prefix = ["--set=settings.BASE_PATH=/webhooks", "--set=tls.secretName=tls"];
    const ingress = pathOf("--set=ingress.enabled=true", ...prefix);
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
    const { status, stdout } = check(Object.fromEntries(valueSets.map((values) => [values, render(values)])));
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
