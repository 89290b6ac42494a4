import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import {
  type ApiKey,
  ApiKeyService,
  type RevokeApiKeyResponse,
} from "../../../../gen/webhook/v1/api_key_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useSession, useSessionAccess } from "../../api/session.tsx";
import { useReadAnew } from "../../api/use-read-anew.ts";
import { useFocusBack } from "../../parts/dialogs/use-focus-back.ts";
import { countOf } from "../../parts/text/count-of.ts";
import type { NewSecret } from "./dialogs/secret-dialog.tsx";

type Question = "create" | "quotas" | "rotate" | "revoke" | "remove";

/** The dialogs of the page, one at a time, and the effect of each. */
export function useKeyDialogs() {
  const queries = useQueryClient();
  const readAnew = useReadAnew();
  const { signIn, signOut, replaceSession } = useSessionAccess();
  const own = useSession().apiKey;
  const ownId = own?.id;
  const [question, setQuestion] = useState<Question>();
  const [apiKey, setApiKey] = useState<ApiKey>();
  const [rotating, setRotating] = useState(false);
  const [secret, setSecret] = useState<NewSecret>();
  useFocusBack(question !== undefined || secret !== undefined);

  return {
    /** The key that is signed in with. */
    own,
    ownId,
    question,
    /** The key that is asked about, or was. */
    apiKey,
    secret,
    /**
     * Whether nothing may be read now: an answer that the session is over would take the page away, and the secret
     * that it shows, or is about to, with it.
     */
    readsNothing: rotating || secret !== undefined,
    ask(what: Question, about?: ApiKey) {
      setQuestion(what);
      if (about) setApiKey(about);
    },
    close: () => setQuestion(undefined),
    forgetSecret: () => setSecret(undefined),

    async created(key: ApiKey | undefined, made: string) {
      setQuestion(undefined);
      setSecret({ title: `The key “${key?.name}” is created`, secret: made });
      await readAnew(ApiKeyService);
    },

    async rotate(run: () => Promise<string>) {
      const isOwn = apiKey?.id === ownId;
      setRotating(true);
      try {
        if (isOwn) await queries.cancelQueries();
        // A new secret ends the key's sessions, this one too.
        const { made, signedIn } = isOwn
          ? await replaceSession(async () => {
              const made = await run();
              return { made, signedIn: await succeeds(signIn(made)) };
            })
          : { made: await run(), signedIn: true };
        setSecret({
          title: `The new secret of “${apiKey?.name}”`,
          secret: made,
          ...(signedIn ? {} : { note: "You are signed out by this: sign in with the new secret." }),
        });
        await readAnew(ApiKeyService);
      } finally {
        setRotating(false);
      }
    },

    async revoked(done: RevokeApiKeyResponse) {
      notifications.show({ color: "green", title: `“${done.apiKey?.name}” is revoked`, message: fate(done) });
      if (done.apiKey?.id === ownId) await signOut();
      else await Promise.all([readAnew(ApiKeyService), readAnew(WebhookService)]);
    },
  };
}

function fate({ webhooksTransferred: transferred, webhooksDeleted: deleted }: RevokeApiKeyResponse): string {
  if (transferred > 0)
    return `${countOf(transferred, "webhook was", "webhooks were")} taken over by the other key.`;
  return deleted > 0 ? `${countOf(deleted, "webhook was", "webhooks were")} deleted.` : "It had no webhooks.";
}

function succeeds(what: Promise<unknown>): Promise<boolean> {
  return what.then(
    () => true,
    () => false,
  );
}
