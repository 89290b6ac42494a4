import { Alert, Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useMay } from "../../../api/session.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { CodeBlock } from "../../../parts/text/code-block.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { FilterDialog } from "./filter-dialog.tsx";

/** Says that evaluating the filter takes too long, if it does. */
function SlowFilter({ webhook: { filterSlow, filterStopped } }: { webhook: Webhook }) {
  if (filterStopped)
    return (
      <Alert color="red" title="The filter is switched off: all events are sent" mb="sm">
        Ten evaluations in succession took longer than the time limit, <Time value={filterStopped} />. Change
        the filter to switch it on.
      </Alert>
    );
  if (!filterSlow) return null;
  return (
    <Alert color="yellow" title="The filter is slow" mb="sm">
      An evaluation took longer than the time limit, <Time value={filterSlow} />: the event was sent. After
      ten in succession, the filter is switched off.
    </Alert>
  );
}

/** The filter of a webhook's events. */
export function FilterSection({ webhook }: { webhook: Webhook }) {
  const [editing, { open, close }] = useDisclosure();
  const mayWrite = useMay("Write_Administrative_Data");
  useFocusBack(editing);
  return (
    <Section
      title="Filter"
      description="Only events that match are sent. The deliveries of the others end as filtered."
      actions={
        mayWrite && (
          <Button variant="default" size="xs" onClick={open}>
            Change…
          </Button>
        )
      }
    >
      <SlowFilter webhook={webhook} />
      {webhook.filter === undefined ? (
        <Text size="sm" c="dimmed">
          None: every event of this type is sent.
        </Text>
      ) : (
        <CodeBlock of="the filter" wraps>
          {webhook.filter}
        </CodeBlock>
      )}
      <FilterDialog webhook={webhook} opened={editing} onClose={close} />
    </Section>
  );
}
