/**
 * The settings page in jsdom, with a fake service behind it. Its clock stands still: it goes on by a moment with each thing that is
 * done, and as far as `later` says.
 */
import "./dom.ts";
import type {
  DescMethodStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import {
  type ConnectRouter,
  createRouterTransport,
  type HandlerContext,
  type ServiceImpl,
} from "@connectrpc/connect";
import { notifications } from "@mantine/notifications";
import { configure, fireEvent, within } from "@testing-library/dom";
import userEvent from "@testing-library/user-event";
import { createRoot } from "react-dom/client";
import { expect, onTestFinished, vi } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../../gen/webhook/v1/audit_pb.ts";
import { CustomerService } from "../../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../../../gen/webhook/v1/endpoint_pb.ts";
import { IncidentService } from "../../../gen/webhook/v1/incident_pb.ts";
import { ReplayService } from "../../../gen/webhook/v1/replay_pb.ts";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { refusal } from "../../../src/calls/errors/errors.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { App } from "../../../web/src/app.tsx";
import { createPageRouter, type PageRouter } from "../../../web/src/router.tsx";
// What the router loads at the first visit: here, visits are all alike.
import "../../../web/src/pages/apps/index.tsx";
import "../../../web/src/pages/audit/index.tsx";
import "../../../web/src/pages/customers/customer.tsx";
import "../../../web/src/pages/customers/index.tsx";
import "../../../web/src/pages/customers/filter.tsx";
import "../../../web/src/pages/deliveries/delivery.tsx";
import "../../../web/src/pages/deliveries/export-dialog.tsx";
import "../../../web/src/pages/deliveries/index.tsx";
import "../../../web/src/pages/deliveries/send-filtered.tsx";
import "../../../web/src/pages/events/event.tsx";
import "../../../web/src/pages/incidents/incident.tsx";
import "../../../web/src/pages/incidents/index.tsx";
import "../../../web/src/pages/keys/index.tsx";
import "../../../web/src/pages/overview/first-steps.tsx";
import "../../../web/src/pages/overview/history.tsx";
import "../../../web/src/pages/overview/index.tsx";
import "../../../web/src/pages/replays/index.tsx";
import "../../../web/src/pages/webhooks/attempt-charts.tsx";
import "../../../web/src/pages/webhooks/index.tsx";
import "../../../web/src/pages/webhooks/new-webhook.tsx";
import "../../../web/src/pages/webhooks/webhook.tsx";
import "../../../web/src/shell/command-bar.tsx";
import "../../../web/src/shell/menus.tsx";
import "../../../web/src/shell/messages.tsx";
import "../../../web/src/shell/sign-in.tsx";
import { isCalledByJourney } from "../journeys/calls.ts";
import { NOW, SECOND, signedIn } from "./answers.ts";
import { hasWork, turn } from "./dom.ts";

const SERVICES = [
  ApiKeyService,
  AuditService,
  CustomerService,
  DeliveryService,
  EndpointService,
  IncidentService,
  ReplayService,
  SessionService,
  StatsService,
  WebhookService,
] as const;

type Methods = (typeof ApiKeyService)["method"] &
  (typeof AuditService)["method"] &
  (typeof CustomerService)["method"] &
  (typeof DeliveryService)["method"] &
  (typeof EndpointService)["method"] &
  (typeof IncidentService)["method"] &
  (typeof ReplayService)["method"] &
  (typeof SessionService)["method"] &
  (typeof StatsService)["method"] &
  (typeof WebhookService)["method"];
type Name = keyof Methods;
type Init<M> = M extends DescMethodUnary | DescMethodStreaming ? MessageInitShape<M["output"]> : never;
type Request<M> = M extends DescMethodUnary | DescMethodStreaming ? MessageShape<M["input"]> : never;

/**
 * What the service answers to the calls of a method: a message or an error, or what makes one of a request. A stream is several
 * messages, or what makes them. Calls of other methods are answered with an empty message.
 */
export type Answers = {
  [N in Name]?: Methods[N] extends DescMethodUnary
    ?
        | Init<Methods[N]>
        | Error
        | ((request: Request<Methods[N]>) => Init<Methods[N]> | Promise<Init<Methods[N]>>)
    : Init<Methods[N]>[] | (() => AsyncIterable<Init<Methods[N]>>);
};

/** The fake service of a test. */
export interface Service {
  /** May be changed while the page is open. */
  answers: Answers;
  /** The requests of each method, the first one first. */
  calls: { readonly [N in Name]: Request<Methods[N]>[] };
}

/** What happens by itself after something was done, in milliseconds: dialogs open, fields have their errors. */
const MOMENT_MS = 20;
/** No page changes for longer than that by itself, in moments. */
const MAX_MOMENTS = 300;
/** Turns without any change after which the page has come to rest. */
const QUIET_TURNS = 3;
/** The clock of the machine, for files that are being read. */
const { setTimeout: wait } = globalThis;

/** Counts what has changed in the document, and messages. */
let changes = 0;
/** Calls that are not answered, and those of them that wait for an answer of the test. */
let calling = 0;
let waiting = 0;
let router: PageRouter;
/** The hands of the user. */
let user: ReturnType<typeof userEvent.setup>;
/** Closes the page that is open. */
let close: (() => Promise<void>) | undefined;

configure({
  // Roles by markup alone: what is hidden is not there, and computing styles takes long.
  defaultHidden: true,
  getElementError: (message) => new Error(`${message?.split("\n")[0]}\n\nThe page says: ${text()}`),
});

/** Opens the page at a path, in place of the one that is open. It is closed when the test ends. */
export async function open(path: string, answers: Answers = {}) {
  if (close) await close();
  else onTestFinished(end);
  vi.useFakeTimers({
    now: NOW,
    toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"],
  });
  history.replaceState(null, "", path);
  const faults: unknown[] = [];
  const errors = vi.spyOn(console, "error").mockImplementation((...said) => faults.push(said));
  const service: Service = {
    answers: { getSession: signedIn(), watchOverview: [{ overview: {} }], ...answers },
    calls: Object.fromEntries(
      SERVICES.flatMap((each) => Object.keys(each.method).map((name) => [name, []])),
    ) as unknown as Service["calls"],
  };
  router = createPageRouter();
  const root = createRoot(document.getElementById("root") as HTMLElement);
  const observer = new MutationObserver(() => changes++);
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  user = userEvent.setup({ delay: null, pointerEventsCheck: 0 });
  close = async () => {
    root.unmount();
    notifications.clean();
    await settle();
    router.dispose();
    observer.disconnect();
    errors.mockRestore();
    calling = 0;
    waiting = 0;
    const unproved = Object.entries(service.calls).flatMap(([name, made]) =>
      made.length > 0 && !isCalledByJourney(name) ? [name] : [],
    );
    expect(unproved, "calls that no journey makes to the real service").toEqual([]);
    expect(faults).toEqual([]);
  };
  root.render(
    <App
      router={router}
      connect={(interceptors) => {
        const transport = createRouterTransport((routes) => serve(routes, service), {
          transport: { interceptors },
        });
        return {
          stream: transport.stream,
          async unary(...call) {
            calling++;
            return transport.unary(...call).finally(() => calling--);
          },
        };
      }}
    />,
  );
  await settle();
  return service;
}

async function end(): Promise<void> {
  const closing = close?.();
  close = undefined;
  await closing?.finally(() => {
    localStorage.clear();
    sessionStorage.clear();
    vi.useRealTimers();
  });
}

function serve(routes: ConnectRouter, { answers, calls }: Service): void {
  for (const service of SERVICES) {
    const methods = Object.values(service.method).map(({ methodKind, localName, output }) => {
      const name = localName as Name;
      const called = (request: unknown) => {
        changes++;
        (calls[name] as unknown[]).push(request);
        return answers[name] as unknown;
      };
      async function unary(request: never, { signal }: HandlerContext) {
        const answer = called(request);
        const answered = async () => (typeof answer === "function" ? answer(request) : answer);
        waiting++;
        const init = await Promise.race([answered(), ended(signal)]).finally(() => waiting--);
        if (init instanceof Error) throw init;
        return create(output, init as object);
      }
      async function* stream(request: never, { signal }: HandlerContext) {
        const answer = (called(request) ?? []) as object[] | (() => AsyncIterable<object>);
        for await (const init of typeof answer === "function" ? answer() : answer) {
          changes++;
          yield create(output, init);
        }
        // Nobody but the page ends the stream of the overview.
        if (name === "watchOverview") await ended(signal);
      }
      const refused = (request: never, context: HandlerContext) => unary(request, context).catch(refuse);
      return [name, methodKind === "unary" ? refused : stream];
    });
    routes.service(service, Object.fromEntries(methods) as ServiceImpl<typeof service>);
  }
}

const ended = (signal: AbortSignal) =>
  new Promise<undefined>((resolve) => signal.addEventListener("abort", () => resolve(undefined)));

/** Refuses a call as the service does. */
function refuse(error: unknown): never {
  throw error instanceof DomainError ? refusal(error) : error;
}

/** Waits until all that has been answered is shown; the clock stands still meanwhile. */
async function rest(): Promise<void> {
  while (!router.state.initialized || router.state.navigation.state !== "idle")
    await new Promise((resolve) => wait(resolve, 1));
  for (let quiet = 0; quiet < QUIET_TURNS; ) {
    const before = changes;
    await new Promise((resolve) => turn(resolve));
    quiet = changes === before && calling <= waiting && !hasWork() ? quiet + 1 : 0;
  }
}

/** Waits until the page has come to rest. */
async function settle(): Promise<void> {
  await rest();
  for (let before = -1, moments = 0; changes !== before; moments++) {
    if (moments > MAX_MOMENTS) throw new Error(`the page goes on changing; it says: ${text()}`);
    before = changes;
    await vi.advanceTimersByTimeAsync(MOMENT_MS);
    await rest();
  }
}

/** Moves the page's clock, by a second at a time. */
export async function later(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= SECOND) {
    await vi.advanceTimersByTimeAsync(Math.min(left, SECOND));
    await rest();
  }
  await settle();
}

type Text = string | RegExp;
type Target = Text | HTMLElement;

/** What is on the page, in words. */
export function text(scope: Element = document.body): string {
  return (scope.textContent ?? "").replaceAll(/\s+/g, " ");
}

/** Fails the test where the page, or a part of it, does not say this. */
export function sees(what: Text, scope?: Element): void {
  if (typeof what === "string") expect(text(scope)).toContain(what);
  else expect(text(scope)).toMatch(what);
}

/** Fails the test where the page, or a part of it, says this. */
export function seesNot(what: Text, scope?: Element): void {
  if (typeof what === "string") expect(text(scope)).not.toContain(what);
  else expect(text(scope)).not.toMatch(what);
}

/** All elements of a role and name. */
export function all(role: string, name?: Text, scope: HTMLElement = document.body): HTMLElement[] {
  return within(scope).queryAllByRole(role, name === undefined ? {} : { name });
}

/** What the user looks at first: the dialog that is open. */
function topmost(): HTMLElement | undefined {
  return [...document.querySelectorAll<HTMLElement>("[role=dialog]:not([id*=dropdown])")].at(-1);
}

/** The only element of a role and name; in the dialog that is open, if there is one and it has such an element. */
export function find(role: string, name?: Text, scope?: HTMLElement): HTMLElement {
  const options = name === undefined ? {} : { name };
  const top = scope ?? topmost();
  const inside = top ? within(top).queryAllByRole(role, options) : [];
  if (inside[0] && !inside[1]) return inside[0];
  return within(scope ?? document.body).getByRole(role, options);
}

/** The only field with this label; in the dialog that is open, if there is one and it has such a field. */
export function field(label: Text, scope?: HTMLElement): HTMLInputElement {
  const isLabel = (content: string) =>
    // The mark of what is required is beside the label.
    label instanceof RegExp ? label.test(content) : content.replace(/ \*$/, "") === label;
  const inside = (where: HTMLElement) =>
    within(where)
      .queryAllByLabelText(isLabel)
      .filter((each) => each instanceof HTMLInputElement || each instanceof HTMLTextAreaElement);
  const found =
    [scope ?? topmost() ?? document.body, document.body].map(inside).find(([first]) => first) ?? [];
  if (found[0] && !found[1]) return found[0] as HTMLInputElement;
  throw new Error(`${found.length} fields have the label ${label}; the page says: ${text()}`);
}

/** Whether a button cannot be pressed. */
export const isDisabled = (button: Text, scope?: HTMLElement) =>
  find("button", button, scope).matches(":disabled");

/** A part of the page by its name. */
export const region = (name: Text) => find("region", name, document.body);

/** The row of a table that says this. */
export function row(says: string): HTMLElement {
  const rows = [...document.querySelectorAll<HTMLElement>("tbody tr")];
  const found = rows.filter((each) => text(each).includes(says));
  if (found[0] && !found[1]) return found[0];
  throw new Error(`${found.length} rows say ${says}; the page says: ${text()}`);
}

const targeted = (target: Target, role: string, scope?: HTMLElement) =>
  target instanceof HTMLElement ? target : find(role, target, scope);

/** Clicks on a button, or on something else. */
export async function click(target: Target, role = "button", scope?: HTMLElement): Promise<void> {
  await user.click(targeted(target, role, scope));
  await settle();
}

/** Puts a text into a field, at once. */
export async function fill(label: Text, value: string, scope?: HTMLElement): Promise<void> {
  const target = field(label, scope);
  target.focus();
  fireEvent.input(target, { target: { value } });
  await settle();
}

/** Chooses an option of a field. */
export async function choose(field: Target, option: Text): Promise<void> {
  await click(field, "combobox");
  await click(option, "option", document.body);
}

/** Presses keys one after the other, as `{Enter}` or letters. */
export async function press(keys: string): Promise<void> {
  await user.keyboard(keys);
  await settle();
}

/** Moves the focus on by the Tab key. */
export async function tab(options?: { shift?: boolean }): Promise<void> {
  await user.tab(options);
  await settle();
}

/** What a field holds. */
export const value = (label: Text, scope?: HTMLElement) => field(label, scope).value;

/** The path that the page is at, with its filters. */
export const path = (): string => `${location.pathname}${location.search}`;

/** Fails the test where something else has the focus. */
export function expectFocus(target: HTMLElement): void {
  const told = (element: Element | null) => element?.outerHTML.slice(0, 200);
  expect(told(document.activeElement)).toBe(told(target));
}

/** Goes back in the history, as the browser's button does. */
export async function back(): Promise<void> {
  const gone = new Promise((resolve) => addEventListener("popstate", resolve, { once: true }));
  history.back();
  await gone;
  await settle();
}

/** Follows a link that is not on the page. */
export async function goTo(address: string): Promise<void> {
  await router.navigate(address);
  await settle();
}
