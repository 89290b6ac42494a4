import { Button } from "@mantine/core";
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
import { useFocusBack } from "../../parts/focus.ts";
import { PageTitle } from "../../parts/page.tsx";
import { notifyDone } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { useCustomerFilter } from "../customers/chosen.tsx";
import { CustomerFilter } from "../customers/filter.tsx";
import { CreateKey, QuotasDialog, RenameDialog } from "./key-forms.tsx";
import { KEY_FILTERS, type KeyAction, KeyFilters, KeyList } from "./key-list.tsx";
import { RemoveKey, RevokeKey } from "./revoke-key.tsx";
import { type NewSecret, RotateKey, SecretDialog } from "./secrets.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;

/** The keys that calls are made with. */
export default function KeysPage() {
  const queries = useQueryClient();
  const readAnew = useReadAnew();
  const { signIn, signOut, replaceSession } = useSessionAccess();
  const own = useSession().apiKey;
  const [question, setQuestion] = useState<KeyAction | "create">();
  /** The key that is asked about, or was. */
  const [apiKey, setApiKey] = useState<ApiKey>();
  const [rotating, setRotating] = useState(false);
  const [secret, setSecret] = useState<NewSecret>();
  // Nothing may be read while a secret is shown, or about to be: an answer that the session is over would take the page away, and
  // the secret with it.
  const options = { enabled: !rotating && secret === undefined, refreshMs: REFRESH_MS };
  const customer = useCustomerFilter();
  const list = useAllPages(ApiKeyService.method.listApiKeys, customer, options);
  // Apps are the operator's.
  const mayHaveApps = own?.customer === undefined;
  const apps = useAllPages(
    ApiKeyService.method.listInstalledApps,
    {},
    { ...options, enabled: options.enabled && mayHaveApps },
  );
  const installedApps = mayHaveApps ? apps.data?.installedApps : [];
  const [filters, change] = useUrlFilters(KEY_FILTERS);
  useFocusBack(question !== undefined || secret !== undefined);
  const isOwn = apiKey?.id === own?.id;
  const error = list.error ?? apps.error;
  const isRead = list.data !== undefined && installedApps !== undefined;
  const create = () => setQuestion("create");
  const close = () => setQuestion(undefined);
  const dialog = (asked: KeyAction) => ({ opened: question === asked, onClose: close, apiKey });

  function act(action: KeyAction, key: ApiKey) {
    setQuestion(action);
    setApiKey(key);
  }

  async function created(key: ApiKey | undefined, made: string) {
    close();
    setSecret({ title: `The key “${key?.name}” is created`, secret: made });
    await readAnew(ApiKeyService);
  }

  async function rotate(run: () => Promise<string>) {
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
  }

  async function revoked(done: RevokeApiKeyResponse) {
    notifyDone(fate(done), `“${done.apiKey?.name}” is revoked`);
    if (isOwn) await signOut();
    else await Promise.all([readAnew(ApiKeyService), readAnew(WebhookService)]);
  }

  return (
    <>
      <PageTitle
        title="API keys"
        compact
        description="Keys authenticate API calls. Each key has permissions and owns the webhooks it registers."
        actions={
          <>
            <CustomerFilter />
            <Button leftSection={<IconPlus size={16} />} disabled={!isRead} onClick={create}>
              New key
            </Button>
          </>
        }
      />
      <Failure
        error={error}
        title="Could not load the keys"
        onRetry={() => void Promise.all([list.refetch(), apps.refetch()])}
        my="sm"
      />
      {isRead ? (
        <>
          <KeyFilters filters={filters} apps={installedApps} onChange={change} />
          <KeyList
            keys={list.data.apiKeys}
            apps={installedApps}
            filters={filters}
            onClear={() => change({ search: "", state: "", app: "" })}
            own={own}
            onCreate={create}
            onAct={act}
          />
        </>
      ) : (
        !error && <Loading lines={8} height={56} />
      )}
      <CreateKey
        opened={question === "create"}
        onClose={close}
        apps={installedApps ?? []}
        appId={own?.installedApplicationId ?? filters.app}
        customer={customer.customer ?? ""}
        own={own}
        onCreated={created}
      />
      <RenameDialog {...dialog("rename")} />
      <QuotasDialog {...dialog("quotas")} />
      <RotateKey {...dialog("rotate")} isOwn={isOwn} onRotate={rotate} />
      <RevokeKey {...dialog("revoke")} keys={list.data?.apiKeys ?? []} isOwn={isOwn} onRevoked={revoked} />
      <RemoveKey {...dialog("remove")} />
      <SecretDialog shown={secret} onClose={() => setSecret(undefined)} />
    </>
  );
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
