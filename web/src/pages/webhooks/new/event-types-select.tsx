import { type ComboboxItem, MultiSelect, Stack, Text } from "@mantine/core";
import type { EventType } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useSession } from "../../../api/session.tsx";

/** The event types to choose from, and the choice. */
export interface EventTypesSelectProps {
  eventTypes: readonly EventType[];
  /** Numbers as texts. */
  value?: string[];
  onChange?: (value: string[]) => void;
  error?: React.ReactNode;
}

/** Chooses event types by their names or by what they say of themselves. */
export function EventTypesSelect({ eventTypes, value = [], onChange, error }: EventTypesSelectProps) {
  const allowed: readonly number[] = useSession().apiKey?.allowedProcesses ?? [];
  // One that is chosen already can be taken away.
  const mayHave = (number: number) =>
    allowed.length === 0 || allowed.includes(number) || value.includes(String(number));
  const byNumber = new Map(eventTypes.map((each) => [String(each.number), each]));
  const options = (notice: boolean) =>
    eventTypes
      .filter((each) => each.notice === notice)
      .map(({ number, name }) => ({ value: String(number), label: name, disabled: !mayHave(number) }));
  /** Whether an option's name or description contains the word. */
  const matches = (word: string) => (option: ComboboxItem) =>
    `${option.label} ${byNumber.get(option.value)?.description ?? ""}`.toLowerCase().includes(word);
  return (
    <MultiSelect
      label="Event types"
      description="The events that are sent to the URL: one or several."
      placeholder={value.length === 0 ? "Choose event types" : ""}
      required
      data-autofocus
      // It has the focus when the dialog opens: what it offers is not to lie over the rest.
      openOnFocus={false}
      data={[
        { group: "Events", items: options(false) },
        { group: "Notices about webhooks", items: options(true) },
      ]}
      value={value}
      onChange={onChange}
      error={error}
      searchable
      nothingFoundMessage={eventTypes.length === 0 ? "Loading…" : "No such event type"}
      // All of them without scrolling, where the screen has room.
      maxDropdownHeight="min(540px, 65vh)"
      filter={({ options, search }) => {
        const word = search.trim().toLowerCase();
        return options
          .filter((option) => "group" in option)
          .map(({ group, items }) => ({ group, items: items.filter(matches(word)) }))
          .filter(({ items }) => items.length > 0);
      }}
      renderOption={({ option }) => (
        <Stack gap={0}>
          <Text size="sm" fw={500}>
            {option.label}
          </Text>
          <Text size="xs" c="dimmed">
            {byNumber.get(option.value)?.description}
            {option.disabled && " Your key may not subscribe to it."}
          </Text>
        </Stack>
      )}
    />
  );
}
