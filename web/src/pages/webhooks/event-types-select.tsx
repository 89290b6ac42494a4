import { Box, Button, Checkbox, Group, Stack, TextInput } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { type KeyboardEvent, type ReactNode, useId, useState } from "react";
import type { EventType } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useSession } from "../../api/session.tsx";
import { processName } from "../../api/type-names.ts";
import { MAX_CHOICES } from "../../parts/filters.tsx";
import { Dimmed } from "../../parts/inline.tsx";

/** The event types to choose from, and the choice. */
export interface EventTypesSelectProps {
  eventTypes: readonly EventType[];
  /** Numbers as texts. */
  value?: string[];
  onChange?: (value: string[]) => void;
  error?: ReactNode;
}

/** An event type with the value of its checkbox, and whether the key may subscribe to it. */
interface Choice extends Pick<EventType, "description" | "notice" | "deprecated"> {
  /** Its name, and its alias if it has one. */
  name: string;
  value: string;
  allowed: boolean;
}

/** Chooses event types from an open list, which is searched by names and descriptions. */
export function EventTypesSelect({ eventTypes, value = [], onChange, error }: EventTypesSelectProps) {
  const [search, setSearch] = useState("");
  const choices = useChoices(eventTypes);
  const rank = ({ value: number, notice }: Choice) => (value.includes(number) ? 0 : notice ? 1 : 2);
  const word = search.trim().toLowerCase();
  // A chosen one is never out of sight.
  const found = choices.filter(
    (each) =>
      value.includes(each.value) ||
      (!each.deprecated && `${each.name} ${each.description}`.toLowerCase().includes(word)),
  );
  // The chosen ones first: none of them is left out.
  const shown = new Set(found.toSorted((a, b) => rank(a) - rank(b)).slice(0, MAX_CHOICES));
  const events = choices
    .filter(({ notice, allowed, deprecated }) => !notice && allowed && !deprecated)
    .map((each) => each.value);
  const all = events.every((each) => value.includes(each));

  function toggleAll() {
    const others = value.filter((each) => !events.includes(each));
    onChange?.(all ? others : [...value, ...events.filter((each) => !value.includes(each))]);
  }

  return (
    <Checkbox.Group
      label="Event types"
      description="The events that are sent to the URL: one or several."
      required
      value={value}
      onChange={(chosen) => onChange?.(chosen)}
      error={error}
    >
      <Stack gap="xs" my={4}>
        <TextInput
          type="search"
          aria-label="Search event types"
          placeholder="Search"
          value={search}
          onChange={(event) => setSearch(event.currentTarget.value)}
          onKeyDown={keepInForm}
          leftSection={<IconSearch size={16} />}
          autoComplete="off"
          spellCheck={false}
          data-autofocus
        />
        <Box
          px="sm"
          py={4}
          bd="1px solid var(--mantine-color-default-border)"
          // Scrolls by itself where there are many: what is asked for next stays in sight.
          style={{
            borderRadius: "var(--mantine-radius-default)",
            maxHeight: "min(26rem, 36vh)",
            overflowY: "auto",
          }}
        >
          {found.length === 0 && (
            <Dimmed py="xs" role="status">
              {eventTypes.length === 0 ? "Loading…" : "No such event type"}
            </Dimmed>
          )}
          {shown.size < found.length && (
            <Dimmed py="xs">{`${shown.size} of ${found.length} are shown: search for the others.`}</Dimmed>
          )}
          <Choices
            title="Events"
            of={found.filter((each) => !each.notice && shown.has(each))}
            chosen={value}
            action={
              events.length > 1 && (
                <Button variant="subtle" size="compact-xs" onClick={toggleAll}>
                  {all ? "Choose no events" : "Choose all events"}
                </Button>
              )
            }
          />
          <Choices
            title="Notices about webhooks"
            of={found.filter((each) => each.notice && shown.has(each))}
            chosen={value}
          />
        </Box>
      </Stack>
    </Checkbox.Group>
  );
}

function useChoices(eventTypes: readonly EventType[]): Choice[] {
  const allowed: readonly number[] = useSession().apiKey?.allowedProcesses ?? [];
  return eventTypes.map(({ number, name, description, notice, deprecated }) => ({
    value: String(number),
    name: processName(number, name),
    description: deprecated
      ? `${description} Deprecated: it can be removed, and not added again.`
      : description,
    notice,
    deprecated,
    allowed: allowed.length === 0 || allowed.includes(number),
  }));
}

/** Enter in the search would send the form. */
function keepInForm(event: KeyboardEvent) {
  if (event.key === "Enter") event.preventDefault();
}

interface ChoicesProps {
  title: string;
  of: readonly Choice[];
  chosen: readonly string[];
  /** A button beside the title. */
  action?: ReactNode;
}

function Choices({ title, of, chosen, action }: ChoicesProps) {
  const id = useId();
  if (of.length === 0) return null;
  return (
    <Stack gap="xs" py="xs" role="group" aria-labelledby={id}>
      <Group justify="space-between" gap="xs" mih={22}>
        <Dimmed id={id} size="xs" fw={600}>
          {title}
        </Dimmed>
        {action}
      </Group>
      {of.map(({ value, name, description, allowed }) => (
        <Checkbox
          key={value}
          value={value}
          label={name}
          description={allowed ? description : `${description} Your key may not subscribe to it.`}
          // One that is chosen already can be taken away.
          disabled={!allowed && !chosen.includes(value)}
        />
      ))}
    </Stack>
  );
}
