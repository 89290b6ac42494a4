import { Group, Image, Text } from "@mantine/core";
import mark from "../favicon.svg";

/** The service's mark and name. */
export function Brand() {
  return (
    <Group gap="xs" wrap="nowrap">
      <Image src={mark} alt="" w={26} h={26} />
      <Text fw={650} style={{ whiteSpace: "nowrap" }}>
        Webhook service
      </Text>
    </Group>
  );
}
