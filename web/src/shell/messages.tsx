import { Notifications } from "@mantine/notifications";

import "@mantine/notifications/styles.css";

/** What is said in passing. */
export default function Messages() {
  return <Notifications position="top-right" />;
}
