import { Code } from "@connectrpc/connect";
import { afterAll, describe, expect, test } from "vitest";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { freshUrl, startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const limited = await startTestApi({ databaseUrl: api.databaseUrl, limits: { maxWebhooks: 1 } });
afterAll(() => limited.stop());

const keys = {
  operator: await api.key(),
  "app of the operator": await api.key({ installedAppId: await api.app() }),
  "customer a": await api.key({ customer: "a" }),
  "customer a's app": await api.key({ customer: "a", installedAppId: await api.app() }),
  "customer b": await api.key({ customer: "b" }),
};
type Owner = keyof typeof keys;
/** One key of each instance. */
const INSTANCES = ["operator", "customer a", "customer b"] as const;
const as = (owner: Owner) => api.as(keys[owner].secret);
const listed = async (owner: Owner, request = {}) =>
  (await as(owner).webhooks.listWebhooks(request)).webhooks.map(({ id }) => id);
const listedOverRest = async (owner: Owner) =>
  (await api.rest("GET", "/api/webhook/list", { key: keys[owner].secret })).envelope.Data.map(
    ({ Id }: { Id: number }) => BigInt(Id),
  );
const removeOverRest = (owner: Owner, id: bigint) =>
  api.rest("DELETE", "/api/webhook", { key: keys[owner].secret, query: { webhookId: String(id) } });
const register = (owner: Owner, url = freshUrl(), process: WebhookProcess = 1) =>
  as(owner).webhooks.createWebhook({ process, url });

describe("§5.3: the webhooks of the operator and of each customer are a service instance of their own:", () => {
  test("§4.2.1: the same URL is registered once in each, and again with the same result", async () => {
    const url = freshUrl();
    const made = new Map<Owner, bigint>();
    for (const owner of INSTANCES) {
      const { webhook, created, warnings } = await register(owner, url);
      expect({ created, warnings }).toEqual({ created: true, warnings: [] });
      made.set(owner, webhook?.id as bigint);
    }
    expect(new Set(made.values()).size).toBe(INSTANCES.length);
    for (const owner of INSTANCES) {
      const request = { key: keys[owner].secret, json: { process: 1, url } };
      const { envelope } = await api.rest("POST", "/api/webhook", request);
      expect(envelope).toMatchObject({ Success: true, Data: { Id: Number(made.get(owner)) }, Warnings: [] });
    }
    const found = await register("customer a's app", url);
    expect(found).toMatchObject({ created: false, webhook: { id: made.get("customer a") } });
  });

  test("§4.1: each lists its own, over REST and gRPC; the operator also those of a customer, and all", async () => {
    const ids = new Map<Owner, bigint>();
    for (const owner of Object.keys(keys) as Owner[])
      ids.set(owner, (await register(owner)).webhook?.id as bigint);
    const of = (...owners: Owner[]) => owners.map((owner) => ids.get(owner));
    const last = (all: bigint[]) => all.filter((id) => [...ids.values()].includes(id));
    for (const [owners, own] of [
      [["operator", "app of the operator"], of("operator", "app of the operator")],
      [["customer a", "customer a's app"], of("customer a", "customer a's app")],
      [["customer b"], of("customer b")],
    ] as const)
      for (const owner of owners) {
        expect(last(await listed(owner))).toEqual(own);
        expect(last(await listed(owner, { allCustomers: owner !== "operator" }))).toEqual(own);
        expect(last(await listedOverRest(owner))).toEqual(own);
      }
    expect(last(await listed("operator", { allCustomers: true }))).toEqual([...ids.values()]);
    expect(last(await listed("operator", { customer: "a" }))).toEqual(of("customer a", "customer a's app"));
    expect(await listed("operator", { customer: "nobody" })).toEqual([]);
    expect(last(await listed("customer a", { customer: "a" }))).toEqual(of("customer a", "customer a's app"));
    for (const owner of ["customer b", "app of the operator"] as const) {
      const ofA = await failure(listed(owner, { customer: "a" }));
      const ofNobody = await failure(listed(owner, { customer: "nobody" }));
      expect(ofA).toMatchObject({ code: Code.PermissionDenied, message: ofNobody?.message });
    }
  });

  test("§4.3: each deletes its own only, and another's is not there", async () => {
    const [own, others] = [await register("customer a"), await register("customer b")];
    const [id, otherId] = [own, others].map(({ webhook }) => webhook?.id as bigint) as [bigint, bigint];
    const missing = otherId + 1_000_000n;
    for (const owner of ["customer a", "app of the operator"] as const) {
      const refusals = [];
      for (const each of [otherId, missing]) {
        const call = await failure(as(owner).webhooks.deleteWebhook({ webhookId: each }));
        expect(call?.code).toBe(Code.NotFound);
        const { status, text } = await removeOverRest(owner, each);
        refusals.push([status, `${call?.message} ${text}`.replaceAll(String(each), "ID")]);
      }
      expect(refusals[0]).toEqual(refusals[1]);
    }
    expect(await listed("customer b")).toContain(otherId);
    expect((await removeOverRest("customer a's app", id)).envelope.Success).toBe(true);
    expect(await listed("customer a")).not.toContain(id);
    // Only the operator manages those of customers.
    await as("operator").webhooks.deleteWebhook({ webhookId: otherId });
    expect(await listed("customer b")).not.toContain(otherId);
  });

  test("a webhook moves to a URL of another instance, and a URL of its own is taken", async () => {
    const [taken, own] = [freshUrl(), freshUrl()];
    for (const owner of ["operator", "customer b"] as const) await register(owner, taken);
    await register("customer a", own);
    const { webhook } = await register("customer a");
    const move = (url: string) =>
      as("customer a").webhooks.updateWebhook({ webhookId: webhook?.id as bigint, url });
    await expectRefused(move(own), Code.AlreadyExists);
    expect((await move(taken)).webhook?.url).toBe(taken);
  });

  test("an endpoint takes a URL of another instance, and event types that it has there", async () => {
    const url = freshUrl();
    for (const owner of ["operator", "customer b"] as const) await register(owner, url, 2);
    const { endpoint } = await as("customer a").endpoints.createEndpoint({ processes: [1], url });
    const { endpoint: changed } = await as("customer a").endpoints.updateEndpoint({
      target: { case: "endpointId", value: endpoint?.id as string },
      addProcesses: [2],
    });
    expect(changed?.webhooks.map(({ customer }) => customer)).toEqual(["a", "a"]);
    await expectRefused(
      as("customer a").endpoints.createEndpoint({ processes: [2], url }),
      Code.AlreadyExists,
    );
  });

  test("beyond MAX_WEBHOOKS, a customer does not learn how many others have", async () => {
    await register("operator");
    const refused = (owner: Owner) =>
      failure(limited.as(keys[owner].secret).webhooks.createWebhook({ process: 1, url: freshUrl() }));
    expect((await refused("operator"))?.message).toMatch(/\d+ webhooks are registered/);
    const { message } = (await refused("customer a")) as Error;
    expect(message).toContain("the service takes no more webhooks; delete unused ones");
    expect(message.replace(/MAX_WEBHOOKS/, "")).not.toMatch(/\d/);
  });
});
