import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { readConfig, variableNames } from "../../src/config/config.ts";
import { describeWith } from "./programs.ts";

const chart = fileURLToPath(new URL("../../deploy/helm", import.meta.url));
const valueSets = readdirSync(path.join(chart, "ci"));
/** A folder of Kubernetes' strict JSON schemas, of the Python package kubernetes-validate. */
const schemas = process.env.KUBERNETES_SCHEMAS;

/** A manifest as far as these tests look at it. */
interface Manifest {
  kind: string;
  metadata: { name: string; annotations?: Record<string, string> };
  spec: {
    replicas?: number;
    metrics?: { external: { target: { type: string; averageValue: string } } }[];
    template?: {
      spec: {
        terminationGracePeriodSeconds: number;
        securityContext: object;
        containers: {
          args?: string[];
          env: { name: string; value?: string }[];
          securityContext: object;
          livenessProbe: { httpGet: { path: string; port: string; scheme?: string } };
        }[];
      };
    };
  };
}

const helm = (...args: string[]) => spawnSync("helm", args, { encoding: "utf8" });
const template = (...args: string[]) => helm("template", "hooks", chart, "--kube-version=1.33.0", ...args);
function render(values: string): string {
  const { status, stdout, stderr } = template("--values", path.resolve(chart, "ci", values));
  expect(status, stderr).toBe(0);
  return stdout;
}
const manifests = (values: string) =>
  parseAllDocuments(render(values))
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null);

describeWith(["helm"], "the Helm chart", () => {
  test.each(valueSets)("has no finding of helm lint --strict with %s", (values) => {
    const { status, stdout } = helm("lint", "--strict", chart, "--values", path.join(chart, "ci", values));
    expect(status, stdout).toBe(0);
  });

  test("asks for Temporal's address", () => {
    const { status, stderr } = template();
    expect(status).not.toBe(0);
    expect(stderr).toContain("temporal.address is required");
  });

  test.each(valueSets)(
    "sets only variables that the service reads, and no secret as a value, with %s",
    (values) => {
      const containers = manifests(values).flatMap(({ spec }) => spec?.template?.spec.containers ?? []);
      expect(containers.length).toBeGreaterThanOrEqual(2);
      for (const { name, value } of containers.flatMap(({ env }) => env)) {
        if (!/^(TEMPORAL|OTEL)_/.test(name)) expect(variableNames).toContain(name);
        if (/KEY|DATABASE/.test(name) && name !== "TLS_KEY") expect(value, name).toBeUndefined();
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
    const file = path.join(mkdtempSync(path.join(tmpdir(), "webhook-test-values-")), "values.json");
    onTestFinished(() => rmSync(path.dirname(file), { recursive: true }));
    writeFileSync(file, JSON.stringify({ temporal: { address: "temporal.example:7233" }, settings }));
    for (const { kind, spec } of manifests(file)) {
      if (kind !== "Deployment") continue;
      const [container] = spec.template?.spec.containers ?? [];
      const values = Object.fromEntries(container?.env.map(({ name, value }) => [name, value]) ?? []);
      for (const [name, value] of Object.entries(settings)) expect(values[name], name).toBe(String(value));
    }
  });

  test("leaves the namespace to a profile of Temporal's, unless temporal.namespace is set", () => {
    const namespaces = (...args: string[]) => {
      const { status, stdout } = template("--set-string=settings.TEMPORAL_PROFILE=cloud", ...args);
      expect(status).toBe(0);
      return [...new Set(stdout.match(/(?<=name: TEMPORAL_NAMESPACE\n *value: ).*/g))];
    };
    expect(namespaces()).toEqual([]);
    expect(namespaces("--set=temporal.namespace=hooks.account")).toEqual(['"hooks.account"']);
  });

  test.each(["DISPATCH_INTERVALL", "ROLE", "DATABASE_URL", "METRICS_PORT"])(
    "refuses the setting %s, which is unknown or set by another value",
    (name) => {
      const { status, stderr } = template("--set=temporal.address=t:7233", `--set-string=settings.${name}=1`);
      expect(status).not.toBe(0);
      expect(stderr).toContain(`/settings': additional properties '${name}' not allowed`);
    },
  );

  test.each(valueSets)(
    "runs every container as a user that is not root, and read-only, with %s",
    (values) => {
      for (const { spec } of manifests(values)) {
        if (!spec?.template) continue;
        expect(spec.template.spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 });
        for (const { securityContext } of spec.template.spec.containers)
          expect(securityContext).toEqual({
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          });
      }
    },
  );

  test("migrates before the pods are replaced, by a program that exists", () => {
    const job = manifests("default-values.yaml").find(({ kind }) => kind === "Job");
    expect(job?.metadata.annotations?.["helm.sh/hook"]).toBe("pre-install,pre-upgrade");
    const program = job?.spec.template?.spec.containers[0]?.args?.at(-1) as string;
    expect(existsSync(fileURLToPath(new URL(`../../${program}`, import.meta.url)))).toBe(true);
  });

  test("gives workers longer to stop than an attempt takes, and leaves their number to the autoscaler", () => {
    const worker = manifests("full-values.yaml").find(
      ({ kind, metadata }) => kind === "Deployment" && metadata.name === "hooks-worker",
    );
    // DELIVERY_TIMEOUT, 30 s until delivery processes are killed, and 20 s for the rest.
    expect(worker?.spec.template?.spec.terminationGracePeriodSeconds).toBe(60 + 50);
    expect(worker?.spec.replicas).toBeUndefined();
  });

  test("scales workers by the age for each worker, and not while events wait for the next dispatch", () => {
    const autoscaler = manifests("full-values.yaml").find(({ kind }) => kind === "HorizontalPodAutoscaler");
    const target = autoscaler?.spec.metrics?.[0]?.external.target;
    expect(target?.type).toBe("AverageValue");
    expect(Number(target?.averageValue)).toBeGreaterThan(readConfig({}).dispatch.intervalMs / 1_000);
  });

  test.each([
    ["default-values.yaml", { path: "/healthz", port: "metrics" }],
    ["full-values.yaml", { path: "/healthz", port: "metrics" }],
    ["small-values.yaml", { path: "/healthz", port: "http", scheme: "HTTP" }],
  ])("asks the API for its liveness on the port of metrics if there is one, with %s", (values, probe) => {
    const api = manifests(values).find(
      ({ kind, metadata }) => kind === "Deployment" && metadata.name === "hooks-api",
    );
    expect(api?.spec.template?.spec.containers[0]?.livenessProbe.httpGet).toEqual(probe);
  });
});

describeWith(["helm", "checkov"], "the chart's manifests by checkov", () => {
  const config = fileURLToPath(new URL("../../deploy/checkov.yaml", import.meta.url));
  const check = (manifest: string) => {
    const folder = mkdtempSync(path.join(tmpdir(), "webhook-test-checkov-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(path.join(folder, "chart.yaml"), manifest);
    return spawnSync("checkov", ["--config-file", config, "--directory", folder], { encoding: "utf8" });
  };

  test.each(valueSets)("have no finding but those that deploy/checkov.yaml answers, with %s", (values) => {
    const { status, stdout } = check(render(values));
    expect(status, stdout).toBe(0);
  });

  test("are checked: a container that may gain privileges is a finding", () => {
    const wrong = render("small-values.yaml").replaceAll(
      "allowPrivilegeEscalation: false",
      "allowPrivilegeEscalation: true",
    );
    expect(check(wrong).stdout).toContain("CKV_K8S_20");
  });
});

/** Copies the schemas for kubeconform, which resolves references by file and not by the `$id` of a schema. */
function preparedSchemas(from: string): string {
  const folder = mkdtempSync(path.join(tmpdir(), "webhook-test-schemas-"));
  for (const name of readdirSync(from)) {
    const text = readFileSync(path.join(from, name), "utf8");
    const { $id: _, ...schema } = JSON.parse(
      text.replaceAll('"/api/_definitions.json#', '"_definitions.json#'),
    );
    writeFileSync(path.join(folder, name), JSON.stringify(schema));
  }
  return folder;
}

if (schemas === undefined) {
  describe.skip("the chart's manifests (skipped: KUBERNETES_SCHEMAS does not name a folder of JSON schemas)", () => {
    test("are valid", () => {});
  });
} else {
  describeWith(["helm", "kubeconform"], "the chart's manifests", () => {
    let folder: string;
    beforeAll(() => {
      folder = preparedSchemas(schemas);
    });
    afterAll(() => rmSync(folder, { recursive: true }));

    const check = (manifest: string) =>
      spawnSync(
        "kubeconform",
        [
          "-strict",
          "-summary",
          // Of the Prometheus operator; Kubernetes has no schema for it.
          "-skip=ServiceMonitor",
          `-schema-location=${folder}/{{ .ResourceKind }}{{ .KindSuffix }}.json`,
        ],
        { input: manifest, encoding: "utf8" },
      );

    test.each(valueSets)("are valid by Kubernetes' strict schemas with %s", (values) => {
      const { status, stdout } = check(render(values));
      expect(status, stdout).toBe(0);
      expect(stdout).toMatch(/Valid: [1-9]/);
    });

    test("are checked: an unknown field is an error", () => {
      const wrong = render("small-values.yaml").replace("  replicas: 1", "  replicas: 1\n  unknown: 2");
      expect(check(wrong).status).toBe(1);
    });
  });
}
