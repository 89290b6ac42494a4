import { useQuery } from "@connectrpc/connect-query";
import { Modal, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import {
  IconBook,
  IconKey,
  IconListDetails,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlus,
  IconSearch,
  IconSend,
  IconUser,
  IconWebhook,
  type TablerIcon,
} from "@tabler/icons-react";
import { keepPreviousData } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useState } from "react";
import { useNavigate } from "react-router";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { CustomerService } from "../../../gen/webhook/v1/customer_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { type Webhook, WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { failureInWords } from "../api/failure.ts";
import { isReachable, useChange } from "../api/queries.ts";
import { useIsLimited, useMay } from "../api/session.tsx";
import { typeName } from "../api/type-names.ts";
import { BASE_PATH } from "../base-path.ts";
import type { DialogProps } from "../parts/dialogs.tsx";
import { notifyFailure } from "../parts/failure.tsx";
import { TYPING_MS } from "../parts/filters.tsx";
import { customerPage, listPage, webhookPage } from "../parts/inline.tsx";
import { notifyDone } from "../parts/save.ts";
import { addressInFull, countOf, webhookTitle } from "../parts/text/words.ts";
import { useNavigation } from "./navigation.ts";

/** The number of things of a kind that are shown; more words find fewer. */
const SHOWN = 6;
/** The age up to which what was found is not read again, in milliseconds. */
const FRESH_MS = 60_000;

/** What can be done: a page to go to, or an act. */
interface Command {
  group: string;
  label: string;
  /** What tells it apart from others with the same label. */
  detail?: string;
  Icon: TablerIcon;
  to?: string;
  /** The text to type on with, for an act that needs a webhook. */
  types?: string;
  run?: () => unknown;
}

/** Searches and acts by keyboard: pages, deliveries, webhooks, customers, keys, and actions. */
export function CommandBar({ opened, onClose }: DialogProps) {
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title="Search and commands"
      size="lg"
      padding={0}
      styles={{ header: { position: "absolute", clip: "rect(0 0 0 0)", minHeight: 0 } }}
    >
      <Bar onClose={onClose} />
    </Modal>
  );
}

function Bar({ onClose }: Pick<DialogProps, "onClose">) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { commands, status } = useCommands(text);
  const navigate = useNavigate();
  const id = useId();
  const chosen = Math.min(at, commands.length - 1);
  const optionId = (index: number) => `${id}-${index}`;

  useEffect(() => {
    document.getElementById(`${id}-${chosen}`)?.scrollIntoView?.({ block: "nearest" });
  }, [id, chosen]);

  function type(typed: string) {
    setText(typed);
    setAt(0);
  }

  function take(command: Command | undefined) {
    if (!command) return;
    if (command.types !== undefined) return type(command.types);
    onClose();
    if (command.to !== undefined) void navigate(command.to);
    command.run?.();
  }

  function onKeyDown(event: KeyboardEvent) {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (commands.length === 0) return;
    if (step !== undefined) setAt((chosen + step + commands.length) % commands.length);
    // The Enter that ends the input of a character in Chinese or Japanese chooses nothing.
    else if (event.key === "Enter" && !event.nativeEvent.isComposing) take(commands[chosen]);
    else return;
    event.preventDefault();
  }

  const groups = [...new Set(commands.map(({ group }) => group))];
  return (
    <>
      <TextInput
        data-autofocus
        size="md"
        variant="unstyled"
        className="command-field"
        leftSection={<IconSearch size={18} />}
        placeholder="Order number, user, URL, name, page or action"
        value={text}
        onChange={(event) => type(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        autoComplete="off"
        spellCheck={false}
        role="combobox"
        aria-label="Search and commands"
        aria-expanded={commands.length > 0}
        aria-autocomplete="list"
        aria-controls={id}
        aria-activedescendant={commands.length > 0 ? optionId(chosen) : undefined}
      />
      <div id={id} role="listbox" aria-label="Results" className="commands" tabIndex={-1}>
        {groups.map((group) => (
          // biome-ignore lint/a11y/useSemanticElements: a fieldset has form fields
          <div key={group} role="group" aria-label={group}>
            <div className="command-group" aria-hidden>
              {group}
            </div>
            {commands.map((command, index) => {
              if (command.group !== group) return null;
              const { label, detail, Icon } = command;
              return (
                // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the focus, and the keys
                <div
                  key={`${label} ${detail}`}
                  id={optionId(index)}
                  role="option"
                  tabIndex={-1}
                  aria-selected={index === chosen}
                  className="command"
                  onClick={() => take(command)}
                  onMouseMove={() => setAt(index)}
                >
                  <Icon size={16} aria-hidden />
                  <Text span inherit truncate>
                    {label}
                  </Text>
                  {detail && (
                    <Text span size="xs" c="dimmed" truncate>
                      {detail}
                    </Text>
                  )}
                </div>
              );
            })}
          </div>
        ))}
      </div>
      <Text size="xs" c="dimmed" role="status" className="command-status">
        {status}
      </Text>
    </>
  );
}

const hasWords = (of: string, text: string) => {
  const words = of.toLowerCase().split(/\s+/);
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((wanted) => words.some((word) => word.startsWith(wanted)));
};

/** The verb that stands before the name of a webhook: `pause shop`. */
const ACT = /^(pause|resume)\s+(.*)$/i;

/** What a text stands for, the likeliest first, and that in words. */
function useCommands(text: string): { commands: Command[]; status: string } {
  const [, verb, subject = text] = ACT.exec(text.trimStart()) ?? [];
  const search = subject.trim();
  const [settled] = useDebouncedValue(search, TYPING_MS);
  const mayRead = useMay("Read_Administrative_Data");
  const mayManage = useMay("Manage_Api_Keys");
  const isLimited = useIsLimited();
  const statics = useActsAndPages();
  const pausing = usePausing();
  const enabled = settled !== "";
  const asked = { staleTime: FRESH_MS, placeholderData: keepPreviousData };
  const webhooks = useQuery(
    WebhookService.method.searchWebhooks,
    { search: settled, pageSize: SHOWN },
    { ...asked, enabled: mayRead && (enabled || verb !== undefined) },
  );
  const customers = useQuery(
    CustomerService.method.listCustomers,
    { search: settled, pageSize: SHOWN },
    { ...asked, enabled: mayRead && !isLimited && verb === undefined && enabled },
  );
  const keys = useQuery(
    ApiKeyService.method.listApiKeys,
    {},
    { ...asked, enabled: mayManage && verb === undefined && enabled },
  );
  const found = webhooks.data?.webhooks.filter(isReachable) ?? [];
  // What was found for fewer letters may be looked at meanwhile, but not paused.
  const isCurrent = search === settled && !webhooks.isPlaceholderData;
  const commands: Command[] =
    verb !== undefined
      ? pausing(verb.toLowerCase() === "pause", isCurrent ? found : [])
      : search === ""
        ? statics
        : [
            ...statics.filter(({ label }) => hasWords(label, search)),
            ...(mayRead ? [deliveriesWith(search)] : []),
            ...found.map(webhookCommand),
            ...(customers.data?.customers ?? []).map(
              ({ userId, displayName }): Command => ({
                group: "Customers",
                label: displayName || userId,
                ...(displayName ? { detail: userId } : {}),
                Icon: IconUser,
                to: customerPage(userId),
              }),
            ),
            ...(keys.data?.apiKeys ?? [])
              .filter(({ name, prefix }) => hasWords(`${name} ${prefix}`, search))
              .slice(0, SHOWN)
              .map(
                ({ name, prefix }): Command => ({
                  group: "API keys",
                  label: name,
                  detail: `${prefix}…`,
                  Icon: IconKey,
                  to: listPage(PAGE_PATHS.keys, { search: prefix }),
                }),
              ),
          ];
  const failed = [webhooks, customers, keys].find((query) => query.error);
  const isSearching = search !== settled || [webhooks, customers, keys].some((query) => query.isFetching);
  return {
    commands,
    status: failed
      ? `${failureInWords(failed.error).title}: not everything was searched`
      : isSearching
        ? "Searching…"
        : `${countOf(commands.length, "result", "results")} · ↑ ↓ to choose, Enter to open`,
  };
}

const deliveriesWith = (search: string): Command => ({
  group: "Deliveries",
  label: `Deliveries with “${search}”`,
  Icon: IconSend,
  to: listPage(PAGE_PATHS.deliveries, { search }),
});

const webhookCommand = (webhook: Webhook): Command => ({
  group: "Webhooks",
  label: webhookTitle(webhook),
  detail:
    webhook.name === undefined ? typeName(webhook) : `${typeName(webhook)} · ${addressInFull(webhook.url)}`,
  Icon: IconWebhook,
  to: webhookPage(webhook.id),
});

/** What pauses or resumes webhooks, those that can be. */
function usePausing() {
  const { pauseWebhook, resumeWebhook } = WebhookService.method;
  const pause = useChange(pauseWebhook);
  const resume = useChange(resumeWebhook);
  return (pauses: boolean, webhooks: readonly Webhook[]) =>
    webhooks
      .filter(({ paused }) => (paused === undefined) === pauses)
      .map((webhook): Command => {
        const title = webhookTitle(webhook);
        const [act, verb, past] = pauses ? [pause, "Pause", "paused"] : [resume, "Resume", "resumed"];
        const { detail = "" } = webhookCommand(webhook);
        return {
          group: `${verb} a webhook`,
          label: `${verb} ${title}`,
          detail,
          Icon: pauses ? IconPlayerPause : IconPlayerPlay,
          run: () =>
            act({ webhookId: webhook.id }).then(
              () => notifyDone(`${title} is ${past}.`),
              (error: unknown) => notifyFailure(`${title} was not ${past}`, error),
            ),
        };
      });
}

/** The actions and pages that the session may use. */
function useActsAndPages(): Command[] {
  const mayRead = useMay("Read_Administrative_Data");
  const mayWrite = useMay("Write_Administrative_Data");
  const isLimited = useIsLimited();
  const { dispatchNow, listDispatchRuns } = StatsService.method;
  const dispatch = useChange(dispatchNow, listDispatchRuns);
  const pages = useNavigation();

  const elsewhere = (path: string) => () => window.open(`${BASE_PATH}${path}`, "_blank");
  const acts: (Omit<Command, "group"> | false)[] = [
    mayWrite && {
      label: "New webhook",
      Icon: IconPlus,
      to: listPage(PAGE_PATHS.webhooks, { new: "1" }),
    },
    mayWrite && { label: "Pause a webhook…", Icon: IconPlayerPause, types: "Pause " },
    mayWrite && { label: "Resume a webhook…", Icon: IconPlayerPlay, types: "Resume " },
    mayWrite &&
      !isLimited && {
        label: "Dispatch now",
        Icon: IconSend,
        run: () =>
          dispatch({}).then(
            () => notifyDone("Pending deliveries are sent now.", "A dispatch has started"),
            (error: unknown) => notifyFailure("No dispatch was started", error),
          ),
      },
  ];
  return [
    ...acts.flatMap((act) => (act ? { group: "Actions", ...act } : [])),
    ...pages.map(({ to, label, Icon }) => ({ group: "Pages", label, Icon, to })),
    ...(mayRead
      ? [{ group: "Pages", label: "Event types", Icon: IconListDetails, run: elsewhere("/events") }]
      : []),
    { group: "Pages", label: "API documentation", Icon: IconBook, run: elsewhere("/docs") },
  ];
}
