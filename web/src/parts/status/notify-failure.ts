import { notifications } from "@mantine/notifications";
import { failureInWords } from "../../api/failure.ts";

/**
 * Says in passing that something could not be done, where no dialog stays open to say it. It stays until it is closed.
 *
 * @param what in a sentence without its end: "The webhook is still paused"
 */
export function notifyFailure(what: string, error: unknown): void {
  const { title, text } = failureInWords(error);
  notifications.show({ color: "red", title: `${what}. ${title}`, message: text, autoClose: false });
}
