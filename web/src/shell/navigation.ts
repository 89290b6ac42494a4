import {
  IconAlertTriangle,
  IconApps,
  IconGauge,
  IconHistory,
  IconKey,
  IconSend,
  IconUsers,
  IconWebhook,
  type TablerIcon,
} from "@tabler/icons-react";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { type PermissionName, useIsLimited, useMay, useOwnCustomer } from "../api/session.tsx";
import { customerPage } from "../parts/inline.tsx";

interface Entry {
  to: string;
  label: string;
  Icon: TablerIcon;
  needs: PermissionName;
}

const READS = "Read_Administrative_Data";
const MANAGES = "Manage_Api_Keys";
const NAVIGATION: readonly Entry[] = [
  { to: PAGE_PATHS.overview, label: "Overview", Icon: IconGauge, needs: READS },
  { to: PAGE_PATHS.incidents, label: "Incidents", Icon: IconAlertTriangle, needs: READS },
  { to: PAGE_PATHS.webhooks, label: "Webhooks", Icon: IconWebhook, needs: READS },
  { to: PAGE_PATHS.deliveries, label: "Deliveries", Icon: IconSend, needs: READS },
  { to: PAGE_PATHS.customers, label: "Customers", Icon: IconUsers, needs: READS },
  { to: PAGE_PATHS.keys, label: "API keys", Icon: IconKey, needs: MANAGES },
  { to: PAGE_PATHS.apps, label: "Installed apps", Icon: IconApps, needs: MANAGES },
  { to: PAGE_PATHS.audit, label: "Audit log", Icon: IconHistory, needs: MANAGES },
];

/** The pages of lists that the session may see: a key of a customer sees its own customer and no apps, one of an app no customers. */
export function useNavigation(): readonly Entry[] {
  const customer = useOwnCustomer();
  const isLimited = useIsLimited();
  const may = { [READS]: useMay(READS), [MANAGES]: useMay(MANAGES) } as Record<PermissionName, boolean>;
  return NAVIGATION.filter(({ needs }) => may[needs]).flatMap((entry) => {
    if (entry.to === PAGE_PATHS.apps && customer !== undefined) return [];
    if (entry.to !== PAGE_PATHS.customers) return entry;
    if (customer !== undefined) return { ...entry, to: customerPage(customer), label: "Customer" };
    return isLimited ? [] : entry;
  });
}
