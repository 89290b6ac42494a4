import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { DASHBOARD, dashboardJson, EXPRESSIONS } from "../../scripts/dashboard.ts";
import { read } from "./project.ts";

/** The metrics that an expression of Prometheus names, without its labels. */
const metricsIn = (expression: string): string[] =>
  expression
    .replaceAll(/\{[^}]*\}|by \([^)]*\)/g, "")
    .match(/\b(?:webhook|http|rpc|db|process|nodejs)_\w+/g) ?? [];

/** Without what Prometheus adds to the name of a histogram. */
const family = (name: string) => name.replace(/_(?:bucket|count|sum)$/, "");

/** Whether docs/operations.md lists a metric, by its name or by the beginning of it. */
function isListed(name: string): boolean {
  const table = read("docs/operations.md");
  return table.includes(`\`${family(name)}\``) || /^(?:process|nodejs)_/.test(name);
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
  for (const expression of expressions) {
    const names = metricsIn(expression);
    expect(names.length, expression).toBeGreaterThan(0);
    expect(names.filter((name) => !isListed(name))).toEqual([]);
  }
});

test("the dashboard's list of jobs has those of APIs and of workers", () => {
  const { templating } = JSON.parse(dashboardJson()) as { templating: { list: { query: string }[] } };
  const jobs = templating.list.map(({ query }) => query).find((query) => query.startsWith("label_values"));
  const [, names = ""] = /__name__=~"(.+)"/.exec(jobs ?? "") ?? [];
  expect(names.split("|")).toEqual(["webhook_events_published_total", "webhook_deliveries_failed_total"]);
});
