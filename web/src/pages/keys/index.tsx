import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlus } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import {
  type ApiKey,
  ApiKeyService,
  type RevokeApiKeyResponse,
} from "../../../../gen/webhook/v1/api_key_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useAllPages, useReadAnew } from "../../api/queries.ts";
import { useSession, useSessionAccess } from "../../api/session.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { useUrlFilters } from "../../parts/filters.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { PageTitle } from "../../parts/page.tsx";
import { countOf } from "../../parts/text/words.ts";
import { CreateKey, QuotasDialog } from "./key-forms.tsx";
import { FilteredKeys, KEY_FILTERS, KeyFilters } from "./key-list.tsx";
import { RemoveKey, RevokeKey } from "./revoke-key.tsx";
import { type NewSecret, RotateKey, SecretDialog } from "./secrets.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;

/** The keys that calls are made with. */
export default function KeysPage() {
  const dialogs = useKeyDialogs();
  const options = { enabled: !dialogs.readsNothing, refreshMs: REFRESH_MS };
  const list = useAllPages(ApiKeyService.method.listApiKeys, {}, options);
  const apps = useAllPages(ApiKeyService.method.listInstalledApps, {}, options);
  const [filters, change] = useUrlFilters(KEY_FILTERS);
  const isOwn = dialogs.apiKey?.id === dialogs.ownId;
  const error = list.error ?? apps.error;
  const isRead = list.data !== undefined && apps.data !== undefined;

  return (
    <>
      <PageTitle
        title="API keys"
        compact
        description="Keys authenticate API calls. Each key has permissions and owns the webhooks it registers."
        actions={
          <Button
            leftSection={<IconPlus size={16} />}
            disabled={!isRead}
            onClick={() => dialogs.ask("create")}
          >
            New key
          </Button>
        }
      />
      {error && (
        <Failure
          error={error}
          title="Could not load the keys"
          onRetry={() => void Promise.all([list.refetch(), apps.refetch()])}
          my="sm"
        />
      )}
      {isRead ? (
        <>
          <KeyFilters filters={filters} apps={apps.data.installedApps} onChange={change} />
          <FilteredKeys
            keys={list.data.apiKeys}
            apps={apps.data.installedApps}
            filters={filters}
            onClear={() => change({ search: "", state: "", app: "" })}
            own={dialogs.own}
            onCreate={() => dialogs.ask("create")}
            onQuotas={(key) => dialogs.ask("quotas", key)}
            onRotate={(key) => dialogs.ask("rotate", key)}
            onRevoke={(key) => dialogs.ask("revoke", key)}
            onRemove={(key) => dialogs.ask("remove", key)}
          />
        </>
      ) : (
        !error && <Loading lines={8} height={56} />
      )}
      <CreateKey
        opened={dialogs.question === "create"}
        onClose={dialogs.close}
        apps={apps.data?.installedApps ?? []}
        appId={dialogs.own?.installedApplicationId ?? filters.app}
        own={dialogs.own}
        onCreated={dialogs.created}
      />
      <QuotasDialog opened={dialogs.question === "quotas"} onClose={dialogs.close} apiKey={dialogs.apiKey} />
      <RotateKey
        opened={dialogs.question === "rotate"}
        onClose={dialogs.close}
        apiKey={dialogs.apiKey}
        isOwn={isOwn}
        onRotate={dialogs.rotate}
      />
      <RevokeKey
        opened={dialogs.question === "revoke"}
        onClose={dialogs.close}
        apiKey={dialogs.apiKey}
        keys={list.data?.apiKeys ?? []}
        isOwn={isOwn}
        onRevoked={dialogs.revoked}
      />
      <RemoveKey opened={dialogs.question === "remove"} onClose={dialogs.close} apiKey={dialogs.apiKey} />
      <SecretDialog shown={dialogs.secret} onClose={dialogs.forgetSecret} />
    </>
  );
}

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
