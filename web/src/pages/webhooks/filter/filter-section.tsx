import { Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useMay } from "../../../api/session.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { CodeBlock } from "../../../parts/text/code-block.tsx";
import { FilterDialog } from "./filter-dialog.tsx";

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
