import { Button, type ButtonProps } from "@mantine/core";
import { IconWorld } from "@tabler/icons-react";
import { useZone, useZoneChoice } from "./zone.ts";

/** Says in which time zone times are shown, and changes between the viewer's zone and UTC. */
export function ZoneSwitch(props: Pick<ButtonProps, "visibleFrom" | "hiddenFrom">) {
  const [zone, setZone] = useZoneChoice();
  const { name } = useZone();
  const isUtc = zone === "utc";
  return (
    <Button
      variant="subtle"
      color="gray"
      size="compact-sm"
      {...props}
      leftSection={<IconWorld size={16} />}
      onClick={() => setZone(isUtc ? "local" : "utc")}
      title={isUtc ? "Show times in your time zone" : "Show times in UTC"}
      aria-label={`Times in ${name}. ${isUtc ? "Show times in your time zone" : "Show times in UTC"}`}
    >
      {name}
    </Button>
  );
}
