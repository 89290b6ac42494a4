import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { DASHBOARD, dashboardJson, EXPRESSIONS } from "../../scripts/dashboard.ts";
import { read } from "./project.ts";

/** The metrics that an expression of Prometheus names, without what Prometheus adds to the name of a histogram. */
function metricsIn(expression: string): string[] {
  const names = expression
    .replaceAll(/\{[^}]*\}|by \([^)]*\)/g, "")
    .match(/\b(?:webhook|http|rpc|db|process|nodejs)_\w+/g);
  return (names ?? []).map((name) => name.replace(/_(?:bucket|count|sum)$/, ""));
}

test("the committed dashboard is what scripts/dashboard.ts makes", () => {
  expect(readFileSync(DASHBOARD, "utf8")).toBe(dashboardJson());
});

test("the dashboard and the alerts use metrics that docs/operations.md lists", () => {
  const alerts = parse(read("deploy/prometheus/alerts.yml")) as { groups: { rules: { expr: string }[] }[] };
  const expressions = [
    ...EXPRESSIONS,
    ...alerts.groups.flatMap(({ rules }) => rules).map(({ expr }) => expr),
  ];
  expect(expressions.length).toBeGreaterThan(20);
  const table = read("docs/operations.md");
  for (const expression of expressions) {
    const names = metricsIn(expression);
    expect(names.length, expression).toBeGreaterThan(0);
    for (const name of names) if (!/^(?:process|nodejs)_/.test(name)) expect(table).toContain(`\`${name}\``);
  }
});

test("the dashboard's list of jobs has API and worker jobs", () => {
  const { templating } = JSON.parse(dashboardJson()) as { templating: { list: { query: string }[] } };
  const jobs = templating.list.map(({ query }) => query).find((query) => query.startsWith("label_values"));
  const [, names = ""] = /__name__=~"(.+)"/.exec(jobs ?? "") ?? [];
  expect(names.split("|")).toEqual(["webhook_events_published_total", "webhook_deliveries_failed_total"]);
});
